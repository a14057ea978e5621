//! Consumers for which a second delivery does nothing.
//!
//! Delivery is at least once; effects are to be there exactly once. A [`Consumer`] takes events from RabbitMQ or Kafka,
//! hands each to the handler of its type in a transaction of the application's database, notes it in the
//! [inbox](pillarbox::inbox) there, commits, and only then acknowledges it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`consumer`] | a consumer, put together |
//! | [`handler`], [`received`], [`failed`] | what an application writes: a function of a transaction and an event |
//! | [`database`] | where handlers work |
//! | [`settings`], [`registry`] | choices, and mistakes that are told at the start |
//! | [`source`] | where messages come from: [`rabbitmq`], [`kafka`] |
//! | [`counters`] | what was done, in numbers |
//!
//! Inside, a message goes from its source to the engine, waits in the lane of its key, and is worked on: one attempt
//! after another, then acknowledged or put among the dead letters.

#![cfg_attr(
    not(any(feature = "rabbitmq", feature = "kafka")),
    allow(
        dead_code,
        unused_imports,
        reason = "without a broker nobody hands messages over"
    )
)]

mod attempt;
pub mod consumer;
pub mod counters;
pub mod database;
mod dead;
mod engine;
pub mod failed;
pub mod handler;
#[cfg(feature = "kafka")]
pub mod kafka;
mod keeper;
mod lanes;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
pub mod received;
pub mod registry;
pub mod settings;
pub mod source;
mod work;

pub use consumer::Consumer;
pub use counters::{Counters, Snapshot};
pub use database::Database;
pub use failed::Failed;
pub use handler::Handler;
pub use received::Received;
pub use registry::StartError;
pub use settings::{Newer, Unknown};
pub use source::Source;
