//! Delivers by an HTTP POST of the payload.
//!
//! Delivered means: the receiver answered 2xx. Redirects are not followed and the proxies of the
//! environment are not used: an event goes where the configuration says, or nowhere.
//!
//! **If we die here** the receiver may have the event: it comes again, with the same `webhook-id`.

#[cfg(feature = "webhook")]
mod classify;
mod config;
#[cfg(feature = "webhook")]
mod encode;
#[cfg(feature = "webhook")]
mod sink;

pub use config::{Basic, Config};
#[cfg(feature = "webhook")]
pub use sink::Webhook;
