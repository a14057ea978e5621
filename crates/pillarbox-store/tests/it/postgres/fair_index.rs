//! The index for fair shares is created beside producers and dispatchers at work.

use std::time::Duration;

use pillarbox::Event;
use pillarbox_store::Store;
use pillarbox_store::store::{ClaimRequest, Share, Take};
use pillarbox_store::stores::postgres::Postgres;
use pillarbox_testkit::store_suite::Harness;
use pillarbox_testkit::wait::{TIMEOUT, until};
use sqlx::AssertSqlSafe;

use super::harness::PostgresHarness;
use super::producer::{request, share};

async fn is_valid(harness: &PostgresHarness) -> Option<bool> {
    let sql = harness.sql(
        "select indisvalid from pg_index where indexrelid = to_regclass('pillarbox.outbox_events_fair')",
    );
    let valid = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_optional(&harness.pool);
    valid.await.expect("looks")
}

fn ensure(store: &Postgres) -> tokio::task::JoinHandle<()> {
    let store = store.clone();
    tokio::spawn(async move { store.ensure_fair_index().await.expect("creates") })
}

/// A producer that forgot to end its transaction.
async fn open_transaction(harness: &PostgresHarness) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut open = harness.pool.begin().await.expect("begins");
    let event = Event::new("shop", "orders");
    harness
        .outbox()
        .enqueue(&mut open, &event)
        .await
        .expect("enqueues");
    open
}

#[tokio::test]
async fn an_open_transaction_delays_the_index_and_nothing_else() {
    for harness in [
        PostgresHarness::direct().await,
        PostgresHarness::behind_pgbouncer().await,
    ] {
        let open = open_transaction(&harness).await;
        let creation = ensure(&harness.store);
        until("the index waits for the transaction", async || {
            is_valid(&harness).await == Some(false)
        })
        .await;

        let event = [Event::new("shop", "orders")];
        let enqueue = harness.enqueue(&event);
        let enqueued = tokio::time::timeout(Duration::from_secs(5), enqueue).await;
        enqueued.expect("no producer waits").expect("enqueues");
        let fair = ClaimRequest {
            take: Take::Free(vec![Share {
                fair: true,
                ..share(10)
            }]),
            ..request(0)
        };
        let claimed = tokio::time::timeout(TIMEOUT, harness.store.claim(&fair)).await;
        assert_eq!(claimed.expect("no claim waits").expect("claims").len(), 1);
        assert!(!creation.is_finished());

        open.rollback().await.expect("rolls back");
        creation.await.expect("no panic");
        assert_eq!(is_valid(&harness).await, Some(true));
        harness.clean_up().await;
    }
}

#[tokio::test]
async fn two_daemons_that_start_at_once_create_one_index() {
    let harness = PostgresHarness::direct().await;
    let other = PostgresHarness::beside(&harness);
    let open = open_transaction(&harness).await;
    let creations = [ensure(&harness.store), ensure(&other)];
    until("the index waits for the transaction", async || {
        is_valid(&harness).await == Some(false)
    })
    .await;
    open.rollback().await.expect("rolls back");
    for creation in creations {
        creation.await.expect("no panic");
    }
    assert_eq!(is_valid(&harness).await, Some(true));
    assert!(other.has_fair_index().await.expect("looks"));
    other.close().await;
    harness.clean_up().await;
}

#[tokio::test]
async fn an_invalid_index_is_created_again() {
    let harness = PostgresHarness::direct().await;
    let open = open_transaction(&harness).await;
    let creation = ensure(&harness.store);
    until("the index waits for the transaction", async || {
        is_valid(&harness).await == Some(false)
    })
    .await;
    let cancel = "select count(pg_terminate_backend(pid)) from pg_stat_activity
         where query like '%create index concurrently%' || $1 || '%'";
    let ended: i64 = sqlx::query_scalar(cancel)
        .bind(harness.store.schema())
        .fetch_one(&harness.pool)
        .await
        .expect("ends it");
    assert!(ended >= 1);
    assert!(creation.await.is_err(), "it was interrupted");
    assert_eq!(is_valid(&harness).await, Some(false));
    assert!(!harness.store.has_fair_index().await.expect("looks"));
    open.rollback().await.expect("rolls back");
    harness.store.ensure_fair_index().await.expect("creates");
    assert_eq!(is_valid(&harness).await, Some(true));
    harness.clean_up().await;
}
