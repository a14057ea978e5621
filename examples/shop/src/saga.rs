//! The saga of an order: payment, stock, shipping, and their compensations.

use std::time::Duration;

use pillarbox::saga::{InvalidSaga, Saga, Step};
use pillarbox::{Outbox, RetryPolicy};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::messages::{
    BookParcel, CancelParcel, ChargeCard, Charged, RefundCard, ReleaseStock, ReserveStock,
};

/// The name of the saga in rows and messages.
pub(crate) const NAME: &str = "order";
/// The namespace of replies and of the saga's own timeouts, which go to the service `orders`.
pub(crate) const NAMESPACE: &str = "shop";
/// Their topic.
pub(crate) const TOPIC: &str = "orders";

/// The saga's data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: i64,
    pub(crate) item: String,
    pub(crate) quantity: i32,
    pub(crate) cents: i64,
    pub(crate) card: String,
    pub(crate) address: String,
    /// Set from the payment service's reply.
    pub(crate) charge: Option<Uuid>,
}

/// Defines the saga. The process that starts it and the one that runs it must use the same definition.
pub(crate) fn define(step_timeout: Duration) -> Result<Saga<Order>, InvalidSaga> {
    let payment = Step::new("payment", |order: &Order| ChargeCard {
        order: order.id,
        card: order.card.clone(),
        cents: order.cents,
    })
    .compensation(|order| RefundCard {
        order: order.id,
        charge: order.charge,
    })
    .take(|order, charged: Charged| order.charge = Some(charged.charge));
    let stock = Step::new("stock", |order: &Order| ReserveStock {
        order: order.id,
        item: order.item.clone(),
        quantity: order.quantity,
    })
    .compensation(|order| ReleaseStock { order: order.id });
    let shipping = Step::new("shipping", |order: &Order| BookParcel {
        order: order.id,
        address: order.address.clone(),
    })
    .compensation(|order| CancelParcel { order: order.id });

    let wait = RetryPolicy::exponential(step_timeout / 10, step_timeout);
    let with_timeout = |step: Step<Order>| step.timeout(step_timeout).retry(wait.clone().max_attempts(3));
    Saga::define(NAME)
        .address(NAMESPACE, TOPIC)
        .step(with_timeout(payment))
        .step(with_timeout(stock))
        .step(with_timeout(shipping))
        .retry_compensations(wait)
        .build(&Outbox::default().by_function())
}
