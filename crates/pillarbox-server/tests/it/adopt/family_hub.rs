//! Family Hub: a row is pending until it is sent, for ever if need be; only what can never be sent has failed.

use std::collections::BTreeSet;

use pillarbox_testkit::Proxy;
use serde_json::{Value, json};
use uuid::Uuid;

use super::seeds::FAMILY_HUB;
use super::system::System;
use crate::crash::queue::Queue;
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::wait::Load;

const INVITED: &str = "FamilyHub.FamilyMemberInvitedEvent";
const JOINED: &str = "FamilyHub.FamilyMemberJoinedEvent";

/// The exchange has the test's own name; everything else is as Family Hub has it, only faster.
pub(super) fn config(system: &System, amqp: &str, waits: &str) -> String {
    format!(
        "[[destination]]\nname = \"family-hub.events\"\ntype = \"rabbitmq\"\nurl = \"{amqp}\"\nexchange = \"{}\"\n\
         routing_key = \"{{event_type}}\"\n\
         [[adopt]]\nlayout = \"family-hub\"\nto = \"family-hub.events\"\npoll = \"100ms\"\nretry = {{ steps = [{waits}] }}\n",
        system.name
    )
}

pub(super) fn is_processed(row: &Value) -> bool {
    row["status"] == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn family_hub_events_reach_its_exchange_under_their_type() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Load::Light, &[FAMILY_HUB]).await;
    let queue = Queue::bound(&amqp, &system.name, INVITED).await;
    system.produce(FAMILY_HUB, 60).await;
    let daemon = system.start(&config(&system, &amqp, "\"1s\""));
    let rows = system.until_all(FAMILY_HUB, "are processed", is_processed).await;
    daemon.stop().await;

    let messages = queue.read().await;
    let arrived: BTreeSet<Uuid> = messages.iter().map(|message| message.id).collect();
    assert_eq!(arrived, system.committed().await);
    assert_eq!(messages.len(), 60, "once each");
    for message in &messages {
        assert_eq!(message.routing_key, INVITED);
        assert_eq!(message.payload, json!({"isResend": false}));
    }
    for row in rows.values() {
        assert_eq!(
            (&row["retry_count"], &row["error_message"]),
            (&json!(0), &Value::Null),
            "{row}"
        );
    }
    for column in ["processed_at", "updated_at"] {
        assert!(
            system
                .is_of_now(FAMILY_HUB, &format!("{column} at time zone 'UTC'"))
                .await,
            "{column}"
        );
    }
    queue.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_family_hub_event_that_fails_stays_pending_until_it_is_sent_and_its_error_is_cleared() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Load::Light, &[FAMILY_HUB]).await;
    let queue = Queue::bound(&amqp, &system.name, INVITED).await;
    let id = system.produce_like(FAMILY_HUB, 1, &[(INVITED, JOINED)]).await[0];
    let daemon = system.start(&config(&system, &amqp, "\"100ms\""));
    // Many more than the three or five of others: there is no end.
    let tried = |row: &Value| row["retry_count"].as_i64() >= Some(8);
    let failing = system
        .until(FAMILY_HUB, id, "has failed eight times", tried)
        .await;
    assert_eq!(
        (&failing["status"], &failing["processed_at"]),
        (&json!(0), &Value::Null),
        "{failing}"
    );
    let error = failing["error_message"].as_str().unwrap_or_default();
    assert_eq!(error, "failed", "the answer is for operators: {failing}");
    queue.bind(JOINED).await;
    let row = system.until(FAMILY_HUB, id, "is processed", is_processed).await;
    assert_eq!(row["error_message"], Value::Null, "{row}");
    assert!(
        row["retry_count"].as_i64() >= failing["retry_count"].as_i64(),
        "{row}"
    );
    daemon.stop().await;
    assert_eq!(queue.read().await.len(), 1);
    queue.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_can_never_be_sent_has_failed_and_an_operator_can_mend_it() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Load::Light, &[FAMILY_HUB]).await;
    let queue = Queue::bound(&amqp, &system.name, INVITED).await;
    // 255 letters fit the column; as a routing key they are too long by far.
    let long = "\u{e4}".repeat(255);
    let id = system.produce_like(FAMILY_HUB, 1, &[(INVITED, &long)]).await[0];
    let daemon = system.start(&config(&system, &amqp, "\"100ms\""));
    let row = system
        .until(FAMILY_HUB, id, "has failed", |row| row["status"] == 2)
        .await;
    assert_eq!(row["processed_at"], Value::Null);
    assert!(
        row["error_message"]
            .as_str()
            .is_some_and(|error| error == "given up"),
        "{row}"
    );
    system
        .change(
            FAMILY_HUB,
            id,
            &format!("event_type = '{INVITED}', status = 0, retry_count = 0"),
        )
        .await;
    let row = system.until(FAMILY_HUB, id, "is processed", is_processed).await;
    assert_eq!(
        (&row["retry_count"], &row["error_message"]),
        (&json!(0), &Value::Null),
        "{row}"
    );
    daemon.stop().await;
    assert_eq!(queue.read().await[0].routing_key, INVITED);
    queue.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_family_hub_tried_before_keeps_its_schedule() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Load::Light, &[FAMILY_HUB]).await;
    let queue = Queue::bound(&amqp, &system.name, INVITED).await;
    let ids = system.produce(FAMILY_HUB, 2).await;
    let tried = |count: u32| format!("retry_count = {count}, updated_at = now() at time zone 'UTC'");
    system.change(FAMILY_HUB, ids[1], &tried(7)).await; // 15 minutes
    system.change(FAMILY_HUB, ids[0], &tried(2)).await; // 2 seconds
    let before = system.rows(FAMILY_HUB).await[&ids[0]]["updated_at"].clone();
    let daemon = system.start(&config(&system, &amqp, "\"100ms\""));
    let row = system
        .until(FAMILY_HUB, ids[0], "is processed", is_processed)
        .await;
    assert_eq!(row["retry_count"], 2);
    let sql = format!(
        "select processed_at - {}::timestamp >= interval '2 seconds' from auth.outbox_events where event_id = '{}'",
        before.to_string().replace('"', "'"),
        ids[0]
    );
    assert!(system.is_true(&sql).await, "{before} {row}");
    assert_eq!(system.rows(FAMILY_HUB).await[&ids[1]]["status"], 0);
    daemon.stop().await;
    assert_eq!(queue.read().await.len(), 1);
    queue.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_comes_late_finds_family_hubs_counters_untouched() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Load::Light, &[FAMILY_HUB]).await;
    let queue = Queue::bound(&amqp, &system.name, INVITED).await;
    let (user, broker) = amqp.split_once('@').expect("the URL names a user");
    let (broker, vhost) = broker.split_once('/').expect("the URL names a virtual host");
    let proxy = Proxy::start(broker).await;
    proxy.refuse().await;
    let ids = system.produce(FAMILY_HUB, 10).await;
    let through = format!("{user}@{}/{vhost}", proxy.address());
    let daemon = system.start(&config(&system, &through, "\"100ms\""));
    let says_why = |row: &Value| !row["error_message"].is_null();
    let row = system.until(FAMILY_HUB, ids[0], "says why", says_why).await;
    assert_eq!(
        (&row["status"], &row["retry_count"]),
        (&json!(0), &json!(0)),
        "{row}"
    );
    proxy.restore().await;
    let rows = system.until_all(FAMILY_HUB, "are processed", is_processed).await;
    for row in rows.values() {
        assert_eq!(
            (&row["retry_count"], &row["error_message"]),
            (&json!(0), &Value::Null),
            "{row}"
        );
    }
    daemon.stop().await;
    assert_eq!(queue.read().await.len(), 10);
    queue.delete().await;
    system.remove().await;
}
