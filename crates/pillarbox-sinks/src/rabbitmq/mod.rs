//! Delivers to RabbitMQ, confirmed.
//!
//! Delivered means: the broker confirmed the message and did not return it as unroutable.
//!
//! One connection is kept. Each message in flight has a channel of its own out of a pool, for two
//! reasons. The client hands a returned message to whichever confirmation on that channel comes next, so
//! that with several in flight an unroutable message can pass for delivered. And what the broker refuses
//! costs the channel: alone on it, a bad message harms no neighbour and is known by name. Confirms are
//! still pipelined over the connection; how fast that is stands in `link.rs`.
//!
//! Automatic recovery of the client stays off: what was in flight when a connection went away is
//! uncertain, and the dispatcher must hear that.
//!
//! **If we die here** the broker may have the message: it comes again, with the same `message_id`.

#[cfg(feature = "rabbitmq")]
mod classify;
mod config;
#[cfg(feature = "rabbitmq")]
mod encode;
#[cfg(feature = "rabbitmq")]
mod link;
#[cfg(feature = "rabbitmq")]
mod settings;
#[cfg(feature = "rabbitmq")]
mod sink;

pub use config::Config;
#[cfg(feature = "rabbitmq")]
pub use sink::RabbitMq;
