//! `shop status`: orders and their sagas, the tables of every service, waiting messages, and violations.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use serde::Serialize;
use sqlx::PgPool;
use tokio::time::timeout;

use crate::environment::Environment;
use crate::services::Service;
use crate::{Result, consistency};

/// The number of orders shown, newest last.
const MOST_ORDERS: i64 = 20;
/// How long to wait for the broker.
const BROKER_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize)]
struct Status {
    orders: Vec<OrderStatus>,
    /// Number of orders, by status.
    counts: BTreeMap<String, i64>,
    charged_cents: i64,
    refunded_cents: i64,
    stock: Vec<Item>,
    parcels: BTreeMap<String, i64>,
    notifications: i64,
    /// Handled events, by consumer.
    inbox: BTreeMap<String, i64>,
    /// Rows of the outbox, by status.
    outbox: BTreeMap<String, i64>,
    /// Dead letters, by service; `None` if the broker is unavailable.
    dead_letters: Option<BTreeMap<String, u32>>,
    faults: BTreeMap<String, String>,
    /// Must always be empty.
    violations: Vec<String>,
}

#[derive(Debug, Serialize)]
struct OrderStatus {
    id: i64,
    what: String,
    status: String,
    saga: Option<String>,
    step: Option<String>,
    last_error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Item {
    item: String,
    delivered: i32,
    on_hand: i32,
    reserved: i64,
}

pub(crate) async fn print(environment: &Environment, json: bool) -> Result<()> {
    let pool = environment.pool()?;
    let mut status = read(&pool).await?;
    // The rest is shown even if the broker is unavailable.
    status.dead_letters = match timeout(BROKER_TIMEOUT, dead_letters(environment)).await {
        Ok(Ok(letters)) => Some(letters),
        Ok(Err(error)) => {
            tracing::warn!(%error, "cannot count dead letters");
            None
        }
        Err(_) => None,
    };
    pool.close().await;
    if json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        status.print();
    }
    Ok(())
}

async fn read(pool: &PgPool) -> Result<Status> {
    let money = "select coalesce(sum(cents), 0)::bigint from payment.charges where status = $1";
    let cents = |status| sqlx::query_scalar(money).bind(status).fetch_one(pool);
    Ok(Status {
        orders: orders(pool).await?,
        counts: counts(pool, "select status, count(*) from shop.orders group by 1").await?,
        charged_cents: cents("charged").await?,
        refunded_cents: cents("refunded").await?,
        stock: stock(pool).await?,
        parcels: counts(pool, "select status, count(*) from shipping.parcels group by 1").await?,
        notifications: sqlx::query_scalar("select count(*) from notifications.sent")
            .fetch_one(pool)
            .await?,
        inbox: counts(pool, "select consumer, count(*) from pillarbox.inbox group by 1").await?,
        outbox: counts(
            pool,
            "select status::text, count(*) from pillarbox.outbox_events group by 1",
        )
        .await?,
        dead_letters: None,
        faults: faults(pool).await?,
        violations: consistency::violations(pool).await?,
    })
}

async fn counts(pool: &PgPool, query: &'static str) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let rows: Vec<(String, i64)> = sqlx::query_as(query).fetch_all(pool).await?;
    Ok(rows.into_iter().collect())
}

async fn orders(pool: &PgPool) -> Result<Vec<OrderStatus>, sqlx::Error> {
    type Row = (
        i64,
        String,
        String,
        Option<String>,
        Option<String>,
        Option<String>,
    );
    let rows: Vec<Row> = sqlx::query_as(
        "select o.id, o.quantity || ' × ' || o.item, o.status, s.status,
           case when o.status = 'placed' then s.path ->> -1 end, s.last_error
         from shop.orders o left join pillarbox.sagas s on s.name = 'order' and s.id = o.id::text
         order by o.id desc limit $1",
    )
    .bind(MOST_ORDERS)
    .fetch_all(pool)
    .await?;
    let order = |(id, what, status, saga, step, last_error)| OrderStatus {
        id,
        what,
        status,
        saga,
        step,
        last_error,
    };
    Ok(rows.into_iter().rev().map(order).collect())
}

async fn stock(pool: &PgPool) -> Result<Vec<Item>, sqlx::Error> {
    let rows: Vec<(String, i32, i32, i64)> = sqlx::query_as(
        "select item, delivered, on_hand, (select coalesce(sum(r.quantity), 0) from stock.reservations r
           where r.item = i.item and r.status = 'reserved')
         from stock.items i order by 1",
    )
    .fetch_all(pool)
    .await?;
    let item = |(item, delivered, on_hand, reserved)| Item {
        item,
        delivered,
        on_hand,
        reserved,
    };
    Ok(rows.into_iter().map(item).collect())
}

async fn faults(pool: &PgPool) -> Result<BTreeMap<String, String>, sqlx::Error> {
    let rows: Vec<(String, String)> =
        sqlx::query_as("select service, mode from shop.faults where mode <> 'off'")
            .fetch_all(pool)
            .await?;
    Ok(rows.into_iter().collect())
}

/// The number of dead letters of each consumer.
async fn dead_letters(environment: &Environment) -> Result<BTreeMap<String, u32>, lapin::Error> {
    let connection = Connection::connect(&environment.amqp, ConnectionProperties::default()).await?;
    let mut letters = BTreeMap::new();
    for service in Service::ALL.into_iter().filter(|service| service.consumes()) {
        // Asking for a missing queue closes the channel.
        let channel = connection.create_channel().await?;
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let name = format!("{}.dead", environment.queue_name(service));
        let queue = channel
            .queue_declare(name.into(), options, FieldTable::default())
            .await;
        if let Ok(queue) = queue {
            letters.insert(service.to_string(), queue.message_count());
        }
    }
    // The counts are complete, whatever the close returns.
    connection.close(200, "done".into()).await.ok();
    Ok(letters)
}

impl Status {
    fn print(&self) {
        for order in &self.orders {
            let saga = order.saga.as_deref().unwrap_or("no saga");
            let step = order.step.as_deref().unwrap_or_default();
            let error = order.last_error.as_deref().unwrap_or_default();
            println!(
                "order {:<5} {:<14} {:<10} {saga:<13} {step:<9} {error}",
                order.id, order.what, order.status
            );
        }
        println!("orders        {}", listed(&self.counts));
        println!(
            "payment       {} charged, {} refunded",
            euros(self.charged_cents),
            euros(self.refunded_cents)
        );
        for item in &self.stock {
            println!(
                "stock         {}: {} delivered, {} on hand, {} reserved",
                item.item, item.delivered, item.on_hand, item.reserved
            );
        }
        println!("parcels       {}", listed(&self.parcels));
        println!("notifications {}", self.notifications);
        println!("inbox         {}", listed(&self.inbox));
        println!("outbox        {}", listed(&self.outbox));
        match &self.dead_letters {
            Some(letters) => println!("dead letters  {}", listed(letters)),
            None => println!("dead letters  unknown: RabbitMQ is unavailable"),
        }
        for (service, mode) in &self.faults {
            println!("fault switch  {service}: {mode}");
        }
        println!("consistency   {}", self.verdict());
    }

    fn verdict(&self) -> String {
        if self.violations.is_empty() {
            "ok".to_owned()
        } else {
            format!("VIOLATED: {}", self.violations.join("; "))
        }
    }
}

fn listed<N: std::fmt::Display>(counts: &BTreeMap<String, N>) -> String {
    let parts: Vec<String> = counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    }
}

fn euros(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
