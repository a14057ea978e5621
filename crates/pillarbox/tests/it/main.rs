//! The stores, each held to the same suite.

mod memory;
mod postgres;
mod readme;
mod sqlite;
