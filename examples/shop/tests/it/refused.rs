//! Steps that cannot be done, in every way there is: what was done before them is undone, the last first.

use pillarbox::saga::{Ask, AskResult, ask};
use pillarbox::{Event, Outbox};
use serde_json::json;

use crate::fixture::{Fixture, LONG_TIMEOUT, Totals, until};

const BY_PAYMENT: &[&str] = &["payment"];
const BY_STOCK: &[&str] = &["payment", "stock", "-payment"];
const BY_SHIPPING: &[&str] = &["payment", "stock", "shipping", "-stock", "-payment"];

async fn nothing_is_left(fixture: &Fixture) {
    let status = fixture.status().await;
    assert_eq!(status["charged_cents"], 0);
    assert_eq!(status["stock"][0]["reserved"], 0);
    assert_eq!(status["parcels"]["booked"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_step_is_refused_those_before_it_are_undone_in_reverse_order() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    let services = fixture.start_all();
    fixture.order(&["--card", "expired"]).await;
    fixture.order(&["--item", "unicorn"]).await;
    fixture.order(&["--address", "nowhere"]).await;
    let totals = fixture.check_ledger(services).await;
    assert_eq!(
        totals,
        Totals {
            confirmed: 0,
            cancelled: 3
        }
    );
    assert_eq!(fixture.sent(1).await, BY_PAYMENT);
    assert_eq!(fixture.sent(2).await, BY_STOCK);
    assert_eq!(fixture.sent(3).await, BY_SHIPPING);
    nothing_is_left(&fixture).await;
    assert_eq!(fixture.status().await["refunded_cents"], 2 * 2500);
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fault_switch_lets_each_service_refuse_in_turn() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    let services = fixture.start_all();
    for (order, service, sent) in [
        (1, "payment", BY_PAYMENT),
        (2, "stock", BY_STOCK),
        (3, "shipping", BY_SHIPPING),
    ] {
        fixture.run(&["fault", service, "refuse"]).await;
        fixture.order(&[]).await;
        fixture.until_idle().await;
        assert_eq!(fixture.sent(order).await, sent, "{service} refuses");
        fixture.run(&["fault", service, "off"]).await;
    }
    nothing_is_left(&fixture).await;
    fixture.order(&[]).await;
    let totals = fixture.check_ledger(services).await;
    assert_eq!(
        totals,
        Totals {
            confirmed: 1,
            cancelled: 3
        }
    );
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_at_first_is_tried_again_and_done() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    let services = fixture.start_all();
    for service in ["payment", "stock", "shipping"] {
        fixture.run(&["fault", service, "flaky"]).await;
    }
    fixture.order(&[]).await;
    for (command, step) in [
        ("ChargeCard", "payment"),
        ("ReserveStock", "stock"),
        ("BookParcel", "shipping"),
    ] {
        fixture.bring_forward(command, step, 2).await;
    }
    let totals = fixture.check_ledger(services).await;
    assert_eq!(totals.confirmed, 1);
    assert_eq!(
        fixture.sent(1).await,
        ["payment", "payment", "stock", "stock", "shipping", "shipping"]
    );
    fixture.close().await;
}

/// The saga cannot know whether the parcel is booked. It is, so it must be cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_answered_too_late_is_undone_as_well() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    let services = fixture.start_all();
    fixture.run(&["fault", "shipping", "slow"]).await;
    fixture.order(&[]).await;
    shipping_is_late(&fixture, 1).await;
    fixture.bring_forward("BookParcel", "shipping", 2).await;
    shipping_is_late(&fixture, 2).await;
    fixture.bring_forward("BookParcel", "shipping", 3).await;
    shipping_is_late(&fixture, 3).await;
    let totals = fixture.check_ledger(services).await;
    assert_eq!(totals.cancelled, 1);
    assert_eq!(
        fixture.sent(1).await,
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
    assert_eq!(fixture.status().await["parcels"]["cancelled"], 1);
    nothing_is_left(&fixture).await;
    fixture.close().await;
}

/// The parcel is booked, the saga's timeout expires, and only then the reply to this attempt arrives.
async fn shipping_is_late(fixture: &Fixture, attempt: u32) {
    let handled = "select count(*) from pillarbox.inbox where consumer = 'shipping'";
    until("the parcel is booked", || async {
        fixture.count(handled).await == i64::from(attempt)
    })
    .await;
    for (event_type, what) in [("SagaTimeout", "timed out"), ("CommandAnswered", "ignored")] {
        fixture.bring_forward(event_type, "shipping", attempt).await;
        let line =
            format!("select count(*) from pillarbox.saga_log where what = '{what}' and attempt = {attempt}");
        until(what, || async { fixture.count(&line).await == 1 }).await;
    }
}

/// Compensations are retried without limit. An operator who has fixed the cause need not wait for the next attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_compensation_can_be_resumed_by_an_operator() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    let mut services = fixture.start_all();
    services.remove("shipping").unwrap().kill();
    fixture.order(&["--address", "nowhere"]).await;
    until("it is paid and reserved", || async {
        fixture.count("select count(*) from stock.reservations").await == 1
    })
    .await;
    fixture.run(&["fault", "payment", "fail"]).await;
    services.insert("shipping", fixture.start("shipping"));
    // With a timeout so long that the second attempt comes after the test.
    let is_stuck =
        "select count(*) from pillarbox.sagas where status = 'compensating' and path = '[\"payment\"]'
         and attempt = 2";
    until("the refund has failed once", || async {
        fixture.count(is_stuck).await == 1
    })
    .await;
    fixture.run(&["fault", "payment", "off"]).await;

    let orders = fixture.pool_of("orders");
    let mut transaction = orders.begin().await.unwrap();
    let asked = ask(
        &mut transaction,
        &Outbox::default().by_function(),
        "order",
        "1",
        Ask::Resume,
    )
    .await;
    assert!(matches!(asked, Ok(AskResult::Enqueued(_))), "{asked:?}");
    transaction.commit().await.unwrap();
    orders.close().await;
    until("the saga has ended", || async {
        let ended = "select count(*) from pillarbox.sagas where status = 'compensated'";
        fixture.count(ended).await == 1
    })
    .await;
    // The scheduled attempt is answered when the saga has ended.
    fixture.bring_forward("RefundCard", "payment", 2).await;
    let totals = fixture.check_ledger(services).await;
    assert_eq!(totals.cancelled, 1);
    nothing_is_left(&fixture).await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_comes_after_its_compensation_does_nothing() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    let (services, orders) = (fixture.start_all(), fixture.pool_of("orders"));
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
                .header("saga-token", "any")
                .json(&body)
                .unwrap()
        };
        for (event, marks) in [
            (message(undo, "compensation"), 1),
            (message(command, "command"), 2),
        ] {
            let mut connection = orders.acquire().await.unwrap();
            Outbox::default()
                .by_function()
                .enqueue(&mut connection, &event)
                .await
                .unwrap();
            let handled = format!("select count(*) from pillarbox.inbox where consumer = '{topic}'");
            until("it is handled", || async {
                fixture.count(&handled).await == marks
            })
            .await;
            let barred = format!("select count(*) from {table} where order_id = 7 and status = 'barred'");
            assert_eq!(
                fixture.count(&barred).await,
                1,
                "{table} after {:?}",
                event.event_type
            );
        }
        let refused = format!(
            "select count(*) from pillarbox.outbox_events where event_type = 'CommandAnswered'
             and headers ->> 'saga-step' = '{topic}' and headers ->> 'saga-outcome' = 'refused'"
        );
        assert_eq!(fixture.count(&refused).await, 1, "{topic} answers");
    }
    assert_eq!(
        fixture
            .count("select count(*) from stock.items where on_hand <> delivered")
            .await,
        0
    );
    for (name, process) in services {
        process.stop(name).await;
    }
    orders.close().await;
    fixture.close().await;
}
