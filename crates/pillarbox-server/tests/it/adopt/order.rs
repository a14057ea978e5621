//! The order of adopted tables, read at the broker: by key, and by table. A row that fails holds no other back.

use std::collections::BTreeMap;

use serde_json::Value;
use uuid::Uuid;

use super::seeds::{ARAP, ORDER_SERVICE, Seed};
use super::system::System;
use crate::crash::queue::Queue;
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::wait::Load;

/// A failing row waits longer than the test lasts.
fn config(system: &System, amqp: &str, seed: Seed) -> String {
    format!(
        "[[destination]]\nname = \"events\"\ntype = \"rabbitmq\"\nurl = \"{amqp}\"\nexchange = \"{}\"\n\
         routing_key = \"{{event_type}}\"\n\
         [[adopt]]\nlayout = \"{}\"\nto = \"events\"\npoll = \"100ms\"\nretry = {{ steps = [\"1h\"] }}\n",
        system.name, seed.name
    )
}

/// The ids of the rows in the table's order.
async fn in_order(system: &System, seed: Seed, time: &str) -> Vec<Uuid> {
    let rows = system.rows(seed).await;
    let mut rows: Vec<(String, Uuid)> = rows
        .into_iter()
        .map(|(id, row)| (row[time].as_str().expect("a time").to_owned(), id))
        .collect();
    rows.sort_unstable();
    rows.into_iter().map(|(_, id)| id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_arap_arrive_in_the_order_of_the_table() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Load::Light, &[ARAP]).await;
    let queue = Queue::bound(&amqp, &system.name, "ProposalCreated").await;
    // The broker returns these, because no queue is bound.
    let failing = [("ProposalCreated", "ProposalApproved")];
    let mut failed = system.produce_like(ARAP, 1, &failing).await;
    system.produce(ARAP, 150).await;
    failed.extend(system.produce_like(ARAP, 1, &failing).await);
    system.produce(ARAP, 150).await;
    let daemon = system.start(&config(&system, &amqp, ARAP));
    let is_over = |row: &Value| !row["ProcessedOnUtc"].is_null() || row["RetryCount"] == 1;
    system
        .until_all(ARAP, "are processed or have failed", is_over)
        .await;
    daemon.stop().await;
    let expected: Vec<Uuid> = (in_order(&system, ARAP, "OccurredOnUtc").await)
        .into_iter()
        .filter(|id| !failed.contains(id))
        .collect();
    let arrived: Vec<Uuid> = queue.read().await.iter().map(|message| message.id).collect();
    assert_eq!(arrived, expected);
    queue.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_an_order_arrive_in_their_order_and_a_failing_one_holds_none_back() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Load::Light, &[ORDER_SERVICE]).await;
    let queue = Queue::bound(&amqp, &system.name, "OrderCreated").await;
    let orders: Vec<String> = (0..4).map(|_| Uuid::new_v4().to_string()).collect();
    let of = |order: &str| format!("'Order', '{order}'");
    let mut failed = Vec::new();
    for order in &orders {
        let failing = [
            ("'Order', '{id}'", of(order)),
            ("OrderCreated", "OrderLost".to_owned()),
        ];
        let failing = failing.each_ref().map(|(old, new)| (*old, new.as_str()));
        failed.extend(system.produce_like(ORDER_SERVICE, 1, &failing).await);
    }
    for _ in 0..4 {
        for order in &orders {
            let its = of(order);
            system
                .produce_like(ORDER_SERVICE, 10, &[("'Order', '{id}'", &its)])
                .await;
        }
    }
    let daemon = system.start(&config(&system, &amqp, ORDER_SERVICE));
    let is_over = |row: &Value| row["status"] == "SENT" || !row["error_message"].is_null();
    system
        .until_all(ORDER_SERVICE, "are sent or have failed", is_over)
        .await;
    daemon.stop().await;
    let rows = system.rows(ORDER_SERVICE).await;
    let by_order = |ids: Vec<Uuid>| {
        let mut orders: BTreeMap<String, Vec<Uuid>> = BTreeMap::new();
        for id in ids.into_iter().filter(|id| !failed.contains(id)) {
            orders
                .entry(rows[&id]["aggregate_id"].to_string())
                .or_default()
                .push(id);
        }
        orders
    };
    let arrived = queue.read().await.iter().map(|message| message.id).collect();
    let expected = in_order(&system, ORDER_SERVICE, "created_at").await;
    assert_eq!(by_order(arrived), by_order(expected));
    assert!(
        failed.iter().all(|id| rows[id]["status"] == "NEW"),
        "they are retried later"
    );
    queue.delete().await;
    system.remove().await;
}
