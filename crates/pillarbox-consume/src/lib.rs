//! Consumers for which a second delivery has no effect.
//!
//! Brokers deliver at least once. A [`Consumer`] makes the effects happen once. It receives events from RabbitMQ or Kafka and
//! calls the handler of their type in a transaction of the application's database. It marks each event in the
//! [inbox](pillarbox::inbox) there, commits, and only then acknowledges the message.
//!
//! | module | what it holds |
//! |---|---|
//! | [`consumer`] | the builder of a consumer |
//! | [`handler`], [`received`], [`handler_error`] | what an application writes: a function of a transaction and an event |
//! | [`database`] | the database that handlers work in |
//! | [`settings`], [`registry`] | options, and the mistakes that stop a start |
//! | [`subscription`] | the port to the brokers: [`rabbitmq`], [`kafka`] |
//! | [`counters`] | counts of what was done |
//!
//! Inside, a message goes from its subscription to the engine and waits in the queue of its ordering key. The processor makes
//! one attempt after another. In the end it acknowledges the message, or publishes a dead letter first.

#![cfg_attr(
    not(any(feature = "rabbitmq", feature = "kafka")),
    allow(
        dead_code,
        unused_imports,
        reason = "without a broker no subscription delivers messages"
    )
)]

mod attempt;
pub mod consumer;
pub mod counters;
pub mod database;
mod database_health;
mod dead_letter;
mod engine;
pub mod handler;
pub mod handler_error;
mod in_flight;
#[cfg(feature = "kafka")]
pub mod kafka;
mod key_queues;
mod metrics;
mod processor;
mod pruner;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
pub mod received;
pub mod registry;
pub mod settings;
pub mod subscription;

pub use consumer::Consumer;
pub use counters::{Counters, Snapshot};
pub use database::Database;
pub use handler::Handler;
pub use handler_error::HandlerError;
pub use received::Received;
pub use registry::StartError;
pub use settings::{Newer, Unknown};
pub use subscription::Subscription;
