//! The sinks that Pillarbox delivers to. Each is one folder with the same file names: `config.rs` (its keys),
//! `encode.rs` (an event as a message, pure), `classify.rs` (an answer as an outcome, pure) and `sink.rs` (the sink
//! itself). A sink with a connection of its own has `settings.rs` (checked configuration) and `connection.rs` too.
//!
//! | sink | feature | confirmed means |
//! |---|---|---|
//! | [`callback`] | – | the function returned `Ok` |
//! | [`log`] | – | the line was written and flushed |
//! | [`webhook`] | `webhook` | the receiver answered 2xx |
//! | [`rabbitmq`] | `rabbitmq` | the broker confirmed and routed the message |
//! | [`kafka`] | `kafka` | all in-sync replicas have the record |
//! | [`nats`] | `nats` | a JetStream stream acknowledged the message |
//! | [`redis`] | `redis` | the entry was added to the stream |
//!
//! All of them send the same [`message`].
//!
//! [`registry`] has the table of sinks. Every build reads the configuration of every sink. A build without the sink
//! then says how to build it.

#![cfg_attr(
    not(feature = "full"),
    allow(
        dead_code,
        unused_imports,
        reason = "some sinks do not use all that the sinks share"
    )
)]

mod address;
pub mod callback;
mod connection_log;
mod connector;
pub mod duration;
mod exposure;
pub mod headers;
pub mod kafka;
pub mod log;
pub mod message;
pub mod nats;
mod percent;
pub mod rabbitmq;
pub mod redis;
pub mod registry;
#[cfg(test)]
mod sample;
pub mod secret;
pub mod size;
pub mod template;
pub mod tls;
pub mod webhook;

pub use callback::{Callback, CallbackError};
#[doc(hidden)]
pub use connection_log::ConnectionLog;
pub use registry::{BuildError, ConfigError, SinkConfig};
pub use secret::Secret;
pub use template::Template;
pub use tls::Tls;
