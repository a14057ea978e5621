//! Steps that cannot be done, in every way there is: what was done before them is undone, the last first.

use pillarbox::saga::{Ask, Asked, ask};
use pillarbox::{Event, Outbox};
use serde_json::json;

use crate::world::{PATIENT, Reckoning, World, until};

const BY_PAYMENT: &[&str] = &["payment"];
const BY_STOCK: &[&str] = &["payment", "stock", "-payment"];
const BY_SHIPPING: &[&str] = &["payment", "stock", "shipping", "-stock", "-payment"];

async fn nothing_is_left(world: &World) {
    let status = world.status().await;
    assert_eq!(status["charged_cents"], 0);
    assert_eq!(status["stock"][0]["reserved"], 0);
    assert_eq!(status["parcels"]["booked"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_step_is_refused_those_before_it_are_undone_in_reverse_order() {
    let world = World::open(PATIENT).await;
    let services = world.start_all();
    world.order(&["--card", "expired"]).await;
    world.order(&["--item", "unicorn"]).await;
    world.order(&["--address", "nowhere"]).await;
    let reckoning = world.reckon(services).await;
    assert_eq!(
        reckoning,
        Reckoning {
            confirmed: 0,
            cancelled: 3
        }
    );
    assert_eq!(world.sent(1).await, BY_PAYMENT);
    assert_eq!(world.sent(2).await, BY_STOCK);
    assert_eq!(world.sent(3).await, BY_SHIPPING);
    nothing_is_left(&world).await;
    assert_eq!(world.status().await["refunded_cents"], 2 * 2500);
    world.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fault_switch_lets_each_service_refuse_in_turn() {
    let world = World::open(PATIENT).await;
    let services = world.start_all();
    for (order, service, sent) in [
        (1, "payment", BY_PAYMENT),
        (2, "stock", BY_STOCK),
        (3, "shipping", BY_SHIPPING),
    ] {
        world.run(&["fault", service, "refuse"]).await;
        world.order(&[]).await;
        world.at_rest().await;
        assert_eq!(world.sent(order).await, sent, "{service} refuses");
        world.run(&["fault", service, "off"]).await;
    }
    nothing_is_left(&world).await;
    world.order(&[]).await;
    let reckoning = world.reckon(services).await;
    assert_eq!(
        reckoning,
        Reckoning {
            confirmed: 1,
            cancelled: 3
        }
    );
    world.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_at_first_is_tried_again_and_done() {
    let world = World::open(PATIENT).await;
    let services = world.start_all();
    for service in ["payment", "stock", "shipping"] {
        world.run(&["fault", service, "flaky"]).await;
    }
    world.order(&[]).await;
    for (command, step) in [
        ("ChargeCard", "payment"),
        ("ReserveStock", "stock"),
        ("BookParcel", "shipping"),
    ] {
        world.bring_forward(command, step, 2).await;
    }
    let reckoning = world.reckon(services).await;
    assert_eq!(reckoning.confirmed, 1);
    assert_eq!(
        world.sent(1).await,
        ["payment", "payment", "stock", "stock", "shipping", "shipping"]
    );
    world.close().await;
}

/// Nobody knows whether the parcel is booked. It is: so it is cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_answered_too_late_is_undone_as_well() {
    let world = World::open(PATIENT).await;
    let services = world.start_all();
    world.run(&["fault", "shipping", "slow"]).await;
    world.order(&[]).await;
    shipping_is_late(&world, 1).await;
    world.bring_forward("BookParcel", "shipping", 2).await;
    shipping_is_late(&world, 2).await;
    world.bring_forward("BookParcel", "shipping", 3).await;
    shipping_is_late(&world, 3).await;
    let reckoning = world.reckon(services).await;
    assert_eq!(reckoning.cancelled, 1);
    assert_eq!(
        world.sent(1).await,
        [
            "payment",
            "stock",
            "shipping",
            "shipping",
            "shipping",
            "-shipping",
            "-stock",
            "-payment"
        ]
    );
    assert_eq!(world.status().await["parcels"]["cancelled"], 1);
    nothing_is_left(&world).await;
    world.close().await;
}

/// The parcel is booked, the saga's patience ends, and only then it gets the answer to this attempt.
async fn shipping_is_late(world: &World, attempt: u32) {
    let handled = "select count(*) from pillarbox.inbox where consumer = 'shipping'";
    until("the parcel is booked", || async {
        world.count(handled).await == i64::from(attempt)
    })
    .await;
    for (event_type, what) in [("SagaTimeout", "timed out"), ("CommandAnswered", "ignored")] {
        world.bring_forward(event_type, "shipping", attempt).await;
        let line =
            format!("select count(*) from pillarbox.saga_log where what = '{what}' and attempt = {attempt}");
        until(what, || async { world.count(&line).await == 1 }).await;
    }
}

/// Compensations are tried for ever; a person who has mended the cause does not wait for the next try.
#[tokio::test(flavor = "multi_thread")]
async fn a_compensation_that_fails_waits_for_a_person_who_resumes_it() {
    let world = World::open(PATIENT).await;
    let mut services = world.start_all();
    services.remove("shipping").unwrap().kill().await;
    world.order(&["--address", "nowhere"]).await;
    until("it is paid and reserved", || async {
        world.count("select count(*) from stock.reservations").await == 1
    })
    .await;
    world.run(&["fault", "payment", "fail"]).await;
    services.insert("shipping", world.start("shipping"));
    // So patient that the wait before the second try is longer than the test.
    let is_stuck =
        "select count(*) from pillarbox.sagas where status = 'compensating' and path = '[\"payment\"]'
         and attempt = 2";
    until("the refund has failed once", || async {
        world.count(is_stuck).await == 1
    })
    .await;
    world.run(&["fault", "payment", "off"]).await;

    let mut transaction = world.pool.begin().await.unwrap();
    let asked = ask(&mut transaction, &Outbox::default(), "order", "1", Ask::Resume).await;
    assert!(matches!(asked, Ok(Asked::Enqueued(_))), "{asked:?}");
    transaction.commit().await.unwrap();
    until("the saga has ended", || async {
        let ended = "select count(*) from pillarbox.sagas where status = 'compensated'";
        world.count(ended).await == 1
    })
    .await;
    // The try that waits for its time is answered when nobody asks any more.
    world.bring_forward("RefundCard", "payment", 2).await;
    let reckoning = world.reckon(services).await;
    assert_eq!(reckoning.cancelled, 1);
    nothing_is_left(&world).await;
    world.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_comes_after_its_compensation_does_nothing() {
    let world = World::open(PATIENT).await;
    let services = world.start_all();
    for (topic, undo, command, body, table) in [
        (
            "payment",
            "RefundCard",
            "ChargeCard",
            json!({"order": 7, "charge": null, "card": "1", "cents": 5}),
            "payment.charges",
        ),
        (
            "stock",
            "ReleaseStock",
            "ReserveStock",
            json!({"order": 7, "item": "teapot", "quantity": 1}),
            "stock.reservations",
        ),
        (
            "shipping",
            "CancelParcel",
            "BookParcel",
            json!({"order": 7, "address": "here"}),
            "shipping.parcels",
        ),
    ] {
        let message = |event_type: &str, action: &str| {
            Event::new("shop", topic)
                .event_type(event_type)
                .header("saga-name", "order")
                .header("saga-id", "7")
                .header("saga-step", topic)
                .header("saga-action", action)
                .header("saga-attempt", "1")
                .json(&body)
                .unwrap()
        };
        for (event, marks) in [
            (message(undo, "compensation"), 1),
            (message(command, "command"), 2),
        ] {
            let mut connection = world.pool.acquire().await.unwrap();
            Outbox::default().enqueue(&mut connection, &event).await.unwrap();
            let handled = format!("select count(*) from pillarbox.inbox where consumer = '{topic}'");
            until("it is handled", || async { world.count(&handled).await == marks }).await;
            let barred = format!("select count(*) from {table} where order_id = 7 and status = 'barred'");
            assert_eq!(
                world.count(&barred).await,
                1,
                "{table} after {:?}",
                event.event_type
            );
        }
        let refused = format!(
            "select count(*) from pillarbox.outbox_events where event_type = 'CommandAnswered'
             and headers ->> 'saga-step' = '{topic}' and headers ->> 'saga-outcome' = 'refused'"
        );
        assert_eq!(world.count(&refused).await, 1, "{topic} answers");
    }
    assert_eq!(
        world
            .count("select count(*) from stock.items where on_hand <> delivered")
            .await,
        0
    );
    for (name, process) in services {
        process.stop(name).await;
    }
    world.close().await;
}
