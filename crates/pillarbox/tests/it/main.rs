//! The stores, each held to the same suite.

mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod readme;
#[cfg(feature = "sqlite")]
mod sqlite;
