//! Consumes from a RabbitMQ queue.
//!
//! | file | |
//! |---|---|
//! | `config.rs` | the settings |
//! | `subscription.rs` | receives messages and reconnects |
//! | `prefetch.rs` | how many messages the broker sends ahead (pure) |
//! | `topology.rs` | declares the queue, its bindings and its dead letter queue |
//! | `read.rs` | decodes a message into an event (pure) |
//! | `dead_letters.rs` | publishes dead letters |
//!
//! **One process at a time.** By default the queue has a *single active consumer*: one process gets messages, and another takes
//! over when it ends. RabbitMQ distributes a queue's messages among its consumers. With two active ones, two events of one key
//! could be handled at the same time in two processes.
//!
//! **If we die here** the broker delivers every unacknowledged message to the next consumer, in its order.

mod config;
mod dead_letters;
mod prefetch;
mod read;
mod subscription;
mod topology;

pub use config::{Config, QueueKind};
pub use subscription::RabbitMq;
