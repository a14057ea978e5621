//! Delivers to Kafka.
mod config;
pub use config::{Compression, Config, Mechanism, Sasl};
