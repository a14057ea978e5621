//! The shop: a plain application. It commits an order and its events in one transaction and leaves the delivery to the
//! dispatcher.

use std::sync::atomic::{AtomicU32, Ordering};

use pillarbox::{Event, Outbox, StoreError, Wake};
use pillarbox_store::stores::sqlite;
use serde_json::json;
use sqlx::SqlitePool;

use super::report::print;
use crate::database::producer;
use crate::failure::Failure;

const ORDERS: &str =
    "create table if not exists orders (id integer primary key, item text not null, cents integer not null)";
const ITEMS: [(&str, u32); 4] = [
    ("espresso beans", 1290),
    ("a moka pot", 3450),
    ("two cups", 1800),
    ("a grinder", 8900),
];

/// The shop's database and its order counter.
pub(super) struct Shop {
    orders: SqlitePool,
    outbox: Outbox,
    wake: Wake,
    next: AtomicU32,
}

impl Shop {
    /// Opens the shop and continues with the next order number.
    pub(super) async fn open(path: &str, wake: Wake) -> Result<Self, Failure> {
        let orders = producer(path, &sqlite::Options::default())?;
        let mut transaction = sqlite::begin(&orders).await?;
        sqlx::query(ORDERS)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        let last: u32 = sqlx::query_scalar("select coalesce(max(id), 0) from orders")
            .fetch_one(&mut *transaction)
            .await
            .map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(Self {
            orders,
            outbox: Outbox::default(),
            wake,
            next: AtomicU32::new(last + 1),
        })
    }

    /// Takes one order: commits the order and its events, or neither.
    pub(super) async fn take_order(&self) -> Result<(), Failure> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (item, cents) = ITEMS[number as usize % ITEMS.len()];
        let mut transaction = sqlite::begin(&self.orders).await?;
        sqlx::query("insert into orders (id, item, cents) values (?, ?, ?)")
            .bind(number)
            .bind(item)
            .bind(cents)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        let events = events(number, item, cents)?;
        self.outbox.enqueue_all(&mut transaction, &events).await?;
        if number % 10 == 4 {
            transaction.rollback().await.map_err(failed)?;
            print(&format!(
                "order {number} rolled back: card declined; its event was rolled back too"
            ));
            return Ok(());
        }
        transaction.commit().await.map_err(failed)?;
        print(&format!("order {number} committed: {item}"));
        self.wake.notify(); // after the commit, when the events are visible
        Ok(())
    }
}

/// Every order has an event for the receiver, every third one also for the log.
fn events(number: u32, item: &str, cents: u32) -> Result<Vec<Event>, Failure> {
    let about = |topic: &str, kind: &str| {
        Event::new("shop", topic)
            .event_type(kind)
            .aggregate("order", number.to_string())
            .ordering_key(format!("order-{number}"))
            .dedupe_key(format!("order-{number}/{kind}"))
            .json(&json!({ "order": number, "item": item, "cents": cents }))
            .map_err(|error| Failure::failed(error.to_string()))
    };
    let mut events = vec![about("orders", "OrderPlaced")?];
    if number % 3 == 1 {
        events.push(about("parcels", "ParcelPacked")?);
    }
    Ok(events)
}

fn failed(error: sqlx::Error) -> StoreError {
    StoreError::Other(error.to_string())
}
