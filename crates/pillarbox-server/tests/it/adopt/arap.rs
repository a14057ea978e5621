//! ARAP: a time says what was sent, a counter what failed, and three failures are the end.

use std::collections::BTreeSet;

use pillarbox_testkit::Proxy;
use serde_json::{Value, json};
use uuid::Uuid;

use super::seeds::ARAP;
use super::system::System;
use crate::crash::queue::Queue;
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::wait::Load;

/// The exchange has the test's own name; everything else is as ARAP has it, only faster.
pub(super) fn config(system: &System, amqp: &str, wait: &str) -> String {
    format!(
        "[[destination]]\nname = \"arap.events\"\ntype = \"rabbitmq\"\nurl = \"{amqp}\"\nexchange = \"{}\"\n\
         routing_key = \"arap.{{event_type}}\"\n\
         [[adopt]]\nlayout = \"arap\"\nto = \"arap.events\"\npoll = \"100ms\"\nerror_text = \"full\"\nretry = {{ steps = [\"{wait}\"] }}\n",
        system.name
    )
}

fn is_processed(row: &Value) -> bool {
    !row["ProcessedOnUtc"].is_null()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_arap_events_reach_the_exchange_and_rolled_back_ones_do_not() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Load::Light, &[ARAP]).await;
    let queue = Queue::bound(&amqp, &system.name, "arap.#").await;
    system.produce(ARAP, 60).await;
    let daemon = system.start(&config(&system, &amqp, "30s"));
    system.until_all(ARAP, "are processed", is_processed).await;
    // It goes on inserting, and notices nothing.
    system.produce(ARAP, 30).await;
    let rows = system.until_all(ARAP, "are processed", is_processed).await;
    daemon.stop().await;

    let messages = queue.read().await;
    let arrived: BTreeSet<Uuid> = messages.iter().map(|message| message.id).collect();
    assert_eq!(arrived, system.committed().await);
    assert_eq!(messages.len(), 90, "once each");
    for message in &messages {
        assert_eq!(message.routing_key, "arap.ProposalCreated");
        assert_eq!(message.payload, json!({"ProposalId": "1"}));
    }
    assert_eq!(rows.len(), 90);
    for row in rows.values() {
        assert_eq!(
            (&row["RetryCount"], &row["Error"]),
            (&json!(0), &Value::Null),
            "{row}"
        );
    }
    assert!(
        system
            .is_of_now(ARAP, "\"ProcessedOnUtc\" at time zone 'UTC'")
            .await
    );
    queue.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arap_counts_a_failure_keeps_its_error_and_delivers_later() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Load::Light, &[ARAP]).await;
    let queue = Queue::bound(&amqp, &system.name, "arap.ProposalCreated").await;
    let id = system
        .produce_like(ARAP, 1, &[("ProposalCreated", "ProposalApproved")])
        .await[0];
    let daemon = system.start(&config(&system, &amqp, "1h"));
    let failed = system
        .until(ARAP, id, "has failed", |row| row["RetryCount"] == 1)
        .await;
    assert_eq!(failed["ProcessedOnUtc"], Value::Null);
    assert!(
        failed["Error"]
            .as_str()
            .is_some_and(|error| error.contains("arap.ProposalApproved")),
        "{failed}"
    );
    queue.bind("arap.ProposalApproved").await;
    system.hurry().await;
    let row = system.until(ARAP, id, "is processed", is_processed).await;
    assert_eq!(
        (&row["RetryCount"], &row["Error"]),
        (&json!(1), &failed["Error"]),
        "as ARAP leaves them"
    );
    daemon.stop().await;
    assert_eq!(queue.read().await.len(), 1);
    queue.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arap_rows_are_dead_after_three_failures_and_a_reset_by_sql_starts_again() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Load::Light, &[ARAP]).await;
    let queue = Queue::bound(&amqp, &system.name, "arap.ProposalCreated").await;
    let dead = system
        .produce_like(ARAP, 2, &[("ProposalCreated", "ProposalApproved")])
        .await;
    let others = system.produce(ARAP, 5).await;
    let daemon = system.start(&config(&system, &amqp, "100ms"));
    for id in &dead {
        let row = system
            .until(ARAP, *id, "is given up", |row| row["RetryCount"] == 3)
            .await;
        assert_eq!(row["ProcessedOnUtc"], Value::Null);
    }
    for id in others {
        system.until(ARAP, id, "is processed", is_processed).await;
    }
    queue.bind("arap.ProposalApproved").await;
    system
        .change(ARAP, dead[0], "\"RetryCount\" = 0, \"Error\" = null")
        .await;
    let row = system.until(ARAP, dead[0], "is processed", is_processed).await;
    assert_eq!(
        (&row["RetryCount"], &row["Error"]),
        (&json!(0), &Value::Null),
        "{row}"
    );
    let row = system.rows(ARAP).await.remove(&dead[1]).expect("it is there");
    assert_eq!(
        (&row["ProcessedOnUtc"], &row["RetryCount"]),
        (&Value::Null, &json!(3)),
        "no retry was requested"
    );
    // Or by a manual retry.
    system
        .command(&["events", "retry", &dead[1].to_string()])
        .success();
    let row = system.until(ARAP, dead[1], "is processed", is_processed).await;
    assert_eq!(row["RetryCount"], 0, "{row}");
    daemon.stop().await;
    assert_eq!(queue.read().await.len(), 7);
    queue.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_broker_leaves_araps_counter_unchanged_and_loses_nothing() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Load::Light, &[ARAP]).await;
    let queue = Queue::bound(&amqp, &system.name, "arap.#").await;
    let (user, broker) = amqp.split_once('@').expect("the URL names a user");
    let (broker, vhost) = broker.split_once('/').expect("the URL names a virtual host");
    let proxy = Proxy::start(broker).await;
    let through = format!("{user}@{}/{vhost}", proxy.address());
    let before = system.produce(ARAP, 10).await;
    let daemon = system.start(&config(&system, &through, "100ms"));
    system.until_all(ARAP, "are processed", is_processed).await;
    proxy.refuse().await;
    let meanwhile = system.produce(ARAP, 10).await;
    let row = system
        .until(ARAP, meanwhile[0], "says why", |row| !row["Error"].is_null())
        .await;
    assert_eq!(
        (&row["RetryCount"], &row["ProcessedOnUtc"]),
        (&json!(0), &Value::Null),
        "{row}"
    );
    proxy.restore().await;
    let rows = system.until_all(ARAP, "are processed", is_processed).await;
    assert!(
        rows.values().all(|row| row["RetryCount"] == 0),
        "an outage costs no attempt: {rows:?}"
    );
    daemon.stop().await;
    let arrived: BTreeSet<Uuid> = queue.read().await.iter().map(|message| message.id).collect();
    assert_eq!(arrived, before.into_iter().chain(meanwhile).collect());
    queue.delete().await;
    system.remove().await;
}
