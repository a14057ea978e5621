//! What an enqueue costs an application, compared with a bare INSERT: one transaction after another on one connection, with 1 and
//! with 100 events each.
//!
//! Events have an ordering key, a dedupe key, both or neither. The bare INSERT compares like with like: it has ON CONFLICT if
//! there are dedupe keys.

use std::time::Instant;

use pillarbox::{Event, Outbox};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::Context;
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Target, median};

/// How events are enqueued.
#[derive(Debug)]
enum Way {
    /// A bare INSERT, without the library's checks.
    Bare { prepared: bool },
    /// The library.
    Outbox(Outbox),
    /// The SQL function for other languages, prepared as their clients do.
    Function,
}

/// A comparison for each of [`LOADS`], and the highest ratios allowed with 1 and with 100 events.
struct Figure {
    names: [&'static str; LOADS.len()],
    ours: Way,
    against: Way,
    what: &'static str,
    most: [f64; 2],
}

fn figures() -> [Figure; 3] {
    [
        Figure {
            names: [
                "enqueue-1",
                "enqueue-100",
                "enqueue-keyed-100",
                "enqueue-dedupe-100",
                "enqueue-keyed-dedupe-100",
            ],
            ours: Way::Outbox(Outbox::default()),
            against: Way::Bare { prepared: false },
            what: "a transaction with the bare INSERT, not prepared either",
            most: [1.3, 1.15],
        },
        Figure {
            names: [
                "enqueue-prepared-1",
                "enqueue-prepared-100",
                "enqueue-prepared-keyed-100",
                "enqueue-prepared-dedupe-100",
                "enqueue-prepared-keyed-dedupe-100",
            ],
            ours: Way::Outbox(Outbox::default().prepared()),
            against: Way::Bare { prepared: true },
            what: "a transaction with the bare INSERT, prepared too",
            most: [1.3, 1.15],
        },
        Figure {
            names: [
                "enqueue-sql-1",
                "enqueue-sql-100",
                "enqueue-sql-keyed-100",
                "enqueue-sql-dedupe-100",
                "enqueue-sql-keyed-dedupe-100",
            ],
            ours: Way::Function,
            against: Way::Bare { prepared: true },
            what: "a transaction with the bare INSERT, both prepared",
            most: [2.0, 1.35],
        },
    ]
}

/// Which events a transaction enqueues.
#[derive(Debug, Clone, Copy)]
struct Load {
    per_transaction: u32,
    keyed: bool,
    deduped: bool,
}

const LOADS: [Load; 5] = [
    Load::new(1, true, true),
    Load::new(100, false, false),
    Load::new(100, true, false),
    Load::new(100, false, true),
    Load::new(100, true, true),
];

impl Load {
    const fn new(per_transaction: u32, keyed: bool, deduped: bool) -> Self {
        Self {
            per_transaction,
            keyed,
            deduped,
        }
    }

    /// About 300 bytes of JSON, as in the other scenarios.
    fn event(self, n: u32, m: u32) -> Event {
        let order = format!("order-{n}-{m}");
        let mut event = Event::new("shop", "orders")
            .event_type("OrderCreated")
            .aggregate("order", order.clone())
            .json_text(
                json!({"order": n, "customer": order, "currency": "EUR", "note": "x".repeat(235)})
                    .to_string(),
            );
        if self.deduped {
            event = event.dedupe_key(format!("{order}/created"));
        }
        if self.keyed {
            event = event.ordering_key(order);
        }
        event
    }
}

/// The costs of one transaction.
#[derive(Debug, Default)]
struct Costs {
    /// Microseconds that passed.
    elapsed: Vec<f64>,
    /// Microseconds of the server's processor time per event, if the server runs on this machine.
    server: Vec<f64>,
}

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let ours = Ours::new(context.database).await?;
    let mut connection = context.database.connection().await?;
    let mut found = Vec::new();
    for figure in &figures() {
        for (name, load) in figure.names.into_iter().zip(LOADS) {
            let transactions = context.scale.enqueued() / load.per_transaction.min(10);
            let (mut mine, mut theirs) = (Costs::default(), Costs::default());
            // Commits are as noisy as the disk, so there are many short runs.
            for _ in 0..context.scale.pairs() * 4 {
                for (way, costs) in [(&figure.against, &mut theirs), (&figure.ours, &mut mine)] {
                    ours.backlog().clear().await?;
                    run(&mut connection, way, transactions, load, costs).await?;
                }
            }
            let measured = measured(name, figure, load, &mine, &theirs);
            found.push(measured.detail("transactions", transactions));
        }
    }
    Ok(found)
}

