//! Every event arrives twice.

use std::collections::BTreeMap;

use lapin::options::{BasicGetOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;

use crate::world::{PATIENT, Reckoning, World, channel};

#[tokio::test(flavor = "multi_thread")]
async fn events_that_arrive_twice_do_what_they_do_once() {
    let world = World::open(PATIENT).await;
    let (connection, channel) = channel().await;
    let tap = format!("{}.tap", world.name);
    let services = world.start_all();
    // Nothing of the shop's is published before the exchange is there.
    let exchange = format!("{}.events", world.name);
    let (options, nothing) = (QueueDeclareOptions::default(), FieldTable::default());
    channel
        .exchange_declare(
            exchange.as_str().into(),
            lapin::ExchangeKind::Topic,
            lapin::options::ExchangeDeclareOptions {
                durable: true,
                ..Default::default()
            },
            nothing.clone(),
        )
        .await
        .unwrap();
    channel
        .queue_declare(tap.as_str().into(), options, nothing.clone())
        .await
        .unwrap();
    channel
        .queue_bind(
            tap.as_str().into(),
            exchange.as_str().into(),
            "#".into(),
            QueueBindOptions::default(),
            nothing,
        )
        .await
        .unwrap();

    world.run(&["fault", "dispatcher", "twice"]).await;
    world.order(&["--count", "10"]).await;
    world.order(&["--count", "5", "--address", "nowhere"]).await;
    let reckoning = world.reckon(services).await;
    assert_eq!(
        reckoning,
        Reckoning {
            confirmed: 10,
            cancelled: 5
        }
    );

    let mut copies: BTreeMap<String, usize> = BTreeMap::new();
    while let Some(message) = channel
        .basic_get(tap.as_str().into(), BasicGetOptions { no_ack: true })
        .await
        .unwrap()
    {
        let id = message.delivery.properties.message_id().clone().unwrap();
        *copies.entry(id.to_string()).or_default() += 1;
    }
    let delivered = "select count(*) from pillarbox.outbox_events where status = 'delivered'";
    assert_eq!(i64::try_from(copies.len()).unwrap(), world.count(delivered).await);
    assert!(copies.values().all(|copies| *copies == 2), "{copies:?}");
    let marks = "select count(*) from pillarbox.inbox";
    assert_eq!(
        world.count(marks).await,
        world.count(delivered).await,
        "each is marked once"
    );

    channel
        .queue_delete(tap.into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    connection.close(200, "goodbye".into()).await.unwrap();
    world.close().await;
}
