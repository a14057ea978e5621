//! Delivers to RabbitMQ.
mod config;
pub use config::Config;
