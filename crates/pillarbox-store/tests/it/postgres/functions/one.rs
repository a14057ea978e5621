//! `pillarbox.enqueue`: the written row and the result.

use pillarbox::{Clock, Enqueued, Event, SystemClock};
use pillarbox_store::Store;
use pillarbox_testkit::store_suite::Harness;
use serde_json::Value;
use sqlx::AssertSqlSafe;
use time::Duration;
use uuid::Uuid;

use super::super::harness::PostgresHarness;
use super::super::producer::request;
use super::{enqueue, enqueue_many};
use pillarbox_testkit::environment::variable;

/// Events that say everything there is to say, as JSON and as bytes.
fn talkative() -> Vec<Event> {
    let tenant = Uuid::from_u128(42);
    let event = Event::new("shop", "orders")
        .event_type("OrderCreated")
        .version(7)
        .aggregate("order", "42")
        .tenant(tenant)
        .dedupe_key(format!("{tenant}/42"))
        .severity("high")
        .header("source", "web")
        .header("grüße", "\"世界\"")
        .destination("broker");
    let keyed = event.clone().id(Uuid::now_v7()).ordering_key("order-42");
    // PostgreSQL counts microseconds; who rounds a finer time is of no interest here.
    let soon = (SystemClock.wall() + Duration::days(3)).replace_microsecond(500);
    let scheduled = event.deliver_at(soon.expect("a time"));
    vec![
        keyed
            .clone()
            .json_text(r#"{"total": "19.90", "lines": [1, 2.50, null]}"#),
        keyed.clone().json_text("null"),
        keyed.bytes(&b"\x00\xff\x1f"[..], "application/octet-stream"),
        scheduled,
        Event::new("shop", "orders"),
    ]
}

/// The one row that is there, without what the clock and the sequence say.
async fn take_row(harness: &PostgresHarness) -> Value {
    let row = "delete from pillarbox.outbox_events e
        returning to_jsonb(e) - '{seq, created_at, updated_at}'::text[]
          || jsonb_build_object('waits', next_attempt_at > created_at,
            'next_attempt_at', case when next_attempt_at > created_at then next_attempt_at end)";
    sqlx::query_scalar(AssertSqlSafe(harness.sql(row)))
        .fetch_one(&harness.pool)
        .await
        .expect("one row")
}

#[tokio::test]
async fn the_functions_write_the_row_that_the_library_writes() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    for event in talkative() {
        let new = harness.outbox().enqueue(&mut connection, &event).await;
        assert_eq!(new.expect("enqueues"), Enqueued::New(event.id));
        let row = take_row(&harness).await;
        let new = enqueue(&harness, &mut connection, &event).await;
        assert_eq!(new.expect("enqueues"), Enqueued::New(event.id));
        assert_eq!(take_row(&harness).await, row);
        let new = enqueue_many(&harness, &mut connection, std::slice::from_ref(&event)).await;
        assert_eq!(new.expect("enqueues"), [Enqueued::New(event.id)]);
        assert_eq!(take_row(&harness).await, row);
    }
    drop(connection);
    harness.clean_up().await;
}

