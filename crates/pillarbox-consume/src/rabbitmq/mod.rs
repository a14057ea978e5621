//! Consumes from a queue of RabbitMQ.
//!
//! | file | |
//! |---|---|
//! | `config.rs` | what can be said |
//! | `source.rs` | the source: connected for as long as it takes |
//! | `topology.rs` | the queue, its bindings and its dead letters, declared |
//! | `read.rs` | a message as an event, pure |
//! | `dead.rs` | a message that is given up on |
//!
//! **One process at a time.** The queue has a *single active consumer* unless the configuration says otherwise: of several
//! processes one gets messages, and another takes over when it goes away. RabbitMQ hands the messages of a queue to its
//! consumers in turn; with two active ones, two events of one key would be handled at the same time in two processes.
//!
//! **If we die here** the broker gives everything that was not acknowledged to the next consumer, in its order.

mod config;
mod dead;
mod read;
mod source;
mod topology;

pub use config::{Config, QueueKind};
pub use source::RabbitMq;
