//! Handlers that never return, with real brokers and a real database.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox::{Event, RetryPolicy};
use pillarbox_consume::{Consumer, Handler, HandlerError, Received};
use pillarbox_testkit::wait::until;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, PgTransaction};
use tokio::sync::Semaphore;

use crate::ledger::{Entry, Ledger, WriteEntry, entry};
use crate::running::{HoldInHandler, Running};

/// Hangs for events with the number 0, this many times.
struct Hang {
    left: AtomicUsize,
    hung: Arc<AtomicUsize>,
    write_entry: WriteEntry,
}

impl Hang {
    fn consumer(ledger: &Ledger, times: usize) -> (Consumer<PgPool>, Arc<AtomicUsize>) {
        let hung = Arc::new(AtomicUsize::new(0));
        let handler = Self {
            left: AtomicUsize::new(times),
            hung: hung.clone(),
            write_entry: ledger.write_entry(),
        };
        let consumer = Consumer::new("ledger", ledger.pool.clone())
            .inbox(ledger.inbox())
            .concurrency(1)
            .retry(RetryPolicy::steps(vec![Duration::from_millis(5)]).max_attempts(2))
            .on("EntryMade", 1, handler);
        (consumer, hung)
    }
}

impl Handler<PgTransaction<'static>, Entry> for Hang {
    async fn handle(
        &self,
        transaction: &mut PgTransaction<'static>,
        event: Received<Entry>,
    ) -> Result<(), HandlerError> {
        let less = |left: usize| left.checked_sub(1);
        let number = event.body.number;
        self.write_entry.handle(transaction, event).await?;
        let left = |_| self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        if number == 0 && left(()).is_ok() {
            self.hung.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// The key, the slot and the partition go on after the last attempt.
fn events() -> [Event; 3] {
    [entry("z", 0), entry("z", 1), entry("a", 2)]
}

const REASON: &str = "timeout: handler did not finish within 500ms";

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_handler_becomes_a_dead_letter_on_rabbitmq() {
    let (ledger, broker) = (Ledger::create().await, crate::rabbitmq::Broker::fresh().await);
    let (consumer, _) = Hang::consumer(&ledger, usize::MAX);
    let running = Running::start(consumer.timeout(Duration::from_millis(500)), broker.config());
    broker.until_consumed().await;
    broker.publish(&events()).await;
    until("the others are handled", || async { ledger.len().await == 2 }).await;
    until("everything is acknowledged", || async {
        broker.waiting(&broker.dead_queue()).await == Some(1)
    })
    .await;
    let counts = running.stop().await;
    assert_eq!((counts.timed_out, counts.dead, counts.handled), (2, 1, 2));
    assert_eq!(ledger.account("z").await, [1], "what was written is rolled back");
    assert_eq!(broker.reasons().await, [REASON]);
    assert_eq!(broker.waiting(&broker.queue).await, Some(0));
    ledger.drop().await;
    broker.clean_up().await;
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_lost_while_a_handler_hangs_stops_no_key() {
    let (ledger, broker) = (Ledger::create().await, crate::rabbitmq::Broker::fresh().await);
    let proxy = crate::rabbitmq::behind_a_proxy().await;
    let (consumer, hung) = Hang::consumer(&ledger, 1);
    let config = broker.config_at(&crate::rabbitmq::url_of(&proxy));
    let running = Running::start(consumer.timeout(Duration::from_secs(3)), config);
    broker.until_consumed().await;
    broker.publish(&events()).await;
    until("it hangs", || async { hung.load(Ordering::SeqCst) == 1 }).await;
    proxy.cut();
    until("all are handled", || async { ledger.len().await == 3 }).await;
    let counts = running.stop().await;
    assert_eq!((counts.timed_out, counts.dead), (1, 0));
    assert_eq!(ledger.account("z").await, [0, 1], "in order and once");
    ledger.drop().await;
    broker.clean_up().await;
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_handler_becomes_a_dead_letter_on_kafka() {
    let (ledger, broker) = (Ledger::create().await, crate::kafka::Broker::fresh().await);
    let (consumer, _) = Hang::consumer(&ledger, usize::MAX);
    let running = Running::start(consumer.timeout(Duration::from_millis(500)), broker.config());
    broker.publish(&events()).await;
    until("the others are handled", || async { ledger.len().await == 2 }).await;
    until("the partition is committed", || async {
        broker.consumer_lag().await == 0
    })
    .await;
    let counts = running.stop().await;
    assert_eq!((counts.timed_out, counts.dead, counts.handled), (2, 1, 2));
    assert_eq!(ledger.account("z").await, [1]);
    assert_eq!(broker.dead().await.len(), 1);
    ledger.drop().await;
    broker.clean_up().await;
}

/// Waits for a lock that the test holds.
struct AwaitLock(WriteEntry);

impl Handler<PgTransaction<'static>, Entry> for AwaitLock {
    async fn handle(
        &self,
        transaction: &mut PgTransaction<'static>,
        event: Received<Entry>,
    ) -> Result<(), HandlerError> {
        if event.body.number == 0 {
            let lock = sqlx::query("select pg_advisory_xact_lock(hashtext($1))").bind(&event.body.account);
            lock.execute(&mut **transaction).await?;
        }
        self.0.handle(transaction, event).await
    }
}

/// PostgreSQL would go on with a statement whose handler was cancelled, and its connection would be missing in the pool.
#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_for_a_lock_ends_before_its_handler_is_cancelled() {
    let (ledger, broker) = (Ledger::create().await, crate::rabbitmq::Broker::fresh().await);
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect_lazy_with(ledger.login());
    let account = ledger.schema.clone();
    let mut holder = ledger.owner.begin().await.unwrap();
    let lock = sqlx::query("select pg_advisory_xact_lock(hashtext($1))").bind(&account);
    lock.execute(&mut *holder).await.unwrap();
    let consumer = Consumer::new("ledger", pool.clone())
        .inbox(ledger.inbox())
        .concurrency(1)
        .timeout(Duration::from_secs(2))
        .retry(RetryPolicy::steps(vec![Duration::from_millis(5)]).max_attempts(6))
        .on("EntryMade", 1, AwaitLock(ledger.write_entry()));
    let running = Running::start(consumer, broker.config());
    broker.until_consumed().await;
    broker.publish(&[entry(&account, 0), entry(&account, 1)]).await;
    until("the key goes on", || async { ledger.len().await == 1 }).await;
    let counts = running.stop().await;
    assert_eq!((counts.dead, counts.timed_out), (1, 0), "{counts:?}");
    holder.rollback().await.unwrap();
    pool.close().await;
    ledger.drop().await;
    broker.clean_up().await;
}

pub(crate) const LARGE: usize = 256 * 1024;

/// Events without a key, of 256 KiB each.
pub(crate) fn large(count: i64) -> Vec<Event> {
    let body = |number| serde_json::json!({ "account": "a", "number": number, "pad": "x".repeat(LARGE) });
    let event = |number| {
        let event = Event::new("bank", "entries").event_type("EntryMade");
        event.json(&body(number)).unwrap()
    };
    (0..count).map(event).collect()
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread")]
async fn messages_in_flight_are_bounded_in_bytes_on_rabbitmq() {
    let (ledger, broker) = (Ledger::create().await, crate::rabbitmq::Broker::fresh().await);
    let permits = Arc::new(Semaphore::new(0));
    let (consumer, _) = HoldInHandler::consumer(&ledger, &permits);
    let config = broker.config().max_in_flight_bytes(4 * LARGE + 8 * 1024);
    let running = Running::start(consumer.concurrency(2), config);
    broker.until_consumed().await;
    broker.publish(&large(64)).await;
    until("the broker keeps the others", || async {
        broker.waiting(&broker.queue).await == Some(60)
    })
    .await;
    permits.add_permits(1000);
    until("all are handled", || async { ledger.len().await == 64 }).await;
    running.stop().await;
    let numbers = ledger.account("a").await;
    assert_eq!(numbers.len(), 64, "once");
    ledger.drop().await;
    broker.clean_up().await;
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread")]
async fn records_in_flight_are_bounded_in_bytes_on_kafka() {
    let (ledger, broker) = (Ledger::create().await, crate::kafka::Broker::fresh().await);
    let permits = Arc::new(Semaphore::new(0));
    let (consumer, inside) = HoldInHandler::consumer(&ledger, &permits);
    let counters = consumer.counters();
    let config = broker.config().max_in_flight_bytes(4 * LARGE + 8 * 1024);
    let running = Running::start(consumer.concurrency(8), config);
    broker.publish(&large(64)).await;
    until("the limit is reached", || async {
        inside.load(Ordering::SeqCst) == 4
    })
    .await;
    for number in 1..=64 {
        permits.add_permits(1);
        until("one more is handled", || async {
            let counts = counters.snapshot();
            assert!(counts.received - counts.handled <= 5, "{counts:?}"); // one is being dropped
            counts.handled == number
        })
        .await;
    }
    running.stop().await;
    assert_eq!(ledger.len().await, 64);
    ledger.drop().await;
    broker.clean_up().await;
}
