//! Tells customers what became of their orders: once, in order, and in the words of today also where the event is of last year.

use pillarbox::versions::Upcasters;
use pillarbox_consume::{HandlerError, Received};
use serde_json::{Value, json};
use sqlx::PgTransaction;
use tokio_util::sync::CancellationToken;

use super::{Service, consume, consumer};
use crate::Result;
use crate::messages::{ORDER_EVENTS, OrderCancelled, OrderConfirmed, OrderPlaced};
use crate::places::Places;

pub(super) async fn run(places: &Places, shutdown: CancellationToken) -> Result<()> {
    let consumer = consumer(Service::Notifications, &places.pool()?)
        .upcasters(upcasters())
        .on("OrderPlaced", 2, placed)
        .on("OrderConfirmed", 1, confirmed)
        .on("OrderCancelled", 1, cancelled);
    let queue = places.queue(Service::Notifications, ORDER_EVENTS);
    consume(consumer, queue, shutdown).await
}

fn upcasters() -> Upcasters {
    Upcasters::new().add("OrderPlaced", 1, with_customer)
}

/// Version 2 knows the name and the address apart.
fn with_customer(mut order: Value) -> Result<Value, String> {
    let text = order["customer"].as_str().ok_or("the customer is no text")?;
    let (name, email) = text.split_once(" <").ok_or("the customer has no address")?;
    order["customer"] = json!({ "name": name, "email": email.trim_end_matches('>') });
    Ok(order)
}

async fn placed(
    transaction: &mut PgTransaction<'static>,
    event: Received<OrderPlaced>,
) -> Result<(), HandlerError> {
    let OrderPlaced { order, customer } = event.body;
    let words = format!(
        "{}: thank you, {}, we have your order {order}",
        customer.email, customer.name
    );
    send(transaction, order, "placed", words).await
}

async fn confirmed(
    transaction: &mut PgTransaction<'static>,
    event: Received<OrderConfirmed>,
) -> Result<(), HandlerError> {
    let order = event.body.order;
    send(
        transaction,
        order,
        "confirmed",
        format!("order {order} is on its way"),
    )
    .await
}

async fn cancelled(
    transaction: &mut PgTransaction<'static>,
    event: Received<OrderCancelled>,
) -> Result<(), HandlerError> {
    let OrderCancelled { order, why } = event.body;
    let why = why.unwrap_or_else(|| "you or we have given it up".to_owned());
    let words = format!("order {order} came to nothing ({why}); you have paid nothing");
    send(transaction, order, "cancelled", words).await
}

async fn send(
    transaction: &mut PgTransaction<'static>,
    order: i64,
    what: &str,
    words: String,
) -> Result<(), HandlerError> {
    sqlx::query("insert into notifications.sent (order_id, what, words) values ($1, $2, $3)")
        .bind(order)
        .bind(what)
        .bind(words)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_year_is_read_as_of_today() {
        let old = json!({ "order": 7, "customer": "Jane Doe <jane@example.com>" });
        let new: OrderPlaced = serde_json::from_value(with_customer(old).unwrap()).unwrap();
        assert_eq!(new.order, 7);
        assert_eq!(new.customer.name, "Jane Doe");
        assert_eq!(new.customer.email, "jane@example.com");
    }

    #[test]
    fn nothing_is_missing_between_the_versions() {
        upcasters().leads_to("OrderPlaced", 2).unwrap();
    }
}
