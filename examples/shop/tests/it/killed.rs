//! Each service dies at each place of a message's path, for each message of an order's way, and another process goes on: the
//! order ends as if nothing had happened.
//!
//! The order of these tests is paid, reserved and refused by the shipping department, so that the saga goes forward and back:
//! five messages for `orders`, two each for `payment`, `stock` and `notifications`, one for `shipping`. Nobody's patience ends:
//! whatever ends, ends by redelivery alone.

use std::process::Stdio;

use crate::world::{PATIENT, Reckoning, World};

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
    let world = World::open_to_kill(PATIENT).await;
    let mut services = world.start_all();
    let mut orders = 0;
    for failpoint in failpoints {
        for hit in hits {
            let clean = services.remove(victim).unwrap();
            clean.stop(victim).await;
            let place = format!("{failpoint}:{hit}");
            let doomed = world.start_to_die(victim, &place);
            world.order(&["--address", "nowhere"]).await;
            orders += 1;
            doomed.dies_at(&place).await;
            services.insert(victim, world.start(victim));
            world.at_rest().await;
            assert_eq!(
                world.sent(orders).await,
                ["payment", "stock", "shipping", "-stock", "-payment"],
                "{victim} died at {place}"
            );
        }
    }
    world.order(&["--count", "2"]).await;
    let reckoning = world.reckon(services).await;
    assert_eq!(
        reckoning,
        Reckoning {
            confirmed: 2,
            cancelled: orders
        }
    );
    world.close().await;
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
async fn an_order_whose_placing_is_cut_short_was_never_placed() {
    let world = World::open(PATIENT).await;
    for failpoint in ["saga_saved", "saga_enqueued"] {
        let mut order = world.shop(&["order"]);
        order.env("PILLARBOX_ABORT_AT", failpoint).stdout(Stdio::null());
        let output = order.output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&format!("failpoint {failpoint}: ")), "{said}");
        let left = "select (select count(*) from shop.orders) + (select count(*) from pillarbox.sagas)
             + (select count(*) from pillarbox.outbox_events)";
        assert_eq!(world.count(left).await, 0, "{failpoint}");
    }
    let services = world.start_all();
    world.order(&[]).await;
    assert_eq!(world.reckon(services).await.confirmed, 1);
    world.close().await;
}
