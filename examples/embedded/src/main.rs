//! An order service that enqueues and dispatches in one process, on SQLite, with its own function as the destination.
//! It places three orders, rolls one back, waits until the other two are mailed, and ends.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::{Event, Outbox, RetryPolicy};
use pillarbox_dispatch::{Destination, Dispatcher, Policy};
use pillarbox_sinks::{Callback, CallbackError};
use pillarbox_store::stores::sqlite::{Options, Sqlite, begin, connect_options};
use serde_json::json;
use sqlx::SqlitePool;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db").to_string_lossy().into_owned();
    let store = Sqlite::create(&file).await?;
    store.migrate().await?;

    // The application's own connections and its own table, in the same file.
    let pool = SqlitePool::connect_with(connect_options(&file, &Options::default())?).await?;
    sqlx::raw_sql("create table orders (id integer primary key)")
        .execute(&pool)
        .await?;

    let (mailed, mut mails) = mpsc::unbounded_channel();
    let mailer = Callback::new(move |delivery| {
        let mailed = mailed.clone();
        async move {
            let order: serde_json::Value = serde_json::from_slice(delivery.event.payload.as_bytes())?;
            if order["id"] == 2 && delivery.attempts == 1 {
                return Err(CallbackError::retry("mail server unavailable"));
            }
            mailed.send(format!(
                "mailed order {} (attempt {})",
                order["id"], delivery.attempts
            ))?;
            Ok(())
        }
    });

    let retry =
        RetryPolicy::exponential(Duration::from_millis(100), Duration::from_secs(60)).max_attempts(10);
    let dispatcher = Dispatcher::builder(Arc::new(store))
        .destination(Destination::new("mailer", mailer).policy(Policy::default().retry(retry)))
        .build()?;
    let wake = dispatcher.wake();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(dispatcher.run(shutdown.clone()));

    place_order(&pool, 1, true).await?;
    place_order(&pool, 2, true).await?;
    place_order(&pool, 3, false).await?;
    wake.notify();

    for _ in 0..2 {
        println!("{}", mails.recv().await.ok_or("the mailer stopped")?);
    }
    shutdown.cancel();
    let done = running.await?;
    println!("delivered {}, retried {}", done.delivered, done.retried);
    Ok(())
}

/// Writes the order and its event in one transaction.
async fn place_order(pool: &SqlitePool, id: i64, paid: bool) -> Result<(), Box<dyn Error>> {
    let mut transaction = begin(pool).await?;
    sqlx::query("insert into orders (id) values (?)")
        .bind(id)
        .execute(&mut *transaction)
        .await?;
    let event = Event::new("shop", "orders")
        .event_type("OrderPlaced")
        .json(&json!({ "id": id }))?;
    Outbox::default().enqueue(&mut transaction, &event).await?;
    if paid {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(())
}
