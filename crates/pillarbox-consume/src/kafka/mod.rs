//! Consumes from topics of Kafka.
//!
//! | file | |
//! |---|---|
//! | `config.rs` | what can be said |
//! | `source.rs` | the source: a member of a consumer group |
//! | `client.rs` | what the group tells us: partitions come and go |
//! | `partition.rs` | how far a partition is done, pure |
//! | `read.rs` | a record as an event, pure |
//! | `dead.rs` | a record that is given up on |
//!
//! Kafka remembers one number for each partition: everything below it is done. Records are handled concurrently, so the
//! number is that of the lowest record which is not done, and what lies above it comes again after a crash. The inbox
//! knows it.
//!
//! **If we die here** the next member of the group begins at that number.

mod client;
mod config;
mod dead;
mod partition;
mod read;
mod source;

pub use config::{Begin, Config};
pub use source::Kafka;