fn measured(name: &'static str, figure: &Figure, load: Load, mine: &Costs, theirs: &Costs) -> Measurement {
    let (value, peer) = (median(&mine.elapsed), median(&theirs.elapsed));
    eprintln!("  {name:<32} {value:>9.0} µs, {peer:.0} bare");
    let [one, many] = figure.most;
    let most = if load.per_transaction == 1 { one } else { many };
    let measured = Measurement::new(name, (value, "µs"), (figure.what, peer), Target::AtMost(most));
    let measured = measured.detail("turns", mine.elapsed.len());
    if mine.server.is_empty() {
        return measured;
    }
    measured
        .detail("server µs per event", median(&mine.server))
        .detail("server µs per event, bare", median(&theirs.server))
}

async fn run(
    connection: &mut PgConnection,
    way: &Way,
    transactions: u32,
    load: Load,
    costs: &mut Costs,
) -> Result<(), Failure> {
    let batches: Vec<Vec<Event>> = (0..transactions)
        .map(|n| (0..load.per_transaction).map(|m| load.event(n, m)).collect())
        .collect();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&mut *connection)
        .await?;
    let (busy, began) = (processor_time(pid), Instant::now());
    for batch in &batches {
        let mut transaction = connection.begin().await?;
        way.write(&mut transaction, batch).await?;
        transaction.commit().await?;
    }
    let elapsed = began.elapsed().as_secs_f64() * 1e6;
    costs.elapsed.push(elapsed / f64::from(transactions));
    if let (Some(before), Some(after)) = (busy, processor_time(pid)) {
        let events = f64::from(transactions) * f64::from(load.per_transaction);
        costs.server.push((after - before) / events);
    }
    Ok(())
}

/// How many microseconds a process of PostgreSQL has worked. `None` if it is on another machine.
fn processor_time(pid: i32) -> Option<f64> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let nanoseconds: f64 = text.split(' ').next()?.parse().ok()?;
    name.starts_with("postgres").then_some(nanoseconds / 1e3)
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

/// The bare INSERT with what duplicate detection needs.
fn deduped(insert: &str, events: &[Event]) -> AssertSqlSafe<String> {
    let conflict = if events.iter().any(|event| event.dedupe_key.is_some()) {
        " on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing"
    } else {
        ""
    };
    AssertSqlSafe(format!("{insert}{conflict}"))
}

async fn bare_one(connection: &mut PgConnection, event: &Event, prepared: bool) -> Result<(), Failure> {
    let insert = "insert into pillarbox.outbox_events (id, namespace, topic, event_type, event_version, aggregate_type, \
         aggregate_id, ordering_key, dedupe_key, payload) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text::jsonb)";
    sqlx::query(deduped(insert, std::slice::from_ref(event)))
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
    let insert = "insert into pillarbox.outbox_events (id, namespace, topic, event_type, event_version, aggregate_type, \
         aggregate_id, ordering_key, dedupe_key, payload) \
         select id, namespace, topic, event_type, version, aggregate_type, aggregate_id, key, once, payload::jsonb \
         from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[], \
         $8::text[], $9::text[], $10::text[]) as e (id, namespace, topic, event_type, version, aggregate_type, \
         aggregate_id, key, once, payload)";
    sqlx::query(deduped(insert, events))
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
    let key = |name: &str, key: &Option<String>| match key {
        Some(key) => format!(r#""{name}":"{key}","#),
        None => String::new(),
    };
    let items: Vec<String> = events
        .iter()
        .map(|event| {
            format!(
                r#"{{"namespace":"{}","topic":"{}","event_type":"OrderCreated","aggregate_type":"order","aggregate_id":"{}",{}{}"payload":{}}}"#,
                event.namespace,
                event.topic,
                event.aggregate_id.as_deref().unwrap_or_default(),
                key("ordering_key", &event.ordering_key),
                key("dedupe_key", &event.dedupe_key),
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
