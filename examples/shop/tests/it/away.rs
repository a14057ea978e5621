//! The broker is away, and comes back.

use pillarbox_testkit::Proxy;

use crate::world::{PATIENT, Reckoning, World, until, variable};

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_are_placed_while_the_broker_is_away_are_completed_when_it_is_back() {
    let real = variable("PILLARBOX_TEST_AMQP_URL");
    let (before, rest) = real.split_once('@').expect("a user in the URL");
    let (target, after) = rest.split_once('/').expect("a virtual host in the URL");
    let proxy = Proxy::start(target).await;
    let world = World::open_at(&format!("{before}@{}/{after}", proxy.address()), PATIENT).await;
    let services = world.start_all();
    world.order(&["--count", "5"]).await;
    world.at_rest().await;

    world.order(&["--count", "5"]).await; // cut in the middle of its way
    proxy.refuse().await;
    world.order(&["--count", "5"]).await;
    let waits = "select count(*) from pillarbox.outbox_events where status <> 'delivered' and event_type = 'OrderPlaced'";
    assert!(
        world.count(waits).await >= 5,
        "nothing is lost, and nothing can be sent"
    );
    until("the dispatcher has noticed", || async {
        world
            .count("select count(*) from pillarbox.outbox_events where last_error is not null")
            .await
            > 0
    })
    .await;
    let unknown = world.run(&["status"]).await;
    assert!(unknown.contains("RabbitMQ does not answer"), "{unknown}");
    proxy.restore().await;

    let reckoning = world.reckon(services).await;
    assert_eq!(
        reckoning,
        Reckoning {
            confirmed: 15,
            cancelled: 0
        }
    );
    world.close().await;
}
