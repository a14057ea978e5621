//! The saga of an order: payment, stock, shipping; and how each is undone.

use std::time::Duration;

use pillarbox::saga::{InvalidSaga, Saga, Step};
use pillarbox::{Outbox, RetryPolicy};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::messages::{
    BookParcel, CancelParcel, ChargeCard, Charged, RefundCard, ReleaseStock, ReserveStock,
};

/// Rows and messages know the saga by this.
pub(crate) const NAME: &str = "order";
/// Where answers and the saga's own timeouts go: to the service `orders`.
pub(crate) const NAMESPACE: &str = "shop";
/// The topic there.
pub(crate) const TOPIC: &str = "orders";

/// What the saga knows of an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: i64,
    pub(crate) item: String,
    pub(crate) quantity: i32,
    pub(crate) cents: i64,
    pub(crate) card: String,
    pub(crate) address: String,
    /// Known when the payment service has answered.
    pub(crate) charge: Option<Uuid>,
}

/// The saga. Whoever starts it and whoever runs it must agree on it.
pub(crate) fn define(patience: Duration) -> Result<Saga<Order>, InvalidSaga> {
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

    let wait = RetryPolicy::exponential(patience / 10, patience);
    let patient = |step: Step<Order>| step.timeout(patience).retry(wait.clone().max_attempts(3));
    Saga::define(NAME)
        .address(NAMESPACE, TOPIC)
        .step(patient(payment))
        .step(patient(stock))
        .step(patient(shipping))
        .retry_compensations(wait)
        .build(&Outbox::default())
}
