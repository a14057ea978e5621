//! Every sink against the place that it is for: `scripts/test` starts those that need a server.

#![allow(clippy::disallowed_methods, reason = "tests spawn and wait as they like")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod callback;
mod cloudevents;
mod environment;
#[cfg(feature = "kafka")]
mod kafka;
mod log;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "webhook")]
mod webhook;
