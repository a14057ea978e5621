//! The peers: the simplest programs that do the same work, on the simplest table.
//!
//! They claim 1,000 rows, deliver them and ack them, one batch after another. They check no leases and have no retries, routes or
//! limits. The ratio shows what these features of Pillarbox cost.

#[cfg(feature = "kafka")]
pub(crate) mod kafka;
pub(crate) mod rabbitmq;
mod table;

pub(crate) use self::table::{Claimed, Plain};
