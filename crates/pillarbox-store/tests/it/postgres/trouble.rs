//! A database that is unavailable, and callers that give up.

use std::time::Duration;

use pillarbox::{Event, StoreError};
use pillarbox_store::store::{Heartbeat, Settlement};
use pillarbox_store::stores::postgres::{Options, Postgres};
use pillarbox_store::{Scope, Store, Verdict};
use pillarbox_testkit::proxy::Proxy;
use pillarbox_testkit::store_suite::Harness;
use uuid::Uuid;

use super::harness::PostgresHarness;
use super::producer::request;
use pillarbox_testkit::environment::{authority, variable};
use pillarbox_testkit::fixture::Database;
use pillarbox_testkit::wait::{TIMEOUT, until};

#[tokio::test]
async fn a_database_that_is_away_is_unavailable_and_the_error_holds_no_password() {
    let url = "postgres://user:hunter2@127.0.0.1:1/none";
    let store = Postgres::new(url, Options::default()).expect("a URL");
    let error = store.claim(&request(1)).await.expect_err("no server listens");
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
    until("no transaction is open", async || {
        let open: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where state like 'idle in transaction%' and query like $1",
        )
        .bind(format!("%{}%", harness.store.schema()))
        .fetch_one(&harness.pool)
        .await
        .expect("counts");
        open == 0
    })
    .await;
    harness.clean_up().await;
}

#[tokio::test]
async fn a_locked_row_is_skipped_without_waiting() {
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
    holder.rollback().await.expect("rolls back");
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
        ..Heartbeat::default()
    };
    let heartbeat_done = tokio::time::timeout(TIMEOUT, harness.store.heartbeat(&heartbeat)).await;
    heartbeat_done.expect("no wait").expect("a heartbeat");
    let held = [(Uuid::new_v4(), Uuid::new_v4())];
    let renew = harness
        .store
        .renew(heartbeat.worker, &held, Duration::from_secs(60));
    let lost = tokio::time::timeout(TIMEOUT, renew).await;
    assert_eq!(lost.expect("no wait").expect("asked"), [held[0].0]);
    drop(busy);
    harness.clean_up().await;
}

/// After a failover a name may resolve to the old primary for a while, which is read-only by then.
#[tokio::test]
async fn connections_to_a_read_only_server_are_replaced() {
    let database = Database::create("failover").await;
    let store = Postgres::new(&database.url, Options::default()).expect("a URL");
    store.migrate().await.expect("migrates");
    store.close().await;
    let alter = async |change: &str| {
        let statement = format!("alter database {} {change}", database.name);
        database.administer(&statement).await;
    };
    alter("set default_transaction_read_only = on").await;
    let store = Postgres::new(&database.url, Options::default()).expect("a URL");
    let refused = store.claim(&request(1)).await.expect_err("it only reads");
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
    alter("reset default_transaction_read_only").await;
    let claimed = store.claim(&request(1)).await.expect("a new connection writes");
    assert_eq!(claimed.len(), 0);
    store.close().await;
    database.drop().await;
}

/// A host that lost its power or was suspended: its connection stays open in the middle of a settle.
#[tokio::test]
async fn the_rows_of_a_worker_that_went_silent_in_a_transaction_are_released() {
    let harness = PostgresHarness::direct().await;
    harness
        .enqueue(&[Event::new("shop", "orders")])
        .await
        .expect("enqueues");
    // A settle waits until the row of this table is deleted.
    harness
        .execute(
            "create table pillarbox.hold (); insert into pillarbox.hold default values;
             create function pillarbox.wait() returns trigger language plpgsql as $$ begin
               while exists (select from pillarbox.hold) loop perform pg_sleep(0.01); end loop; return new; end $$;
             create trigger wait before update on pillarbox.outbox_events for each row
               when (new.status = 'delivered') execute function pillarbox.wait()",
        )
        .await;
    let url = variable("PILLARBOX_TEST_POSTGRES_URL");
    let network = Proxy::start(authority(&url)).await;
    let options = Options {
        schema: harness.store.schema().to_owned(),
        timeout: Duration::from_secs(18),
        ..Options::default()
    };
    let far = network.url(&url);
    let silent = Postgres::new(&far, options).expect("a URL");
    let request = request(1);
    let held = silent.claim(&request).await.expect("claims").remove(0);
    let settlement = Settlement {
        id: held.id,
        claim: held.claim,
        verdict: Verdict::Delivered,
        destination: Some("d".into()),
        max_attempts: None,
        unordered: false,
        keep: true,
    };
    let settling = tokio::spawn(async move { silent.settle(request.worker, &[settlement]).await });

    settle_is(&harness, Some("waiting")).await;
    network.black_hole();
    harness.execute("delete from pillarbox.hold").await;
    settle_is(&harness, Some("idle in transaction")).await;
    assert_eq!(free(&harness).await, None, "it holds its row");
    settle_is(&harness, None).await;
    assert_eq!(free(&harness).await.as_deref(), Some("processing"), "as it was");
    let answer = settling.await.expect("ends");
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    harness.clean_up().await;
}

/// Waits until the session that settles is in this state.
async fn settle_is(harness: &PostgresHarness, expected: Option<&str>) {
    let what = format!("the settle is {expected:?}");
    until(&what, async || {
        let found: Option<String> = sqlx::query_scalar(
            "select case wait_event when 'PgSleep' then 'waiting' else state end from pg_stat_activity
             where application_name = 'pillarbox' and state <> 'idle' and query like $1",
        )
        .bind(format!("%{}%", harness.store.schema()))
        .fetch_optional(&harness.pool)
        .await
        .expect("looks");
        found.as_deref() == expected
    })
    .await;
}

/// The state of the row, if no session locks it.
async fn free(harness: &PostgresHarness) -> Option<String> {
    let select = harness.sql("select status from pillarbox.outbox_events for update skip locked");
    let status = sqlx::query_scalar(sqlx::AssertSqlSafe(select)).fetch_optional(&harness.pool);
    status.await.expect("looks")
}
