//! A database that is away, and callers that give up.

use std::time::Duration;

use pillarbox::stores::postgres::{Options, Postgres};
use pillarbox::{Event, Store, StoreError};
use pillarbox_testkit::store_suite::Harness;

use super::harness::PostgresHarness;
use super::producer::request;

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
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
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
