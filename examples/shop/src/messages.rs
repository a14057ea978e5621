//! The messages between services: commands of the saga, and events about orders.
//!
//! The topic of a command is the service that receives it. Events about orders have the topic `order-events` and are delivered in
//! order per order.

use pillarbox::Event;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// To the payment service.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "payment", type = "ChargeCard")]
pub(crate) struct ChargeCard {
    #[event(aggregate = "order")]
    pub(crate) order: i64,
    pub(crate) card: String,
    pub(crate) cents: i64,
}

/// To the payment service. The charge is unknown if the reply to [`ChargeCard`] never arrived.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "payment", type = "RefundCard")]
pub(crate) struct RefundCard {
    #[event(aggregate = "order")]
    pub(crate) order: i64,
    pub(crate) charge: Option<Uuid>,
}

/// The payment service's reply to [`ChargeCard`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Charged {
    pub(crate) charge: Uuid,
}

/// To the stock service.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "stock", type = "ReserveStock")]
pub(crate) struct ReserveStock {
    #[event(aggregate = "order")]
    pub(crate) order: i64,
    pub(crate) item: String,
    pub(crate) quantity: i32,
}

/// To the stock service.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "stock", type = "ReleaseStock")]
pub(crate) struct ReleaseStock {
    #[event(aggregate = "order")]
    pub(crate) order: i64,
}

/// To the shipping service.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "shipping", type = "BookParcel")]
pub(crate) struct BookParcel {
    #[event(aggregate = "order")]
    pub(crate) order: i64,
    pub(crate) address: String,
}

/// To the shipping service.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "shipping", type = "CancelParcel")]
pub(crate) struct CancelParcel {
    #[event(aggregate = "order")]
    pub(crate) order: i64,
}

/// The topic of events about orders.
pub(crate) const ORDER_EVENTS: &str = "order-events";

/// A customer placed an order.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "order-events", type = "OrderPlaced", version = 2)]
pub(crate) struct OrderPlaced {
    #[event(key, aggregate = "order")]
    pub(crate) order: i64,
    pub(crate) customer: Customer,
}

/// A customer, since version 2 of [`OrderPlaced`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Customer {
    pub(crate) name: String,
    pub(crate) email: String,
}

/// Version 1 of [`OrderPlaced`]: the customer is one text, `Jane <jane@example.com>`.
#[derive(Debug, Serialize, Event)]
#[event(namespace = "shop", topic = "order-events", type = "OrderPlaced", version = 1)]
pub(crate) struct OrderPlacedLastYear {
    #[event(key, aggregate = "order")]
    pub(crate) order: i64,
    pub(crate) customer: String,
}

/// The order is paid, reserved and booked.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "order-events", type = "OrderConfirmed")]
pub(crate) struct OrderConfirmed {
    #[event(key, aggregate = "order")]
    pub(crate) order: i64,
}

/// The order failed, and all its steps are undone.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "order-events", type = "OrderCancelled")]
pub(crate) struct OrderCancelled {
    #[event(key, aggregate = "order")]
    pub(crate) order: i64,
    pub(crate) reason: Option<String>,
}
