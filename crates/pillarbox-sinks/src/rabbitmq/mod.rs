//! Delivers to RabbitMQ, confirmed.
//!
//! Delivered means that the broker confirmed the message and did not return it as unroutable.
//!
//! A connection has a few channels. Each has a window of messages that wait for their confirmation; `window.rs` says what
//! a confirmation proves. If too many are late, they wait apart, so that a queue that cannot store delays no other.
//!
//! The automatic recovery of the client library is off. The outcome of what was in flight on a lost connection is unknown,
//! and the dispatcher must know that.
//!
//! **If we die here** the broker may have the message. It is sent again, with the same `message_id`.

#[cfg(feature = "rabbitmq")]
mod alarm;
#[cfg(feature = "rabbitmq")]
mod channel;
#[cfg(feature = "rabbitmq")]
mod classify;
mod config;
#[cfg(feature = "rabbitmq")]
mod connection;
#[cfg(feature = "rabbitmq")]
mod dial;
#[cfg(feature = "rabbitmq")]
mod encode;
#[cfg(feature = "rabbitmq")]
mod pool;
#[cfg(feature = "rabbitmq")]
mod reply;
#[cfg(feature = "rabbitmq")]
mod settings;
#[cfg(feature = "rabbitmq")]
mod sink;
#[cfg(feature = "rabbitmq")]
mod tls;
#[cfg(feature = "rabbitmq")]
mod window;

pub use config::Config;
pub(crate) use config::MINIMAL;
#[cfg(feature = "rabbitmq")]
#[doc(hidden)]
pub use dial::Dial;
#[cfg(feature = "rabbitmq")]
pub use sink::RabbitMq;

#[cfg(feature = "rabbitmq")]
pub(crate) fn exposure(config: &Config) -> Option<crate::ConfigError> {
    settings::Settings::new("", config).ok()?.exposure()
}
