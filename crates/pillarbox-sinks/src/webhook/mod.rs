//! Delivers by an HTTP POST of the payload.
//!
//! Delivered means that the receiver answered 2xx. Redirects are not followed, and proxies of the environment are ignored:
//! an event goes only to the configured URL.
//!
//! **If we die here** the receiver may have the event. It is sent again, with the same `webhook-id`.

#[cfg(feature = "webhook")]
mod classify;
mod config;
#[cfg(feature = "webhook")]
mod encode;
#[cfg(feature = "webhook")]
mod redaction;
#[cfg(feature = "webhook")]
mod sink;
mod url_tokens;

pub(crate) use config::MINIMAL;
pub use config::{Basic, Config};
#[cfg(feature = "webhook")]
pub use sink::Webhook;
#[doc(hidden)]
pub use url_tokens::has_token;

#[cfg(feature = "webhook")]
pub(crate) use sink::exposure;
