//! Each service dies at each failpoint of a message's path, for each message of an order, and another process continues.
//! The order ends as if nothing had happened.
//!
//! The order of these tests is paid, reserved and rejected by `shipping`, so that the saga goes forward and back. `orders`
//! receives five messages, `payment`, `stock` and `notifications` two each, and `shipping` one. No timeout expires: a saga
//! ends by redelivery alone.

use std::process::Stdio;

use pillarbox_testkit::process::assert_aborted_at;

use crate::fixture::{Fixture, LONG_TIMEOUT, Totals};

const CONSUMER: [&str; 5] = [
    "consume_received",
    "consume_marked",
    "consume_handled",
    "consume_committed",
    "consume_acked",
];
const SAGA: [&str; 3] = ["saga_locked", "saga_saved", "saga_enqueued"];
const DISPATCHER: [&str; 7] = [
    "in_claim",
    "after_claim",
    "before_send",
    "after_send",
    "before_settle",
    "in_settle",
    "after_settle",
];

/// For each of the failpoints, at each of the hits: a process dies there in the middle of an order, and another takes over.
async fn dies_at_each(victim: &'static str, failpoints: &[&str], hits: &[u32]) {
    let fixture = Fixture::open_to_kill(LONG_TIMEOUT).await;
    let mut services = fixture.start_all();
    let mut orders = 0;
    for failpoint in failpoints {
        for hit in hits {
            let clean = services.remove(victim).unwrap();
            clean.stop(victim).await;
            let at = format!("{failpoint}:{hit}");
            let dying = fixture.start_to_die(victim, &at);
            fixture.order(&["--address", "nowhere"]).await;
            orders += 1;
            fixture.until_dead(dying, &at, &services).await;
            services.insert(victim, fixture.start(victim));
            fixture.until_idle().await;
            assert_eq!(
                fixture.sent(orders).await,
                ["payment", "stock", "shipping", "-stock", "-payment"],
                "{victim} died at {at}"
            );
        }
    }
    fixture.order(&["--count", "2"]).await;
    let totals = fixture.check_ledger(services).await;
    assert_eq!(
        totals,
        Totals {
            confirmed: 2,
            cancelled: orders
        }
    );
    fixture.close().await;
}

macro_rules! dies {
    ($($sentence:ident: $victim:literal at $failpoints:expr, $hits:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        #[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
        async fn $sentence() {
            dies_at_each($victim, &$failpoints, &$hits).await;
        }
    )*};
}

dies! {
    the_orchestrator_may_die_wherever_a_consumer_can: "orders" at CONSUMER, [1, 2, 3, 4, 5];
    the_orchestrator_may_die_wherever_a_saga_can: "orders" at SAGA, [1, 2, 3, 4, 5];
    payment_may_die_anywhere: "payment" at CONSUMER, [1, 2];
    the_stock_may_die_anywhere: "stock" at CONSUMER, [1, 2];
    shipping_may_die_anywhere: "shipping" at CONSUMER, [1];
    notifications_may_die_anywhere: "notifications" at CONSUMER, [1, 2];
    the_dispatcher_may_die_anywhere: "dispatcher" at DISPATCHER, [1, 6];
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn an_order_whose_process_dies_is_not_placed() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    for failpoint in ["saga_saved", "saga_enqueued"] {
        let mut order = fixture.shop(&["order"]);
        order.env("PILLARBOX_ABORT_AT", failpoint).stdout(Stdio::null());
        let output = tokio::process::Command::from(order).output().await.unwrap();
        assert_aborted_at(failpoint, output.status, &String::from_utf8_lossy(&output.stderr));
        let left = "select (select count(*) from shop.orders) + (select count(*) from pillarbox.sagas)
             + (select count(*) from pillarbox.outbox_events)";
        assert_eq!(fixture.count(left).await, 0, "{failpoint}");
    }
    let services = fixture.start_all();
    fixture.order(&[]).await;
    assert_eq!(fixture.check_ledger(services).await.confirmed, 1);
    fixture.close().await;
}
