//! Quotas of roles and tenants, by roles that have their duty only.

mod counting;
mod rejecting;
mod setting;

use std::time::Duration;

use pillarbox::{Delivery, EnqueueError, Event};
use pillarbox_store::quotas::{Counted, Holder};
use pillarbox_store::store::{Heartbeat, Settlement};
use pillarbox_store::stores::postgres::{Duty, Postgres};
use pillarbox_store::{Store, Verdict};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::harness::PostgresHarness;
use super::privileges::{drop_role, on_duty};
use super::producer::request;

const TENANT: Uuid = Uuid::from_u128(0x0190_c2a4_8f4e_7c3a_9d51_0f2b_6d1c_7e5a);
const OTHER_TENANT: Uuid = Uuid::from_u128(0x0190_c2a4_8f4e_7c3a_9d51_0f2b_6d1c_7e5b);

/// An outbox with one role of each duty that has to do with quotas.
struct Shop {
    harness: PostgresHarness,
    producer: (String, Postgres),
    writer: (String, Postgres),
    dispatcher: (String, Postgres),
    worker: Uuid,
}

impl Shop {
    async fn open() -> Self {
        let harness = PostgresHarness::direct().await;
        let shop = Self {
            producer: on_duty(&harness, Duty::Producer).await,
            writer: on_duty(&harness, Duty::Writer).await,
            dispatcher: on_duty(&harness, Duty::Dispatcher).await,
            worker: Uuid::new_v4(),
            harness,
        };
        shop.start(shop.worker).await;
        shop
    }

    /// Registers a worker.
    async fn start(&self, worker: Uuid) {
        let heartbeat = Heartbeat {
            worker,
            ttl: Duration::from_secs(60),
            ..Heartbeat::default()
        };
        self.dispatcher.1.heartbeat(&heartbeat).await.expect("starts");
    }

    async fn set(&self, holder: &Holder, max_pending: u64) {
        let set = self.harness.store.set_quota(&OPERATOR, holder, max_pending).await;
        set.expect("sets the quota");
    }

    /// Counts all quotas, as five seconds later.
    async fn count(&self) -> Counted {
        self.age(5).await;
        let mut all = Counted::default();
        loop {
            let counted = self.dispatcher.1.count_quotas(self.worker, all.after.as_ref());
            let counted = counted.await.expect("counts").expect("PostgreSQL has quotas");
            all.exceeded.extend(counted.exceeded);
            all.within.extend(counted.within);
            all.after = counted.after;
            if all.after.is_none() {
                return all;
            }
        }
    }

    /// So many seconds pass for the counts.
    async fn age(&self, seconds: u32) {
        let age = format!("update pillarbox.over_quota set counted_at = counted_at - interval '{seconds} s'");
        self.harness.execute(&age).await;
    }

    /// Enqueues so many events by plain INSERT.
    async fn insert(&self, events: u32, tenant: Option<Uuid>) -> Result<(), sqlx::Error> {
        insert(&self.harness, &self.writer.1, events, tenant).await
    }

    /// Delivers everything.
    async fn deliver(&self) {
        let store = &self.dispatcher.1;
        let request = request(1000);
        let claimed = store.claim(&request).await.expect("claims");
        let settlements: Vec<Settlement> = claimed.iter().map(delivered).collect();
        let lost = store.settle(request.worker, &settlements).await.expect("settles");
        assert!(lost.is_empty() && !settlements.is_empty());
    }

    async fn close(self) {
        for (role, store) in [self.producer, self.writer, self.dispatcher] {
            store.close().await;
            drop_role(&self.harness, &role).await;
        }
        self.harness.clean_up().await;
    }
}

fn delivered(row: &Delivery) -> Settlement {
    Settlement {
        id: row.id,
        claim: row.claim,
        verdict: Verdict::Delivered,
        destination: Some("d".into()),
        max_attempts: None,
        unordered: false,
        keep: true,
    }
}

async fn insert(
    harness: &PostgresHarness,
    store: &Postgres,
    events: u32,
    tenant: Option<Uuid>,
) -> Result<(), sqlx::Error> {
    let sql = "insert into pillarbox.outbox_events (namespace, topic, tenant_id, payload)
         select 'shop', 'orders', $1, '{}' from generate_series(1, $2)";
    sqlx::query(AssertSqlSafe(harness.sql(sql)))
        .bind(tenant)
        .bind(i64::from(events))
        .execute(&store.pool())
        .await?;
    Ok(())
}

async fn enqueue(store: &Postgres, outbox: &pillarbox::Outbox, events: &[Event]) -> Result<(), EnqueueError> {
    let mut connection = store.pool().acquire().await.expect("connects");
    outbox.enqueue_all(&mut *connection, events).await?;
    Ok(())
}

fn event() -> Event {
    Event::new("shop", "orders")
}

/// Asserts that the database has rejected it for a quota, and returns the message.
fn rejected<T: std::fmt::Debug>(answer: Result<T, sqlx::Error>) -> String {
    let error = answer.expect_err("is over its quota");
    let error = error.as_database_error().expect("by the database");
    assert_eq!(error.code().as_deref(), Some("PBQ01"), "{error}");
    error.message().to_owned()
}
