//! Consumes from Kafka topics.
//!
//! | file | |
//! |---|---|
//! | `config.rs` | the settings |
//! | `subscription.rs` | receives records as a member of a consumer group |
//! | `client.rs` | assigns and revokes partitions when the group rebalances |
//! | `partition.rs` | tracks which offset can be committed (pure) |
//! | `read.rs` | decodes a record into an event (pure) |
//! | `dead_letters.rs` | publishes dead letters |
//!
//! Kafka stores one committed offset for each partition: every record below it is done. Records are handled concurrently, so
//! the consumer commits the offset of the lowest record that is not done. After a crash Kafka delivers everything above it
//! again, and the inbox detects the duplicates.
//!
//! **If we die here** the next member of the group starts at the committed offset.

mod client;
mod config;
mod dead_letters;
mod partition;
mod read;
mod subscription;

pub use config::{Begin, Config};
pub use subscription::Kafka;
