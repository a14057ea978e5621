//! order-service: NEW, SENT or FAILED, and a record in Kafka under the order's id.

use std::collections::BTreeSet;

use pillarbox_testkit::Proxy;
use pillarbox_testkit::kafka::Topic;
use serde_json::{Value, json};

use super::seeds::ORDER_SERVICE;
use super::system::System;
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::wait::Load;

/// How old a record may be that a topic takes, in milliseconds.
const OLDEST: &str = "message.timestamp.before.max.ms";

/// The topic has the test's own name; the waits are the document's own.
fn config(brokers: &str, topic: &Topic) -> String {
    format!(
        "[[destination]]\nname = \"stream\"\ntype = \"kafka\"\nbrokers = \"{brokers}\"\ntopic = \"{}\"\n\
         key = \"{{aggregate_id}}\"\n\
         [[adopt]]\nlayout = \"order-service\"\nto = \"stream\"\npoll = \"100ms\"\n",
        topic.name
    )
}

fn is_sent(row: &Value) -> bool {
    row["status"] == "SENT"
}

fn has_failed(row: &Value) -> bool {
    row["status"] == "FAILED"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_reach_their_topic_as_they_were_written_and_are_sent() {
    let brokers = variable("PILLARBOX_TEST_KAFKA_BROKERS");
    let system = System::new(Load::Light, &[ORDER_SERVICE]).await;
    let topic = Topic::create(&brokers, &system.name, &[]).await;
    system.produce(ORDER_SERVICE, 60).await;
    let daemon = system.start(&config(&brokers, &topic));
    let rows = system.until_all(ORDER_SERVICE, "are sent", is_sent).await;
    daemon.stop().await;

    let records = topic.read().await;
    assert_eq!(records.len(), 60, "once each");
    let keys: BTreeSet<String> = records.iter().filter_map(|record| record.key.clone()).collect();
    let committed = system.committed().await;
    assert_eq!(
        keys,
        committed.iter().map(ToString::to_string).collect(),
        "the key is the order's id"
    );
    for record in &records {
        assert_eq!(record.payload, b"{\"b\": 1,  \"a\": 2}", "to the last blank");
        assert_eq!(record.headers["pillarbox-type"], "OrderCreated");
    }
    assert!(
        rows.values().all(|row| row["error_message"].is_null()),
        "{rows:?}"
    );
    assert!(
        system
            .is_of_now(ORDER_SERVICE, "sent_at at time zone 'UTC'")
            .await
    );
    topic.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_fails_after_five_attempts_and_is_sent_when_an_operator_sets_new() {
    let brokers = variable("PILLARBOX_TEST_KAFKA_BROKERS");
    let system = System::new(Load::Light, &[ORDER_SERVICE]).await;
    // Whatever is older than it can be: the broker takes nothing.
    let topic = Topic::create(&brokers, &system.name, &[(OLDEST, "0")]).await;
    let ids = system.produce(ORDER_SERVICE, 3).await;
    let daemon = system.start(&config(&brokers, &topic));
    let row = system
        .until(ORDER_SERVICE, ids[0], "says why", |row| {
            !row["error_message"].is_null()
        })
        .await;
    assert_eq!(
        (&row["status"], &row["sent_at"]),
        (&json!("NEW"), &Value::Null),
        "it is retried: {row}"
    );
    let rows = system.until_all(ORDER_SERVICE, "have failed", has_failed).await;
    for row in rows.values() {
        assert_eq!(row["sent_at"], Value::Null);
        assert!(row["error_message"].is_string(), "{row}");
    }
    let attempts = "select bool_and(attempts = 5) from pillarbox.outbox_events";
    assert!(system.is_true(attempts).await, "five attempts");
    topic.set(OLDEST, "86400000").await;
    system.change(ORDER_SERVICE, ids[0], "status = 'NEW'").await;
    let row = system.until(ORDER_SERVICE, ids[0], "is sent", is_sent).await;
    assert_eq!(row["error_message"], Value::Null, "{row}");
    assert!(
        has_failed(&system.rows(ORDER_SERVICE).await[&ids[1]]),
        "no retry was requested"
    );
    daemon.stop().await;
    let records = topic.read().await;
    assert_eq!(records.len(), 1);
    assert!(
        records
            .iter()
            .any(|record| record.key.as_deref() == Some(ids[0].to_string().as_str())),
        "{records:?}"
    );
    topic.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_is_too_large_has_failed_at_once_and_harms_no_other() {
    let brokers = variable("PILLARBOX_TEST_KAFKA_BROKERS");
    let system = System::new(Load::Light, &[ORDER_SERVICE]).await;
    let topic = Topic::create(&brokers, &system.name, &[]).await;
    let large = system.produce(ORDER_SERVICE, 1).await[0];
    system
        .change(ORDER_SERVICE, large, "payload = repeat('x', 2000000)")
        .await;
    let others = system.produce(ORDER_SERVICE, 20).await;
    let daemon = system.start(&config(&brokers, &topic));
    let row = system.until(ORDER_SERVICE, large, "has failed", has_failed).await;
    assert!(
        row["error_message"]
            .as_str()
            .is_some_and(|error| error == "given up"),
        "{}",
        row["error_message"]
    );
    for id in others {
        system.until(ORDER_SERVICE, id, "is sent", is_sent).await;
    }
    // Mended by hand, and NEW again.
    system
        .change(ORDER_SERVICE, large, "payload = '{}', status = 'NEW'")
        .await;
    system.until(ORDER_SERVICE, large, "is sent", is_sent).await;
    daemon.stop().await;
    assert_eq!(topic.read().await.len(), 21);
    topic.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kafka_that_comes_late_costs_no_order_an_attempt() {
    let brokers = variable("PILLARBOX_TEST_KAFKA_BROKERS");
    let system = System::new(Load::Light, &[ORDER_SERVICE]).await;
    let topic = Topic::create(&brokers, &system.name, &[]).await;
    let proxy = Proxy::start(brokers.clone()).await;
    proxy.refuse().await;
    let ids = system.produce(ORDER_SERVICE, 10).await;
    let daemon = system.start(&config(&proxy.address().to_string(), &topic));
    let row = system
        .until(ORDER_SERVICE, ids[0], "says why", |row| {
            !row["error_message"].is_null()
        })
        .await;
    assert_eq!(row["status"], "NEW");
    proxy.restore().await;
    let rows = system.until_all(ORDER_SERVICE, "are sent", is_sent).await;
    assert!(
        rows.values().all(|row| row["error_message"].is_null()),
        "{rows:?}"
    );
    let attempts = "select bool_and(attempts = 1) from pillarbox.outbox_events";
    assert!(system.is_true(attempts).await, "an outage costs no attempt");
    daemon.stop().await;
    assert_eq!(topic.read().await.len(), 10);
    topic.delete().await;
    system.remove().await;
}
