//! Delivers to Redis streams.
//!
//! Delivered means that Redis answered XADD with the id of the entry. The durability of the entry depends on the server:
//! `appendfsync` and replication.
//!
//! All entries are pipelined on one connection: each waits only for its own answer.
//!
//! **If we die here** the entry may be in the stream. It is sent again, as another entry with the same `pillarbox-id`.

#[cfg(feature = "redis")]
mod classify;
mod config;
#[cfg(feature = "redis")]
mod connection;
#[cfg(feature = "redis")]
mod encode;
#[cfg(feature = "redis")]
mod settings;
#[cfg(feature = "redis")]
mod sink;

pub use config::Config;
pub(crate) use config::MINIMAL;
#[cfg(feature = "redis")]
pub use sink::Redis;

#[cfg(feature = "redis")]
pub(crate) fn exposure(config: &Config) -> Option<crate::ConfigError> {
    settings::Settings::new(config).ok()?.exposure()
}
