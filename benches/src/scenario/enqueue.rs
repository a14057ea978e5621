//! What an enqueue costs an application, compared with a bare INSERT: one transaction after another on one connection, with 1 and
//! with 100 events each.

use std::time::Instant;

use pillarbox::{Event, Outbox};
use serde_json::json;
use sqlx::{Connection, PgConnection};

use super::Context;
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Target, median};

/// How events are enqueued.
#[derive(Debug)]
enum Way {
    /// A bare INSERT, without the library's checks and without duplicate detection.
    Bare { prepared: bool },
    /// The library.
    Outbox(Outbox),
    /// The SQL function for other languages, prepared as their clients do.
    Function,
}

/// One comparison, and the highest ratio allowed.
struct Figure {
    names: [&'static str; 2],
    ours: Way,
    against: Way,
    what: &'static str,
    most: f64,
}

fn figures() -> [Figure; 3] {
    [
        Figure {
            names: ["enqueue-1", "enqueue-100"],
            ours: Way::Outbox(Outbox::default()),
            against: Way::Bare { prepared: false },
            what: "a transaction with the bare INSERT, not prepared either",
            most: 1.3,
        },
        Figure {
            names: ["enqueue-prepared-1", "enqueue-prepared-100"],
            ours: Way::Outbox(Outbox::default().prepared()),
            against: Way::Bare { prepared: true },
            what: "a transaction with the bare INSERT, prepared too",
            most: 1.3,
        },
        Figure {
            names: ["enqueue-sql-1", "enqueue-sql-100"],
            ours: Way::Function,
            against: Way::Bare { prepared: true },
            what: "a transaction with the bare INSERT, both prepared",
            most: 2.0,
        },
    ]
}

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let ours = Ours::new(context.database).await?;
    let mut connection = context.database.connection().await?;
    let mut found = Vec::new();
    for figure in &figures() {
        for (name, per_transaction) in figure.names.into_iter().zip([1, 100]) {
            let transactions = context.scale.enqueued() / per_transaction.min(10);
            let (mut mine, mut theirs) = (Vec::new(), Vec::new());
            // Commits are as noisy as the disk, so there are many short runs.
            for _ in 0..context.scale.pairs() * 4 {
                for (way, costs) in [(&figure.against, &mut theirs), (&figure.ours, &mut mine)] {
                    ours.backlog().clear().await?;
                    costs.push(run(&mut connection, way, transactions, per_transaction).await?);
                }
            }
            let (value, peer) = (median(&mine), median(&theirs));
            eprintln!("  {name:<22} {value:>9.0} µs, {peer:.0} bare");
            found.push(
                Measurement::new(
                    name,
                    (value, "µs"),
                    (figure.what, peer),
                    Target::AtMost(figure.most),
                )
                .detail("transactions", transactions)
                .detail("turns", mine.len()),
            );
        }
    }
    Ok(found)
}

/// Microseconds per transaction.
async fn run(
    connection: &mut PgConnection,
    way: &Way,
    transactions: u32,
    per_transaction: u32,
) -> Result<f64, Failure> {
    let batches: Vec<Vec<Event>> = (0..transactions)
        .map(|n| (0..per_transaction).map(|m| event(n, m)).collect())
        .collect();
    let began = Instant::now();
    for batch in &batches {
        let mut transaction = connection.begin().await?;
        way.write(&mut transaction, batch).await?;
        transaction.commit().await?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(transactions))
}

/// About 300 bytes of JSON, as in the other scenarios, with a key of each kind.
fn event(n: u32, m: u32) -> Event {
    let order = format!("order-{n}-{m}");
    Event::new("shop", "orders")
        .event_type("OrderCreated")
        .aggregate("order", order.clone())
        .ordering_key(order.clone())
        .dedupe_key(format!("{order}/created"))
        .json_text(
            json!({"order": n, "customer": order, "currency": "EUR", "note": "x".repeat(235)}).to_string(),
        )
}

impl Way {
    async fn write(&self, connection: &mut PgConnection, events: &[Event]) -> Result<(), Failure> {
        match (self, events) {
            (Self::Bare { prepared }, [event]) => bare_one(connection, event, *prepared).await,
            (Self::Bare { prepared }, events) => bare_many(connection, events, *prepared).await,
            (Self::Outbox(outbox), events) => library(connection, events, outbox).await,
            (Self::Function, [event]) => function_one(connection, event).await,
            (Self::Function, events) => function_many(connection, events).await,
        }
    }
}

