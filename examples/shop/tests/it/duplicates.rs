//! Every event is delivered twice.

use std::collections::BTreeMap;

use lapin::Channel;
use lapin::options::{BasicGetOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;

use crate::fixture::{Fixture, LONG_TIMEOUT, Totals, channel};

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_delivered_twice_have_one_effect() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    let services = fixture.start_all();
    // The tap matches every event, so that none is returned as unroutable. So every queue must exist before it.
    fixture.order(&[]).await;
    fixture.until_idle().await;
    let delivered = "select count(*) from pillarbox.outbox_events where status = 'delivered'";
    let before = fixture.count(delivered).await;
    let (connection, channel) = channel().await;
    let tap = tap(&fixture, &channel).await;

    fixture.run(&["fault", "dispatcher", "twice"]).await;
    fixture.order(&["--count", "10"]).await;
    fixture.order(&["--count", "5", "--address", "nowhere"]).await;
    let totals = fixture.check_ledger(services).await;
    assert_eq!(
        totals,
        Totals {
            confirmed: 11,
            cancelled: 5
        }
    );

    let copies = copies(&channel, &tap).await;
    let delivered = fixture.count(delivered).await;
    assert_eq!(i64::try_from(copies.len()).unwrap(), delivered - before);
    assert!(copies.values().all(|copies| *copies == 2), "{copies:?}");
    let marks = "select count(*) from pillarbox.inbox";
    assert_eq!(fixture.count(marks).await, delivered, "each is marked once");

    channel
        .queue_delete(tap.into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    connection.close(200, "done".into()).await.unwrap();
    fixture.close().await;
}

/// A queue that receives everything that is published from now on.
async fn tap(fixture: &Fixture, channel: &Channel) -> String {
    let tap = format!("{}.tap", fixture.name);
    let exchange = format!("{}.events", fixture.name);
    let nothing = FieldTable::default();
    channel
        .queue_declare(
            tap.as_str().into(),
            QueueDeclareOptions::default(),
            nothing.clone(),
        )
        .await
        .unwrap();
    channel
        .queue_bind(
            tap.as_str().into(),
            exchange.into(),
            "#".into(),
            QueueBindOptions::default(),
            nothing,
        )
        .await
        .unwrap();
    tap
}

/// How often each event is in the queue.
async fn copies(channel: &Channel, queue: &str) -> BTreeMap<String, usize> {
    let mut copies = BTreeMap::new();
    while let Some(message) = channel
        .basic_get(queue.into(), BasicGetOptions { no_ack: true })
        .await
        .unwrap()
    {
        let id = message.delivery.properties.message_id().clone().unwrap();
        *copies.entry(id.to_string()).or_default() += 1;
    }
    copies
}
