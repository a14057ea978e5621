//! Nothing goes wrong.

use crate::world::{PATIENT, Reckoning, World, until};

#[tokio::test(flavor = "multi_thread")]
async fn on_a_quiet_day_every_order_is_completed_and_the_sums_are_exact() {
    let world = World::open(PATIENT).await;
    let services = world.start_all();
    world.order(&["--count", "20"]).await;
    world.order(&["--count", "5", "--quantity", "3"]).await;
    let reckoning = world.reckon(services).await;
    assert_eq!(
        reckoning,
        Reckoning {
            confirmed: 25,
            cancelled: 0
        }
    );
    let status = world.status().await;
    assert_eq!(status["charged_cents"], 35 * 2500);
    assert_eq!(status["refunded_cents"], 0);
    assert_eq!(status["stock"][0]["reserved"], 35);
    assert_eq!(status["parcels"]["booked"], 25);
    assert_eq!(status["notifications"], 50);
    // Three commands and three answers for each order, and two notifications; none more than once.
    for (consumer, marks) in [("payment", 25), ("stock", 25), ("shipping", 25), ("orders", 75)] {
        assert_eq!(status["inbox"][consumer], marks, "{consumer}");
    }
    nobody_has_given_up(&world).await;
    assert_eq!(world.sent(1).await, ["payment", "stock", "shipping"]);
    world.close().await;
}

/// Dead letters are unknown when RabbitMQ takes long to answer: asked again.
async fn nobody_has_given_up(world: &World) {
    until("RabbitMQ answers", || async {
        let status = world.status().await;
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
    let world = World::open(PATIENT).await;
    let services = world.start_all();
    let who = ["--name", "Joan", "--email", "joan@example.com"];
    world.order(&who).await;
    world.order(&[&who[..], &["--last-year"]].concat()).await;
    world.reckon(services).await;
    let versions: Vec<i32> = sqlx::query_scalar(
        "select event_version from pillarbox.outbox_events where event_type = 'OrderPlaced' order by seq",
    )
    .fetch_all(&world.pool)
    .await
    .unwrap();
    assert_eq!(versions, [2, 1]);
    let words: Vec<String> =
        sqlx::query_scalar("select words from notifications.sent where what = 'placed' order by order_id")
            .fetch_all(&world.pool)
            .await
            .unwrap();
    for (order, words) in (1..).zip(words) {
        assert_eq!(
            words,
            format!("joan@example.com: thank you, Joan, we have your order {order}")
        );
    }
    world.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn books_that_are_wrong_are_called_wrong() {
    let world = World::open(PATIENT).await;
    let services = world.start_all();
    world.order(&[]).await;
    world.order(&["--address", "nowhere"]).await;
    world.reckon(services).await;
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
            "orders say otherwise than their sagas: 1",
        ),
        (
            "insert into shipping.parcels values (3, '', 'booked')",
            "something was paid, reserved or booked that nobody has ordered: 1",
        ),
        (
            "update stock.items set on_hand = on_hand + 1 where item = 'teapot'",
            "items are not all on hand or reserved: 1",
        ),
        (
            "insert into notifications.sent (order_id, what, words) values (1, 'cancelled', '')",
            "customers were told something twice, or that an order is both confirmed and cancelled: 1",
        ),
    ] {
        sqlx::raw_sql(forgery).execute(&world.pool).await.unwrap();
        let mistakes = world.status().await["mistakes"].clone();
        assert!(
            mistakes.as_array().unwrap().contains(&says.into()),
            "{mistakes} after: {forgery}"
        );
    }
    assert!(world.run(&["status"]).await.contains("books         WRONG: "));
    world.close().await;
}