#[tokio::test]
async fn an_event_needs_no_more_than_a_namespace_and_a_topic() {
    let harness = PostgresHarness::direct().await;
    harness
        .execute("select pillarbox.enqueue('shop', 'orders')")
        .await;
    let nothing =
        "select pillarbox.enqueue('shop', 'orders', null, null, null, null, null, null, null, null, null,
        null, null, null, null, null, null, null, null)";
    harness.execute(nothing).await;
    let claimed = harness.store.claim(&request(10)).await.expect("claims");
    assert_eq!(claimed.len(), 2, "what is null is as if it were not given");
    for delivery in claimed {
        assert_eq!(delivery.event, Event::new("shop", "orders").id(delivery.id));
        assert_eq!(delivery.id.get_version_num(), 7);
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn a_second_event_with_the_key_is_not_new_and_has_the_id_of_the_first() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let first = Event::new("shop", "orders").dedupe_key("order-42/created");
    let second = first.clone().id(Uuid::now_v7());
    let enqueued = enqueue(&harness, &mut connection, &first).await;
    assert_eq!(enqueued.expect("enqueues"), Enqueued::New(first.id));
    let enqueued = enqueue(&harness, &mut connection, &second).await;
    assert_eq!(enqueued.expect("enqueues"), Enqueued::Duplicate(first.id));
    let by_rust = harness.outbox().enqueue(&mut connection, &second).await;
    assert_eq!(by_rust.expect("enqueues"), Enqueued::Duplicate(first.id));
    let elsewhere = Event::new("shop", "invoices").dedupe_key("order-42/created");
    let enqueued = enqueue(&harness, &mut connection, &elsewhere).await;
    assert!(
        enqueued.expect("enqueues").is_new(),
        "another topic has its own keys"
    );
    drop(connection);
    harness.clean_up().await;
}

#[tokio::test]
async fn an_id_that_is_taken_is_a_unique_violation() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let event = Event::new("shop", "orders");
    enqueue(&harness, &mut connection, &event).await.expect("new");
    let one = enqueue(&harness, &mut connection, &event).await.map(|_| ());
    let twice = [Event::new("shop", "orders"), event];
    let many = enqueue_many(&harness, &mut connection, &twice).await.map(|_| ());
    for answer in [one, many] {
        let error = answer.expect_err("the id is taken");
        let code = error.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some("23505"), "{error}");
    }
    drop(connection);
    harness.clean_up().await;
}

#[tokio::test]
async fn a_rolled_back_event_is_not_enqueued() {
    let harness = PostgresHarness::direct().await;
    let [kept, undone, lost] = [(); 3].map(|()| Event::new("shop", "orders"));
    let mut transaction = harness.pool.begin().await.expect("begins");
    enqueue(&harness, &mut transaction, &kept)
        .await
        .expect("enqueues");
    let mut savepoint = sqlx::Acquire::begin(&mut *transaction)
        .await
        .expect("a savepoint");
    enqueue_many(&harness, &mut savepoint, std::slice::from_ref(&undone))
        .await
        .expect("enqueues");
    // What is refused ends the transaction, and a savepoint saves it.
    let refused = enqueue(&harness, &mut savepoint, &Event::new("shop", "")).await;
    super::refused(refused);
    savepoint.rollback().await.expect("rolls back");
    transaction.commit().await.expect("commits");

    let mut transaction = harness.pool.begin().await.expect("begins");
    enqueue(&harness, &mut transaction, &lost)
        .await
        .expect("enqueues");
    transaction.rollback().await.expect("rolls back");
    let claimed = harness.store.claim(&request(10)).await.expect("claims");
    let ids: Vec<Uuid> = claimed.iter().map(|delivery| delivery.id).collect();
    assert_eq!(ids, [kept.id]);
    harness.clean_up().await;
}

#[tokio::test]
async fn both_functions_work_behind_pgbouncer() {
    let harness = PostgresHarness::direct().await;
    let pool = sqlx::PgPool::connect_lazy(&variable("PILLARBOX_TEST_PGBOUNCER_URL")).expect("a URL");
    let mut transaction = pool.begin().await.expect("begins");
    let event = || Event::new("shop", "orders").dedupe_key("k");
    let one = enqueue(&harness, &mut transaction, &event()).await;
    assert!(one.expect("enqueues").is_new());
    let many = enqueue_many(
        &harness,
        &mut transaction,
        &[event(), Event::new("shop", "orders")],
    )
    .await;
    let many: Vec<bool> = many
        .expect("enqueues")
        .into_iter()
        .map(Enqueued::is_new)
        .collect();
    assert_eq!(many, [false, true]);
    transaction.commit().await.expect("commits");
    assert_eq!(harness.store.claim(&request(10)).await.expect("claims").len(), 2);
    harness.clean_up().await;
}
