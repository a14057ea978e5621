//! Orders without a fault.

use crate::fixture::{Fixture, LONG_TIMEOUT, Totals, until};

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fault_every_order_is_completed_and_the_sums_are_exact() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    let services = fixture.start_all();
    fixture.order(&["--count", "20"]).await;
    fixture.order(&["--count", "5", "--quantity", "3"]).await;
    let totals = fixture.check_ledger(services).await;
    assert_eq!(
        totals,
        Totals {
            confirmed: 25,
            cancelled: 0
        }
    );
    let status = fixture.status().await;
    assert_eq!(status["charged_cents"], 35 * 2500);
    assert_eq!(status["refunded_cents"], 0);
    assert_eq!(status["stock"][0]["reserved"], 35);
    assert_eq!(status["parcels"]["booked"], 25);
    assert_eq!(status["notifications"], 50);
    // Three commands and three answers for each order, and two notifications; none more than once.
    for (consumer, marks) in [("payment", 25), ("stock", 25), ("shipping", 25), ("orders", 75)] {
        assert_eq!(status["inbox"][consumer], marks, "{consumer}");
    }
    no_event_is_dead(&fixture).await;
    assert_eq!(fixture.sent(1).await, ["payment", "stock", "shipping"]);
    fixture.close().await;
}

/// Dead letters are unknown when RabbitMQ takes long to answer: asked again.
async fn no_event_is_dead(fixture: &Fixture) {
    until("RabbitMQ answers", || async {
        let status = fixture.status().await;
        let Some(letters) = status["dead_letters"].as_object() else {
            return false;
        };
        for (service, letters) in letters {
            assert_eq!(letters, 0, "{service} has given up on something");
        }
        true
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_last_year_is_understood() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    let services = fixture.start_all();
    let who = ["--name", "Joan", "--email", "joan@example.com"];
    fixture.order(&who).await;
    fixture.order(&[&who[..], &["--last-year"]].concat()).await;
    fixture.check_ledger(services).await;
    let versions: Vec<i32> = sqlx::query_scalar(
        "select event_version from pillarbox.outbox_events where event_type = 'OrderPlaced' order by seq",
    )
    .fetch_all(&fixture.pool)
    .await
    .unwrap();
    assert_eq!(versions, [2, 1]);
    let texts: Vec<String> =
        sqlx::query_scalar("select text from notifications.sent where what = 'placed' order by order_id")
            .fetch_all(&fixture.pool)
            .await
            .unwrap();
    for (order, text) in (1..).zip(texts) {
        assert_eq!(
            text,
            format!("joan@example.com: thank you, Joan, we have your order {order}")
        );
    }
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inconsistent_tables_are_reported() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    let services = fixture.start_all();
    fixture.order(&[]).await;
    fixture.order(&["--address", "nowhere"]).await;
    fixture.check_ledger(services).await;
    for (forgery, says) in [
        (
            "delete from shipping.parcels where order_id = 1",
            "confirmed orders are not paid, reserved and booked: 1",
        ),
        (
            "update payment.charges set status = 'charged' where order_id = 2",
            "cancelled orders are still paid, reserved or booked: 1",
        ),
        (
            "update shop.orders set status = 'placed' where id = 2",
            "orders do not match their sagas: 1",
        ),
        (
            "insert into shipping.parcels values (3, '', 'booked')",
            "something was paid, reserved or booked without an order: 1",
        ),
        (
            "update stock.items set on_hand = on_hand + 1 where item = 'teapot'",
            "items are neither on hand nor reserved: 1",
        ),
        (
            "insert into notifications.sent (order_id, what, text) values (1, 'cancelled', '')",
            "customers were notified twice: 1",
        ),
    ] {
        sqlx::raw_sql(forgery).execute(&fixture.pool).await.unwrap();
        let violations = fixture.status().await["violations"].clone();
        assert!(
            violations.as_array().unwrap().contains(&says.into()),
            "{violations} after: {forgery}"
        );
    }
    assert!(
        fixture
            .run(&["status"])
            .await
            .contains("consistency   VIOLATED: ")
    );
    fixture.close().await;
}