async fn library(connection: &mut PgConnection, events: &[Event], outbox: &Outbox) -> Result<(), Failure> {
    match events {
        [event] => drop(outbox.enqueue(connection, event).await?),
        events => drop(outbox.enqueue_all(connection, events).await?),
    }
    Ok(())
}

fn payload(event: &Event) -> &str {
    std::str::from_utf8(event.payload.as_bytes()).unwrap_or("null")
}

async fn bare_one(connection: &mut PgConnection, event: &Event, prepared: bool) -> Result<(), Failure> {
    sqlx::query(
        "insert into pillarbox.outbox_events (id, namespace, topic, event_type, event_version, aggregate_type, \
         aggregate_id, ordering_key, dedupe_key, payload) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text::jsonb)",
    )
    .bind(event.id)
    .bind(&event.namespace)
    .bind(&event.topic)
    .bind(&event.event_type)
    .bind(event.event_version)
    .bind(&event.aggregate_type)
    .bind(&event.aggregate_id)
    .bind(&event.ordering_key)
    .bind(&event.dedupe_key)
    .bind(payload(event))
    .persistent(prepared)
    .execute(connection)
    .await?;
    Ok(())
}

async fn bare_many(connection: &mut PgConnection, events: &[Event], prepared: bool) -> Result<(), Failure> {
    fn column<'a, T>(events: &'a [Event], of: impl Fn(&'a Event) -> T) -> Vec<T> {
        events.iter().map(of).collect()
    }
    sqlx::query(
        "insert into pillarbox.outbox_events (id, namespace, topic, event_type, event_version, aggregate_type, \
         aggregate_id, ordering_key, dedupe_key, payload) \
         select id, namespace, topic, event_type, version, aggregate_type, aggregate_id, key, once, payload::jsonb \
         from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[], \
         $8::text[], $9::text[], $10::text[]) as e (id, namespace, topic, event_type, version, aggregate_type, \
         aggregate_id, key, once, payload)",
    )
    .bind(column(events, |event| event.id))
    .bind(column(events, |event| event.namespace.as_str()))
    .bind(column(events, |event| event.topic.as_str()))
    .bind(column(events, |event| event.event_type.as_deref()))
    .bind(column(events, |event| event.event_version))
    .bind(column(events, |event| event.aggregate_type.as_deref()))
    .bind(column(events, |event| event.aggregate_id.as_deref()))
    .bind(column(events, |event| event.ordering_key.as_deref()))
    .bind(column(events, |event| event.dedupe_key.as_deref()))
    .bind(column(events, payload))
    .persistent(prepared)
    .execute(connection)
    .await?;
    Ok(())
}

async fn function_one(connection: &mut PgConnection, event: &Event) -> Result<(), Failure> {
    sqlx::query(
        "select id, is_new from pillarbox.enqueue(namespace => $1, topic => $2, event_type => $3, \
         event_version => $4, aggregate_type => $5, aggregate_id => $6, ordering_key => $7, dedupe_key => $8, \
         payload => $9::text::jsonb)",
    )
    .bind(&event.namespace)
    .bind(&event.topic)
    .bind(&event.event_type)
    .bind(event.event_version)
    .bind(&event.aggregate_type)
    .bind(&event.aggregate_id)
    .bind(&event.ordering_key)
    .bind(&event.dedupe_key)
    .bind(payload(event))
    .fetch_one(connection)
    .await?;
    Ok(())
}

async fn function_many(connection: &mut PgConnection, events: &[Event]) -> Result<(), Failure> {
    let items: Vec<String> = events
        .iter()
        .map(|event| {
            format!(
                r#"{{"namespace":"{}","topic":"{}","event_type":"OrderCreated","aggregate_type":"order","aggregate_id":"{}","ordering_key":"{}","dedupe_key":"{}","payload":{}}}"#,
                event.namespace,
                event.topic,
                event.aggregate_id.as_deref().unwrap_or_default(),
                event.ordering_key.as_deref().unwrap_or_default(),
                event.dedupe_key.as_deref().unwrap_or_default(),
                payload(event)
            )
        })
        .collect();
    let rows = sqlx::query("select ord, id, is_new from pillarbox.enqueue_many($1::text::jsonb)")
        .bind(format!("[{}]", items.join(",")))
        .fetch_all(connection)
        .await?;
    drop(rows);
    Ok(())
}
