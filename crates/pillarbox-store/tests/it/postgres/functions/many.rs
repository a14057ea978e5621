//! `pillarbox.enqueue_many`: an array, its order and its errors.

use pillarbox::{Enqueued, Event, Payload};
use pillarbox_store::Store;
use pillarbox_testkit::store_suite::Harness;
use serde_json::{Value, json};
use sqlx::Connection;
use uuid::Uuid;

use super::super::harness::PostgresHarness;
use super::super::producer::request;
use super::{enqueue, enqueue_json, enqueue_many, refused};

#[tokio::test]
async fn the_order_of_the_array_is_the_order_of_the_rows() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let events: Vec<Event> = (0..500)
        .map(|n| Event::new("shop", "orders").dedupe_key(format!("{:03}", n * 7919 % 500)))
        .collect();
    let enqueued = enqueue_many(&harness, &mut connection, &events).await;
    let expected: Vec<Enqueued> = events.iter().map(|event| Enqueued::New(event.id)).collect();
    assert_eq!(enqueued.expect("enqueues"), expected);
    drop(connection);
    let claimed = harness.store.claim(&request(1000)).await.expect("claims");
    assert!(
        claimed
            .iter()
            .map(|delivery| delivery.id)
            .eq(events.iter().map(|event| event.id))
    );
    harness.clean_up().await;
}

#[tokio::test]
async fn ten_thousand_events_go_in_by_one_call() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let events: Vec<Event> = (0..10_000)
        .map(|n| Event::new("shop", "orders").dedupe_key((n % 9_999).to_string()))
        .collect();
    let enqueued = enqueue_many(&harness, &mut connection, &events)
        .await
        .expect("enqueues");
    assert_eq!(enqueued.iter().filter(|one| one.is_new()).count(), 9_999);
    assert_eq!(enqueued[9_999], Enqueued::Duplicate(events[0].id));
    drop(connection);
    harness.clean_up().await;
}

#[tokio::test]
async fn a_duplicate_in_one_call_is_new_once() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let with = |key: &str| Event::new("shop", "orders").dedupe_key(key);
    let before = with("before");
    enqueue(&harness, &mut connection, &before)
        .await
        .expect("enqueues");
    let events = [with("twice"), with("once"), with("twice"), with("before")];
    let enqueued = enqueue_many(&harness, &mut connection, &events).await;
    assert_eq!(
        enqueued.expect("enqueues"),
        [
            Enqueued::New(events[0].id),
            Enqueued::New(events[1].id),
            Enqueued::Duplicate(events[0].id),
            Enqueued::Duplicate(before.id),
        ]
    );
    drop(connection);
    harness.clean_up().await;
}

#[tokio::test]
async fn an_empty_array_does_nothing() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let enqueued = enqueue_json(&harness, &mut connection, &json!([])).await;
    assert_eq!(enqueued.expect("is accepted"), []);
    // A producer that owns nothing holds no lock by it.
    let mut transaction = connection.begin().await.expect("begins");
    for call in [
        "select pillarbox.enqueue_many('[]')",
        "select 1 / (count(*) = 0)::int from pg_locks
         where pid = pg_backend_pid() and relation = 'pillarbox.outbox_events'::regclass and mode <> 'AccessShareLock'",
    ] {
        let done = sqlx::raw_sql(sqlx::AssertSqlSafe(harness.sql(call)))
            .execute(&mut *transaction)
            .await;
        done.expect("locks nothing");
    }
    transaction.rollback().await.expect("rolls back");
    drop(connection);
    harness.clean_up().await;
}

#[tokio::test]
async fn bytes_are_given_in_base64_and_arrive_as_they_were() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let event =
        json!([{"namespace": "shop", "topic": "orders", "body": "AP/+", "content_type": "image/png"}]);
    enqueue_json(&harness, &mut connection, &event)
        .await
        .expect("enqueues");
    let claimed = harness.store.claim(&request(10)).await.expect("claims");
    assert_eq!(
        claimed[0].event.payload,
        Payload::Bytes((&b"\x00\xff\xfe"[..]).into())
    );
    assert_eq!(claimed[0].event.content_type.as_deref(), Some("image/png"));

    let event = json!([{"namespace": "shop", "topic": "orders", "body": "not base64!"}]);
    let refused = enqueue_json(&harness, &mut connection, &event).await;
    let error = refused.expect_err("is refused").to_string();
    assert!(error.contains("base64"), "{error}");
    drop(connection);
    harness.clean_up().await;
}

#[tokio::test]
async fn a_null_argument_is_like_an_omitted_one_except_a_payload() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let events = json!([
        {"namespace": "shop", "topic": "orders", "id": null, "event_version": null, "headers": null, "body": null},
        {"namespace": "shop", "topic": "orders", "payload": null},
    ]);
    enqueue_json(&harness, &mut connection, &events)
        .await
        .expect("enqueues");
    let claimed = harness.store.claim(&request(10)).await.expect("claims");
    let empty = Event::new("shop", "orders").id(claimed[0].id);
    assert_eq!(claimed[0].event, empty);
    assert_eq!(claimed[1].event.payload, Payload::Json("null".into()));
    drop(connection);
    harness.clean_up().await;
}

#[tokio::test]
async fn an_array_that_is_none_is_refused_with_the_place() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let good = json!({"namespace": "shop", "topic": "orders"});
    let with = |bad: Value| json!([good, bad]);
    for (events, words) in [
        (json!({}), "`events` is no JSON array; give an array of objects"),
        (json!(null), "`events` is no JSON array; give an array of objects"),
        (with(json!(3)), "event 2 of the array is no JSON object"),
        (with(json!([])), "event 2 of the array is no JSON object"),
        (
            with(json!({"namespace": "shop", "topik": "orders"})),
            "event 2 of the array has the key `topik`, which is none of: namespace, topic, payload, ",
        ),
        (
            with(json!({"namespace": "shop"})),
            "`topic` is empty; give it a name such as \"orders\"",
        ),
        (
            with(json!({"namespace": "shop", "topic": "orders", "status": "delivered"})),
            "event 2 of the array has the key `status`, which is none of: ",
        ),
    ] {
        let answer = refused(enqueue_json(&harness, &mut connection, &events).await);
        assert!(answer.starts_with(words), "{events}: {answer}");
    }
    drop(connection);
    assert_eq!(
        harness.store.claim(&request(10)).await.expect("claims"),
        [],
        "all or none"
    );
    harness.clean_up().await;
}

#[tokio::test]
async fn a_value_of_the_wrong_kind_is_an_error_that_shows_it() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    for (key, value) in [
        ("id", "no-uuid"),
        ("event_version", "one"),
        ("deliver_at", "tomorrow-ish"),
    ] {
        let mut event = json!({"namespace": "shop", "topic": "orders"});
        event[key] = value.into();
        let refused = enqueue_json(&harness, &mut connection, &json!([event])).await;
        let error = refused.expect_err("is refused").to_string();
        assert!(error.contains(value), "{error}");
    }
    let id = Uuid::now_v7();
    let good = json!([{"namespace": "shop", "topic": "orders", "id": id, "aggregate_id": 42}]);
    let enqueued = enqueue_json(&harness, &mut connection, &good).await;
    assert_eq!(enqueued.expect("a number is a text too"), [Enqueued::New(id)]);
    drop(connection);
    harness.clean_up().await;
}
