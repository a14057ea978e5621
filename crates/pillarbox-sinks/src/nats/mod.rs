//! Delivers to NATS JetStream, acknowledged.
//!
//! Delivered means that a stream acknowledged the message, as a new one or as a duplicate. Core NATS without a stream
//! confirms nothing, so a message on a subject without a stream is not delivered.
//!
//! A stream detects duplicates by `Nats-Msg-Id`, which is the id of the row and its `seq`. Siblings and replays of one event
//! have rows of their own, so they are no duplicates. A row of an adopted table that an operator resets gets a new `seq`, so
//! it is none either. The event's id is in `pillarbox-id`.
//!
//! **If we die here** the stream may have the message. It is sent again with the same `Nats-Msg-Id`, and the stream drops it
//! within its duplicate window.

#[cfg(feature = "nats")]
mod auth;
#[cfg(feature = "nats")]
mod classify;
mod config;
#[cfg(feature = "nats")]
mod connection;
#[cfg(feature = "nats")]
mod encode;
#[cfg(feature = "nats")]
mod settings;
#[cfg(feature = "nats")]
mod sink;

pub(crate) use config::MINIMAL;
pub use config::{Config, CreateStream};
#[cfg(feature = "nats")]
pub use sink::Nats;

#[cfg(feature = "nats")]
pub(crate) fn exposure(config: &Config) -> Option<crate::ConfigError> {
    settings::Settings::new("", config).ok()?.exposure()
}
