//! Delivers to Kafka: acks=all, idempotent.
//!
//! Delivered means a delivery report without error: all in-sync replicas have the record. The broker answers some errors
//! for a whole batch; `classify.rs` says what follows from that.
//!
//! **If we die here** the record may be written. It is sent again, with the same `pillarbox-id`. The idempotence of the
//! producer ends with its process.

#[cfg(feature = "kafka")]
mod classify;
mod config;
#[cfg(feature = "kafka")]
mod encode;
#[cfg(feature = "kafka")]
mod producer;
#[cfg(feature = "kafka")]
mod settings;
#[cfg(feature = "kafka")]
mod sink;

pub(crate) use config::MINIMAL;
pub use config::{Compression, Config, Mechanism, Sasl};
#[cfg(feature = "kafka")]
#[doc(hidden)]
pub use producer::log;
#[cfg(feature = "kafka")]
#[doc(hidden)]
pub use settings::{exposure as login_exposure, refused, reserved, security};
#[cfg(feature = "kafka")]
pub use sink::Kafka;

#[cfg(feature = "kafka")]
pub(crate) fn exposure(config: &Config) -> Option<crate::ConfigError> {
    settings::exposure(&config.brokers, config.sasl.as_ref(), config.tls.as_ref())
}
