//! The broker is away, and comes back.

use pillarbox_testkit::Proxy;

use crate::fixture::{Fixture, LONG_TIMEOUT, Totals, until, variable};

#[tokio::test(flavor = "multi_thread")]
async fn orders_placed_during_an_outage_of_the_broker_are_completed_after_it() {
    let real = variable("PILLARBOX_TEST_AMQP_URL");
    let (before, rest) = real.split_once('@').expect("a user in the URL");
    let (target, after) = rest.split_once('/').expect("a virtual host in the URL");
    let proxy = Proxy::start(target).await;
    let fixture = Fixture::open_at(&format!("{before}@{}/{after}", proxy.address()), LONG_TIMEOUT).await;
    let services = fixture.start_all();
    fixture.order(&["--count", "5"]).await;
    fixture.until_idle().await;

    fixture.order(&["--count", "5"]).await; // cut in the middle of its way
    proxy.refuse().await;
    fixture.order(&["--count", "5"]).await;
    let waits = "select count(*) from pillarbox.outbox_events where status <> 'delivered' and event_type = 'OrderPlaced'";
    assert!(
        fixture.count(waits).await >= 5,
        "nothing is lost, and nothing can be sent"
    );
    until("the dispatcher has noticed", || async {
        fixture
            .count("select count(*) from pillarbox.outbox_events where last_error is not null")
            .await
            > 0
    })
    .await;
    let unknown = fixture.run(&["status"]).await;
    assert!(unknown.contains("RabbitMQ is unavailable"), "{unknown}");
    proxy.restore().await;

    let totals = fixture.check_ledger(services).await;
    assert_eq!(
        totals,
        Totals {
            confirmed: 15,
            cancelled: 0
        }
    );
    fixture.close().await;
}
