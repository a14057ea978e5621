//! Debezium's outbox event router: a row that was sent is gone.

use serde_json::json;

use super::hook::Hook;
use super::seeds::DEBEZIUM;
use super::system::System;
use pillarbox_testkit::wait::{Load, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_for_debezium_go_when_they_are_sent_and_stay_when_they_are_refused() {
    let hook = Hook::start(|call| {
        if call.body == json!({"order": 2}) {
            400
        } else {
            200
        }
    });
    let system = System::new(Load::Light, &[DEBEZIUM]).await;
    let config = format!(
        "{}[[adopt]]\nlayout = \"debezium\"\npoll = \"100ms\"\n",
        hook.destination("hook")
    );
    let sent = system.produce(DEBEZIUM, 40).await;
    let refused = system
        .produce_like(DEBEZIUM, 1, &[("\"order\": 1", "\"order\": 2")])
        .await[0];
    let daemon = system.start(&config);
    until("the delivered rows are deleted", async || {
        let left = system.rows(DEBEZIUM).await;
        left.len() == 1 && hook.answers(refused) == [400]
    })
    .await;
    daemon.stop().await;
    assert!(system.rows(DEBEZIUM).await.contains_key(&refused));
    let mut accepted = hook.accepted();
    accepted.sort_unstable();
    assert_eq!(accepted, sent, "once each");
    let call = &hook.visits()[0].call;
    assert_eq!(call.header("pillarbox-topic"), Some("order"));
    assert_eq!(
        call.header("pillarbox-type"),
        Some("ordercreated"),
        "the head is in lower case"
    );

    let daemon = system.start(&config);
    let later = system.produce(DEBEZIUM, 1).await[0];
    until("the next row is sent", async || {
        system.rows(DEBEZIUM).await.len() == 1 && hook.answers(later) == [200]
    })
    .await;
    daemon.stop().await;
    assert_eq!(
        hook.answers(refused),
        [400],
        "another worker does not try a rejected row again"
    );
    system.remove().await;
}
