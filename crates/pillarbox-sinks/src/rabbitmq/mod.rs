//! Delivers to RabbitMQ, confirmed.
//!
//! Delivered means: the broker confirmed the message and did not return it as unroutable.
//!
//! One connection is kept, with a few channels. A channel takes messages in cohorts and begins the next
//! when the last confirmation of the one before is in; `lane.rs` says why that is not pedantry.
//!
//! Automatic recovery of the client stays off: what was in flight when a connection went away is
//! uncertain, and the dispatcher must hear that.
//!
//! **If we die here** the broker may have the message: it comes again, with the same `message_id`.

#[cfg(feature = "rabbitmq")]
mod classify;
mod config;
#[cfg(feature = "rabbitmq")]
mod dial;
#[cfg(feature = "rabbitmq")]
mod encode;
#[cfg(feature = "rabbitmq")]
mod lane;
#[cfg(feature = "rabbitmq")]
mod link;
#[cfg(feature = "rabbitmq")]
mod settings;
#[cfg(feature = "rabbitmq")]
mod sink;

pub use config::Config;
#[cfg(feature = "rabbitmq")]
#[doc(hidden)]
pub use dial::Dial;
#[cfg(feature = "rabbitmq")]
pub use sink::RabbitMq;
