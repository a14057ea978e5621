//! The trace of a session: `pillarbox.traceparent` and `pillarbox.tracestate`.

use pillarbox::Event;
use pillarbox_store::Store;
use pillarbox_testkit::store_suite::Harness;
use serde_json::{Value, json};

use super::super::harness::PostgresHarness;
use super::super::producer::request;
use super::{enqueue, enqueue_many};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The headers of an event that is enqueued with these settings, whichever function is called.
async fn headers(harness: &PostgresHarness, parent: &str, state: &str, event: Event) -> Value {
    let mut transaction = harness.pool.begin().await.expect("begins");
    for (name, value) in [("pillarbox.traceparent", parent), ("pillarbox.tracestate", state)] {
        sqlx::query("select set_config($1, $2, true)")
            .bind(name)
            .bind(value)
            .execute(&mut *transaction)
            .await
            .expect("sets");
    }
    let other = event.clone().id(uuid::Uuid::now_v7());
    enqueue(harness, &mut transaction, &event)
        .await
        .expect("enqueues");
    enqueue_many(harness, &mut transaction, &[other])
        .await
        .expect("enqueues");
    transaction.commit().await.expect("commits");
    let claimed = harness.store.claim(&request(10)).await.expect("claims");
    assert_eq!(claimed.len(), 2);
    assert_eq!(claimed[0].event.headers, claimed[1].event.headers);
    json!(claimed[0].event.headers)
}

fn event() -> Event {
    Event::new("shop", "orders").header("source", "web")
}

#[tokio::test]
async fn an_event_gets_the_trace_of_its_session() {
    let harness = PostgresHarness::direct().await;
    assert_eq!(
        headers(&harness, PARENT, "a=1", event()).await,
        json!({"source": "web", "traceparent": PARENT, "tracestate": "a=1"})
    );
    assert_eq!(
        headers(&harness, PARENT, "", event()).await,
        json!({"source": "web", "traceparent": PARENT})
    );
    harness.clean_up().await;
}

#[tokio::test]
async fn a_trace_that_the_event_names_is_left_alone() {
    let harness = PostgresHarness::direct().await;
    for name in ["traceparent", "TraceParent"] {
        let mine = event().header(name, "mine");
        assert_eq!(
            headers(&harness, PARENT, "a=1", mine).await,
            json!({"source": "web", name: "mine"})
        );
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn a_state_without_its_parent_is_not_mixed_with_another() {
    let harness = PostgresHarness::direct().await;
    let stray = event().header("tracestate", "stray=1");
    assert_eq!(
        headers(&harness, PARENT, "", stray).await,
        json!({"source": "web", "traceparent": PARENT})
    );
    harness.clean_up().await;
}

#[tokio::test]
async fn a_setting_that_is_no_trace_is_left_alone() {
    let harness = PostgresHarness::direct().await;
    let strange = [
        "",
        "00",
        &PARENT[..54],
        &format!("{PARENT}0"),
        &format!("{PARENT}\n"),
        &PARENT.to_uppercase(),
        &PARENT.replacen("00", "ff", 1),
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "'; drop table outbox_events; --",
    ];
    for parent in strange {
        let found = headers(&harness, parent, "a=1", event()).await;
        assert_eq!(found, json!({"source": "web"}), "{parent}");
    }
    for state in ["é=1", "a=\u{1}", &"x".repeat(513)] {
        let found = headers(&harness, PARENT, state, event()).await;
        assert_eq!(found, json!({"source": "web", "traceparent": PARENT}), "{state}");
    }
    harness.clean_up().await;
}
