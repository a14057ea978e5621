//! Where Pillarbox delivers. Each sink is one folder with the same file names: `config.rs` (what can be
//! said), `encode.rs` (an event as a message, pure), `classify.rs` (what an answer means, pure) and
//! `sink.rs` (the sink itself).
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
//! What a message looks like is the same to all of them: [`message`].
//!
//! [`SinkConfig`] is the registry. The configuration of every sink can be read in every build, so that
//! a build without a sink can say how to get it.

#![cfg_attr(
    not(feature = "full"),
    allow(
        dead_code,
        unused_imports,
        reason = "some sinks do not use all that the sinks share"
    )
)]

pub mod callback;
pub mod duration;
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
mod slot;
pub mod template;
pub mod tls;
pub mod webhook;

pub use callback::{Callback, CallbackError};
pub use registry::{BuildError, ConfigError, SinkConfig};
pub use secret::Secret;
pub use template::Template;
pub use tls::Tls;
