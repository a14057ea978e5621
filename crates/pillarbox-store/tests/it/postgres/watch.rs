//! A watch on PostgreSQL: open transactions, lost connections, poolers.

use std::time::Duration;

use pillarbox::{Event, StoreError};
use pillarbox_store::Store;
use pillarbox_store::store::{Change, Watch};
use pillarbox_store::stores::postgres::{Options, Postgres};
use pillarbox_testkit::environment::{authority, variable};
use pillarbox_testkit::proxy::Proxy;
use pillarbox_testkit::store_suite::Harness;
use pillarbox_testkit::wait::until;

use super::harness::PostgresHarness;

fn event() -> [Event; 1] {
    [Event::new("shop", "orders")]
}

async fn watch(store: &Postgres) -> Box<dyn Watch> {
    let watch = store.watch().await.expect("the database answers");
    watch.expect("a direct connection")
}

async fn next(watch: &mut dyn Watch, until_ended: bool) -> Change {
    watch.next(until_ended).await.expect("the database answers")
}

#[tokio::test]
async fn an_open_transaction_is_reported_when_it_enqueues_and_when_it_ends() {
    let harness = PostgresHarness::direct().await;
    let mut watch = watch(&harness.store).await;
    let mut transaction = harness.begin().await;
    transaction.enqueue(&event()).await.expect("enqueues");
    assert_eq!(next(&mut *watch, false).await, Change::Begun(1));
    assert_eq!(next(&mut *watch, true).await, Change::Nothing, "it has not ended");
    transaction.commit().await;
    // Transactions of other tests may be open as well.
    while next(&mut *watch, true).await != Change::Ended {}
    harness.clean_up().await;
}

#[tokio::test]
async fn a_watch_that_sees_nothing_returns_after_two_seconds_and_holds_no_snapshot() {
    let harness = PostgresHarness::direct().await;
    let mut watch = watch(&harness.store).await;
    let waiting = tokio::spawn(async move { next(&mut *watch, false).await });
    // A long statement would show one old snapshot all the time.
    let mut seen = std::collections::HashSet::new();
    until("its snapshot was renewed", async || {
        let snapshot: Option<String> = sqlx::query_scalar(
            "select xact_start::text from pg_stat_activity where query like $1 and pid <> pg_backend_pid()",
        )
        .bind(format!("%call \"{}\".wait%", harness.store.schema()))
        .fetch_optional(&harness.pool)
        .await
        .expect("the database answers")
        .flatten();
        seen.extend(snapshot);
        seen.len() > 2 || waiting.is_finished()
    })
    .await;
    assert!(seen.len() > 2, "{seen:?}");
    assert_eq!(waiting.await.expect("no panic"), Change::Nothing);
    harness.clean_up().await;
}

#[tokio::test]
async fn a_watch_ends_before_a_short_timeout_of_statements() {
    let harness = PostgresHarness::direct().await;
    let options = Options {
        schema: harness.store.schema().to_owned(),
        timeout: Duration::from_millis(1500),
        ..Options::default()
    };
    let server = variable("PILLARBOX_TEST_POSTGRES_URL");
    let store = Postgres::new(&server, options).expect("a sound URL");
    assert_eq!(next(&mut *watch(&store).await, false).await, Change::Nothing);
    harness.clean_up().await;
}

#[tokio::test]
async fn a_watch_whose_connection_is_lost_fails_and_the_next_one_works() {
    let harness = PostgresHarness::direct().await;
    let server = variable("PILLARBOX_TEST_POSTGRES_URL");
    let proxy = Proxy::start(authority(&server)).await;
    let options = Options {
        schema: harness.store.schema().to_owned(),
        ..Options::default()
    };
    let store = Postgres::new(&proxy.url(&server), options).expect("a sound URL");
    let mut first = watch(&store).await;
    let waiting = tokio::spawn(async move { first.next(false).await });
    proxy.cut();
    let lost = waiting.await.expect("no panic");
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    let mut second = watch(&store).await;
    harness.enqueue(&event()).await.expect("enqueues");
    assert_eq!(next(&mut *second, false).await, Change::Begun(1));
    harness.clean_up().await;
}

#[tokio::test]
async fn a_dropped_watch_leaves_the_server_within_seconds() {
    let harness = PostgresHarness::direct().await;
    let mut watch = watch(&harness.store).await;
    let waiting = tokio::spawn(async move { watch.next(false).await });
    let waits = async || {
        let count: i64 = sqlx::query_scalar("select count(*) from pg_stat_activity where query like $1")
            .bind(format!("%call \"{}\".wait%", harness.store.schema()))
            .fetch_one(&harness.pool)
            .await
            .expect("the database answers");
        count
    };
    until("it waits", async || waits().await == 1).await;
    waiting.abort();
    until("it has gone", async || waits().await == 0).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn a_watch_behind_a_transaction_pooler_is_refused() {
    let harness = PostgresHarness::behind_pgbouncer().await;
    assert!(harness.store.watch().await.expect("the pooler answers").is_none());
    harness.clean_up().await;
}
