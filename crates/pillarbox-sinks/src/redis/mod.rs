//! Delivers to Redis streams.
//!
//! Delivered means: Redis answered XADD with the id of the entry. How safe the entry is then is up to the
//! server: `appendfsync` and replication are its own.
//!
//! One connection is kept, on which all entries are pipelined: each waits only for its own answer.
//!
//! **If we die here** the entry may be there: it comes again, as another entry with the same
//! `pillarbox-id`.

#[cfg(feature = "redis")]
mod classify;
mod config;
#[cfg(feature = "redis")]
mod encode;
#[cfg(feature = "redis")]
mod link;
#[cfg(feature = "redis")]
mod settings;
#[cfg(feature = "redis")]
mod sink;

pub use config::Config;
#[cfg(feature = "redis")]
pub use sink::Redis;
