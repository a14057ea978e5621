//! Notifies customers about their orders: once, in order, and also from events of version 1.

use pillarbox::versions::Upcasters;
use pillarbox_consume::{HandlerError, Received};
use serde_json::{Value, json};
use sqlx::PgTransaction;
use tokio_util::sync::CancellationToken;

use super::{Service, consume, consumer};
use crate::Result;
use crate::environment::Environment;
use crate::messages::{ORDER_EVENTS, OrderCancelled, OrderConfirmed, OrderPlaced};

pub(super) async fn run(environment: &Environment, shutdown: CancellationToken) -> Result<()> {
    let consumer = consumer(Service::Notifications, &environment.pool()?)
        .upcasters(upcasters())
        .on("OrderPlaced", 2, placed)
        .on("OrderConfirmed", 1, confirmed)
        .on("OrderCancelled", 1, cancelled);
    let queue = environment.queue(Service::Notifications, ORDER_EVENTS);
    consume(consumer, queue, shutdown).await
}

fn upcasters() -> Upcasters {
    Upcasters::new().add("OrderPlaced", 1, with_customer)
}

/// Version 2 has the name and the e-mail address in separate fields.
fn with_customer(mut order: Value) -> Result<Value, String> {
    let text = order["customer"].as_str().ok_or("the customer is not a text")?;
    let (name, email) = text.split_once(" <").ok_or("the customer has no address")?;
    order["customer"] = json!({ "name": name, "email": email.trim_end_matches('>') });
    Ok(order)
}

async fn placed(
    transaction: &mut PgTransaction<'static>,
    event: Received<OrderPlaced>,
) -> Result<(), HandlerError> {
    let OrderPlaced { order, customer } = event.body;
    let text = format!(
        "{}: thank you, {}, we have your order {order}",
        customer.email, customer.name
    );
    send(transaction, order, "placed", text).await
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
    let OrderCancelled { order, reason } = event.body;
    let reason = reason.unwrap_or_else(|| "on request".to_owned());
    let text = format!("order {order} was cancelled ({reason}); you have not been charged");
    send(transaction, order, "cancelled", text).await
}

async fn send(
    transaction: &mut PgTransaction<'static>,
    order: i64,
    what: &str,
    text: String,
) -> Result<(), HandlerError> {
    sqlx::query("insert into notifications.sent (order_id, what, text) values ($1, $2, $3)")
        .bind(order)
        .bind(what)
        .bind(text)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_is_read_as_version_2() {
        let old = json!({ "order": 7, "customer": "Jane Doe <jane@example.com>" });
        let new: OrderPlaced = serde_json::from_value(with_customer(old).unwrap()).unwrap();
        assert_eq!(new.order, 7);
        assert_eq!(new.customer.name, "Jane Doe");
        assert_eq!(new.customer.email, "jane@example.com");
    }

    #[test]
    fn the_upcasters_have_no_gap() {
        upcasters().leads_to("OrderPlaced", 2).unwrap();
    }
}
