//! Delivers to NATS JetStream, acknowledged.
//!
//! Delivered means: a stream acknowledged the message, new or as a duplicate of one that it has. Core NATS
//! without a stream confirms nothing, so a subject that no stream takes is not delivered.
//!
//! The token by which a stream knows duplicates is the row's id, so that siblings and replays of one event
//! get through; the event's id is in `pillarbox-id`.
//!
//! **If we die here** the stream may have the message: it comes again with the same token, and is dropped
//! there if the stream's duplicate window still remembers it.

#[cfg(feature = "nats")]
mod auth;
#[cfg(feature = "nats")]
mod classify;
mod config;
#[cfg(feature = "nats")]
mod encode;
#[cfg(feature = "nats")]
mod link;
#[cfg(feature = "nats")]
mod settings;
#[cfg(feature = "nats")]
mod sink;

pub use config::{Config, CreateStream};
#[cfg(feature = "nats")]
pub use sink::Nats;
