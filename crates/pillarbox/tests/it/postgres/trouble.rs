//! A database that is away, and callers that give up.

use std::time::Duration;

use pillarbox::store::Heartbeat;
use pillarbox::stores::postgres::{Options, Postgres};
use pillarbox::{Event, Scope, Store, StoreError};
use pillarbox_testkit::store_suite::Harness;
use uuid::Uuid;

use super::harness::PostgresHarness;
use super::producer::request;

/// How long a fact may take to show itself on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_database_that_is_away_is_unavailable_and_the_error_holds_no_password() {
    let url = "postgres://user:hunter2@127.0.0.1:1/none";
    let store = Postgres::new(url, Options::default()).expect("a URL");
    let error = store.claim(&request(1)).await.expect_err("nobody is there");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_url_that_cannot_be_read_says_so() {
    let error = Postgres::new("postgres://[", Options::default()).expect_err("not a URL");
    assert!(error.to_string().contains("URL"), "{error}");
}

#[tokio::test]
async fn a_caller_that_gives_up_leaves_no_transaction_open() {
    let harness = PostgresHarness::direct().await;
    harness
        .enqueue(&[Event::new("shop", "orders")])
        .await
        .expect("enqueues");
    for microseconds in (0..3000).step_by(100) {
        let request = request(10);
        let claim = harness.store.claim(&request);
        let given_up = tokio::time::timeout(Duration::from_micros(microseconds), claim).await;
        drop(given_up);
    }
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let open: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where state like 'idle in transaction%' and query like $1",
        )
        .bind(format!("%{}%", harness.store.schema()))
        .fetch_one(&harness.pool)
        .await
        .expect("counts");
        if open == 0 {
            break;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "{open} transactions are open"
        );
        tokio::task::yield_now().await;
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn a_row_that_somebody_holds_locked_is_skipped_not_waited_for() {
    let harness = PostgresHarness::direct().await;
    let events = [Event::new("shop", "orders"), Event::new("shop", "orders")];
    harness.enqueue(&events).await.expect("enqueues");
    let mut holder = harness.pool.begin().await.expect("begins");
    let lock = harness.sql("select 1 from pillarbox.outbox_events where id = $1 for update");
    sqlx::query(sqlx::AssertSqlSafe(lock))
        .bind(events[0].id)
        .execute(&mut *holder)
        .await
        .expect("locks");
    let claimed = harness.store.claim(&request(10)).await.expect("does not wait");
    assert_eq!(
        claimed.iter().map(|delivery| delivery.id).collect::<Vec<_>>(),
        [events[1].id]
    );
    holder.rollback().await.expect("lets go");
    assert_eq!(harness.store.claim(&request(10)).await.expect("claims").len(), 1);
    harness.clean_up().await;
}

#[tokio::test]
async fn a_heartbeat_and_a_renewal_do_not_wait_for_connections_that_are_all_in_use() {
    let harness = PostgresHarness::direct().await;
    let pool = harness.store.pool();
    let mut busy = Vec::new();
    for _ in 0..6 {
        busy.push(pool.acquire().await.expect("a connection of the pool"));
    }
    assert!(pool.try_acquire().is_none(), "all are in use");
    let heartbeat = Heartbeat {
        worker: Uuid::new_v4(),
        host: "here".into(),
        version: "1".into(),
        scope: Scope::All,
        ttl: Duration::from_secs(15),
        claimed: 0,
        delivered: 0,
        failed: 0,
    };
    let beat = tokio::time::timeout(PATIENCE, harness.store.beat(&heartbeat)).await;
    beat.expect("no wait").expect("said");
    let held = [(Uuid::new_v4(), Uuid::new_v4())];
    let renew = harness
        .store
        .renew(heartbeat.worker, &held, Duration::from_secs(60));
    let lost = tokio::time::timeout(PATIENCE, renew).await;
    assert_eq!(lost.expect("no wait").expect("asked"), [held[0].0]);
    drop(busy);
    harness.clean_up().await;
}
