//! The peers: the barest programs that do the same work, on the barest table.
//!
//! They claim a thousand rows, do something with them and ack them, one batch after another. No
//! leases that are checked, no retries, no routes, no limits: what they leave out is what Pillarbox
//! adds, and the ratio says what that costs.

#[cfg(feature = "kafka")]
pub(crate) mod kafka;
pub(crate) mod rabbitmq;
mod table;

pub(crate) use self::table::{Claimed, Plain};
