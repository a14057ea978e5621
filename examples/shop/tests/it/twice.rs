//! Every event arrives twice.

use std::collections::BTreeMap;

use lapin::Channel;
use lapin::options::{BasicGetOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;

use crate::world::{PATIENT, Reckoning, World, channel};

#[tokio::test(flavor = "multi_thread")]
async fn events_that_arrive_twice_do_what_they_do_once() {
    let world = World::open(PATIENT).await;
    let services = world.start_all();
    // Where the tap gets everything, nothing is returned for want of a queue: every queue must be there before it.
    world.order(&[]).await;
    world.at_rest().await;
    let delivered = "select count(*) from pillarbox.outbox_events where status = 'delivered'";
    let before = world.count(delivered).await;
    let (connection, channel) = channel().await;
    let tap = tap(&world, &channel).await;

    world.run(&["fault", "dispatcher", "twice"]).await;
    world.order(&["--count", "10"]).await;
    world.order(&["--count", "5", "--address", "nowhere"]).await;
    let reckoning = world.reckon(services).await;
    assert_eq!(
        reckoning,
        Reckoning {
            confirmed: 11,
            cancelled: 5
        }
    );

    let copies = copies(&channel, &tap).await;
    let delivered = world.count(delivered).await;
    assert_eq!(i64::try_from(copies.len()).unwrap(), delivered - before);
    assert!(copies.values().all(|copies| *copies == 2), "{copies:?}");
    let marks = "select count(*) from pillarbox.inbox";
    assert_eq!(world.count(marks).await, delivered, "each is marked once");

    channel
        .queue_delete(tap.into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    connection.close(200, "goodbye".into()).await.unwrap();
    world.close().await;
}

/// A queue with everything in it that is published from now on.
async fn tap(world: &World, channel: &Channel) -> String {
    let tap = format!("{}.tap", world.name);
    let exchange = format!("{}.events", world.name);
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
