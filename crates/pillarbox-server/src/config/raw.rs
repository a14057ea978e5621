//! The configuration as it is written. What it means is decided in [`resolve`](super::resolve).

use pillarbox_sinks::Secret;
use serde::Deserialize;

use super::units::{Attempts, Size, Span};

/// `[database]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Database {
    pub(crate) url: Option<Secret>,
    pub(crate) schema: Option<String>,
    pub(crate) max_connections: Option<u32>,
}

/// `[dispatch]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dispatch {
    pub(crate) lease: Option<Span>,
    pub(crate) timeout: Option<Span>,
    pub(crate) poll_interval: Option<Span>,
    pub(crate) batch: Option<usize>,
    pub(crate) max_in_flight: Option<usize>,
    pub(crate) max_bytes: Option<Size>,
    pub(crate) grace: Option<Span>,
    #[serde(default)]
    pub(crate) namespaces: Vec<String>,
}

/// `[retry]` and `[destination.retry]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    pub(crate) base: Option<Span>,
    pub(crate) max: Option<Span>,
    pub(crate) steps: Option<Vec<Span>>,
    pub(crate) max_attempts: Option<Attempts>,
    pub(crate) jitter: Option<Jitter>,
}

/// `jitter = …`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Jitter {
    /// Exactly the schedule.
    None,
    /// Between half of the wait and the whole of it.
    Equal,
}

/// `[limits]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) max_payload: Option<Size>,
}

/// `[http]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    pub(crate) listen: Option<String>,
    #[serde(default)]
    pub(crate) allow_remote: bool,
}

/// The keys that every `[[destination]]` has. The others are the sink's own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Destination {
    pub(crate) name: String,
    pub(crate) timeout: Option<Span>,
    pub(crate) concurrency: Option<usize>,
    #[serde(default)]
    pub(crate) retry: Retry,
}

impl Destination {
    /// What is taken out of the table before the sink reads the rest.
    pub(crate) const KEYS: [&'static str; 4] = ["name", "timeout", "concurrency", "retry"];
}

/// `[[route]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    pub(crate) namespace: Option<String>,
    pub(crate) topic: Option<String>,
    pub(crate) event_type: Option<String>,
    pub(crate) to: String,
}
