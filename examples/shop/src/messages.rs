//! What the services say to each other: commands of the saga, and what happened to an order.
//!
//! A command's topic is the service that it is for. Everything about an order goes by the topic `order-events`, one order's events
//! one after another.

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

/// To the payment service. Nobody may know the charge: an answer that never came does not tell.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "payment", type = "RefundCard")]
pub(crate) struct RefundCard {
    #[event(aggregate = "order")]
    pub(crate) order: i64,
    pub(crate) charge: Option<Uuid>,
}

/// The payment service's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Charged {
    pub(crate) charge: Uuid,
}

/// To the stock.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "stock", type = "ReserveStock")]
pub(crate) struct ReserveStock {
    #[event(aggregate = "order")]
    pub(crate) order: i64,
    pub(crate) item: String,
    pub(crate) quantity: i32,
}

/// To the stock.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "stock", type = "ReleaseStock")]
pub(crate) struct ReleaseStock {
    #[event(aggregate = "order")]
    pub(crate) order: i64,
}

/// To the shipping department.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "shipping", type = "BookParcel")]
pub(crate) struct BookParcel {
    #[event(aggregate = "order")]
    pub(crate) order: i64,
    pub(crate) address: String,
}

/// To the shipping department.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "shipping", type = "CancelParcel")]
pub(crate) struct CancelParcel {
    #[event(aggregate = "order")]
    pub(crate) order: i64,
}

/// What happened to orders: to whom it may concern.
pub(crate) const ORDER_EVENTS: &str = "order-events";

/// Somebody has placed an order.
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

/// The same as the shop of last year said it: the customer is one text, `Jane <jane@example.com>`.
#[derive(Debug, Serialize, Event)]
#[event(namespace = "shop", topic = "order-events", type = "OrderPlaced", version = 1)]
pub(crate) struct OrderPlacedLastYear {
    #[event(key, aggregate = "order")]
    pub(crate) order: i64,
    pub(crate) customer: String,
}

/// Everything is paid, reserved and booked.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "order-events", type = "OrderConfirmed")]
pub(crate) struct OrderConfirmed {
    #[event(key, aggregate = "order")]
    pub(crate) order: i64,
}

/// It came to nothing, and everything is undone.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(namespace = "shop", topic = "order-events", type = "OrderCancelled")]
pub(crate) struct OrderCancelled {
    #[event(key, aggregate = "order")]
    pub(crate) order: i64,
    pub(crate) why: Option<String>,
}
