//! Step 4 of 5: send rows, one task per destination.

mod attempt;
mod backpressure;
mod batch;
mod breaker;
mod delivery_log;
pub(crate) mod handle;
pub(crate) mod key_queues;
mod lost_connections;
mod rate_limit;
pub(crate) mod sender;
mod streak;
mod throttled_parts;
