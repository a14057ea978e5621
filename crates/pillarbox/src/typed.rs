//! Typed events: a serde type derives its event and is enqueued as it is.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox::{Event, ToEvent};
//! use serde::Serialize;
//! use uuid::Uuid;
//!
//! #[derive(Serialize, Event)]
//! #[event(topic = "orders", type = "OrderCreated", version = 2)]
//! struct OrderCreated {
//!     #[event(key, aggregate = "order")]
//!     order_id: Uuid,
//!     #[event(tenant)]
//!     tenant: Uuid,
//!     total: String,
//! }
//!
//! let created = OrderCreated {
//!     order_id: Uuid::nil(),
//!     tenant: Uuid::max(),
//!     total: "19.90".to_owned(),
//! };
//! // `outbox.enqueue(&mut transaction, &created)` takes it as it is; this is what it enqueues:
//! let event = created.to_event()?;
//! assert_eq!(event.event_type.as_deref(), Some("OrderCreated"));
//! assert_eq!(event.event_version, 2);
//! assert_eq!(event.ordering_key, Some(Uuid::nil().to_string()));
//! assert_eq!(event.aggregate_type.as_deref(), Some("order"));
//! assert_eq!(event.tenant_id, Some(Uuid::max()));
//! # Ok(())
//! # }
//! ```
//!
//! The payload is the value's serde form, as its serde attributes say. Every call makes an event with an id of its own,
//! unless the value has one.
//!
//! # On the type
//!
//! | `#[event(…)]` | sets | by default |
//! |---|---|---|
//! | `topic = "orders"` | what is published | required |
//! | `type = "OrderCreated"` | what happened, by the name that consumers know; a renamed Rust type does not change it | required |
//! | `version = 2` | the version of the payload's shape | 1 |
//! | `namespace = "shop"` | who publishes | the name of the crate that the type is in |
//! | `destination = "audit"` | the destination, instead of the routes | the routes decide |
//! | `severity = "high"` | the severity, for the routing of notifications | nothing |
//! | `aggregate = "order"` | what kind of thing it happened to | nothing |
//! | `crate = path` | where `pillarbox` is, if not under that name | `::pillarbox` |
//!
//! # On a field, or by a function
//!
//! What differs from event to event is a field, or a function `fn(&Self)` that the type names: a method of its own or any
//! other.
//!
//! | on a field | on the type | is the event's |
//! |---|---|---|
//! | `#[event(key)]` | `key = Self::key` | ordering key |
//! | `#[event(aggregate = "order")]` | `aggregate = "order", aggregate_id = Self::order` | aggregate, and which one |
//! | `#[event(aggregate_id)]` | `aggregate_id = Self::order` | which one, where the type says `aggregate` |
//! | `#[event(tenant)]` | `tenant = Self::tenant` | tenant |
//! | `#[event(dedupe_key)]` | `dedupe_key = Self::once` | dedupe key |
//! | `#[event(id)]` | `id = Self::id` | id, which is otherwise fresh in every call |
//! | `#[event(severity)]` | `severity = Self::severity` | severity |
//! | – | `destination = Self::destination` | destination |
//!
//! A field is anything that has a `Display`, or an `Option` of it, by this name; a tenant is a `Uuid` or an `Option<Uuid>`,
//! and an id is a `Uuid`, or what converts into them. A function returns `String` or `Option<String>`, and for tenant and
//! id the same as a field has.
//!
//! With a tenant, a dedupe key must begin with the tenant's id and a slash; the derive writes that before it.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox::{Event, ToEvent};
//! # use serde::Serialize;
//! # use uuid::Uuid;
//! #[derive(Serialize, Event)]
//! #[event(topic = "orders", type = "OrderPaid", dedupe_key = Self::once)]
//! struct OrderPaid {
//!     order: u64,
//!     payment: u64,
//!     #[event(tenant)]
//!     tenant: Option<Uuid>,
//! }
//!
//! impl OrderPaid {
//!     fn once(&self) -> String {
//!         format!("order-{}/paid-{}", self.order, self.payment)
//!     }
//! }
//!
//! let paid = OrderPaid { order: 42, payment: 1, tenant: Some(Uuid::nil()) };
//! let key = paid.to_event()?.dedupe_key.clone();
//! assert_eq!(key.as_deref(), Some("00000000-0000-0000-0000-000000000000/order-42/paid-1"));
//! # Ok(())
//! # }
//! ```
//!
//! # Enums
//!
//! The type has the topic. Each variant has its own `type`, and optionally `version`, `severity`, `destination` and
//! `aggregate`. Its fields are marked as those of a struct.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox::{Event, ToEvent};
//! # use serde::Serialize;
//! #[derive(Serialize, Event)]
//! #[serde(untagged)]
//! #[event(topic = "orders", aggregate = "order")]
//! enum OrderEvent {
//!     #[event(type = "OrderCreated", version = 2)]
//!     Created { #[event(key, aggregate_id)] order: u64, total: String },
//!     #[event(type = "OrderCancelled", severity = "high")]
//!     Cancelled { #[event(key, aggregate_id)] order: u64 },
//! }
//!
//! let event = OrderEvent::Cancelled { order: 42 };
//! let event = event.to_event()?;
//! assert_eq!(event.event_type.as_deref(), Some("OrderCancelled"));
//! assert_eq!(event.payload.as_bytes().as_ref(), br#"{"order":42}"#);
//! # Ok(())
//! # }
//! ```
//!
//! # What is missing does not compile
//!
//! ```compile_fail
//! # use pillarbox::Event;
//! #[derive(serde::Serialize, Event)]
//! #[event(topic = "orders")] // this event has no type; write `#[event(type = "OrderCreated")]`
//! struct OrderCreated { order: u64 }
//! ```
//!
//! ```compile_fail
//! # use pillarbox::Event;
//! #[derive(Event)] // without serde's `Serialize` there is no payload
//! #[event(topic = "orders", type = "OrderCreated")]
//! struct OrderCreated { order: u64 }
//! ```

// What the derive's code needs, under names that are ours.
#[doc(hidden)]
pub use serde::Serialize;
#[doc(hidden)]
pub use serde_json::Error;
#[doc(hidden)]
pub use uuid::Uuid;

/// The key as the rule wants it: with a tenant it begins with the tenant's id and a slash.
#[doc(hidden)]
pub fn dedupe_key(tenant: Option<Uuid>, key: Option<String>) -> Option<String> {
    match (tenant, key?) {
        (Some(tenant), key) if !key.starts_with(&format!("{tenant}/")) => Some(format!("{tenant}/{key}")),
        (Some(_) | None, key) => Some(key),
    }
}
