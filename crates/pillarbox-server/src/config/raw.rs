//! The keys of the file as they are written. [`resolve`](super::resolve) checks and interprets them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pillarbox_sinks::Secret;
use serde::Deserialize;

use super::rate::Rate;
use super::units::{Attempts, Kept, Size, Span, Texts};

/// `[database]` and `[[database]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Database {
    pub(crate) name: Option<String>,
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
    pub(crate) wake: Option<WakeBy>,
    pub(crate) poll_interval: Option<Span>,
    pub(crate) batch: Option<usize>,
    pub(crate) max_in_flight: Option<usize>,
    pub(crate) max_bytes: Option<Size>,
    pub(crate) grace: Option<Span>,
    pub(crate) sweep_interval: Option<Span>,
    pub(crate) heartbeat: Option<Span>,
    pub(crate) lane_ranges: Option<u16>,
    pub(crate) unrouted: Option<Unrouted>,
    #[serde(default)]
    pub(crate) namespaces: Vec<String>,
}

/// `wake = …`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WakeBy {
    /// A wait in the database.
    Server,
    /// Polls.
    Poll,
}

/// `unrouted = …`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unrouted {
    /// Kept until a route matches.
    Hold,
    /// Deleted.
    Delete,
    /// Dead.
    Dead,
}

/// `[retry]`, `[destination.retry]` and `[route.retry]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
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
    /// Exactly as scheduled.
    None,
    /// Between half the wait and the whole wait.
    Equal,
}

/// `[retention]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retention {
    pub(crate) delivered: Option<Kept>,
    pub(crate) dead: Option<Kept>,
    pub(crate) sagas: Option<Kept>,
    pub(crate) inbox: Option<Kept>,
    pub(crate) archive: Option<PathBuf>,
    pub(crate) interval: Option<Span>,
    pub(crate) batch: Option<usize>,
    #[serde(default)]
    pub(crate) namespace: Vec<NamespaceRetention>,
}

/// `[[retention.namespace]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamespaceRetention {
    pub(crate) name: String,
    pub(crate) delivered: Option<Kept>,
    pub(crate) dead: Option<Kept>,
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
    /// Names under which the API is reached, besides addresses and `localhost`.
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
    pub(crate) ops_listen: Option<String>,
}

/// `[security]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Security {
    #[serde(default)]
    pub(crate) strict: bool,
}

/// The keys that every `[[destination]]` has. The others belong to the sink.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Destination {
    pub(crate) name: String,
    pub(crate) timeout: Option<Span>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) rate: Option<Rate>,
    pub(crate) burst: Option<u32>,
    pub(crate) on_dead: Option<OnDead>,
    #[serde(default)]
    pub(crate) pipelined: bool,
    pub(crate) fair_by: Option<FairBy>,
    /// The versions that the receivers know, by event type.
    #[serde(default)]
    pub(crate) upcast: BTreeMap<String, i32>,
    #[serde(default)]
    pub(crate) retry: Retry,
}

impl Destination {
    /// The keys that are removed before the sink reads the rest.
    pub(crate) const KEYS: [&'static str; 10] = [
        "name",
        "timeout",
        "concurrency",
        "rate",
        "burst",
        "on_dead",
        "pipelined",
        "fair_by",
        "upcast",
        "retry",
    ];
}

/// `on_dead = …`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnDead {
    /// The other events of the key wait.
    Block,
    /// The other events of the key continue.
    Continue,
}

/// `fair_by = …`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FairBy {
    /// Tenants take turns.
    Tenant,
}

/// `[[route]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    #[serde(default)]
    pub(crate) database: Texts,
    #[serde(default)]
    pub(crate) namespace: Texts,
    #[serde(default)]
    pub(crate) topic: Texts,
    #[serde(default)]
    pub(crate) event_type: Texts,
    #[serde(default)]
    pub(crate) aggregate_type: Texts,
    #[serde(default)]
    pub(crate) severity: Texts,
    #[serde(default)]
    pub(crate) tenant: Texts,
    pub(crate) to: Texts,
    pub(crate) timeout: Option<Span>,
    pub(crate) on_dead: Option<OnDead>,
    pub(crate) pipelined: Option<bool>,
    #[serde(default)]
    pub(crate) retry: Retry,
}

/// `[[upcast]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upcast {
    pub(crate) event_type: String,
    pub(crate) namespace: Option<String>,
    pub(crate) topic: Option<String>,
    pub(crate) from: i32,
    #[serde(default)]
    pub(crate) rename: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) default: toml::Table,
    #[serde(default)]
    pub(crate) drop: Vec<String>,
}

/// What the `error` column of an adopted table shows.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorText {
    Status,
    Full,
}

/// The default poll interval and batch size of an adopted table.
pub(crate) const POLL: Duration = Duration::from_secs(1);
pub(crate) const BATCH: usize = 100;
/// How often an adopted table is pruned by default, and at most.
pub(crate) const PRUNE_INTERVAL: Duration = Duration::from_secs(60);

/// The keys of `[[adopt]]` that do not belong to the layout.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Adopt {
    pub(crate) name: Option<String>,
    /// A built-in layout.
    pub(crate) layout: Option<String>,
    pub(crate) database: Option<String>,
    #[serde(default)]
    pub(crate) to: Texts,
    #[serde(default)]
    pub(crate) namespaces: Texts,
    #[serde(default)]
    pub(crate) tenants: Texts,
    #[serde(default)]
    pub(crate) trusted_roles: Texts,
    pub(crate) error_text: Option<ErrorText>,
    pub(crate) poll: Option<Span>,
    pub(crate) batch: Option<usize>,
    pub(crate) prune: Option<Span>,
    pub(crate) prune_dead: Option<Span>,
    pub(crate) prune_interval: Option<Span>,
    pub(crate) keep_copies: Option<Span>,
    pub(crate) stale: Option<Span>,
    pub(crate) delays: Option<Vec<Span>>,
    pub(crate) on_dead: Option<OnDead>,
    #[serde(default)]
    pub(crate) retry: Retry,
}

impl Adopt {
    /// The keys that are removed before the layout is read.
    pub(crate) const KEYS: [&'static str; 18] = [
        "name",
        "layout",
        "database",
        "to",
        "namespaces",
        "tenants",
        "trusted_roles",
        "error_text",
        "poll",
        "batch",
        "prune",
        "prune_dead",
        "prune_interval",
        "keep_copies",
        "stale",
        "delays",
        "on_dead",
        "retry",
    ];
}
