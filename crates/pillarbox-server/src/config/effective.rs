//! The effective configuration as JSON, without secrets.

use std::path::Path;
use std::time::Duration;

use pillarbox_dispatch::{OnDead, OneOf, Pattern, Settings, WakeBy};
use serde_json::{Value, json};

use super::units::in_days;
use super::{Adopt, Config, Database, Destination, Route};

impl Config {
    /// Everything, with defaults. A secret is `***` or the name of its source.
    pub(crate) fn effective(&self) -> Value {
        let time = |duration| humantime::format_duration(duration).to_string();
        let dispatch = &self.dispatch;
        json!({
            "databases": self.databases.iter().map(Database::effective).collect::<Vec<_>>(),
            "dispatch": {
                "lease": time(dispatch.lease),
                "timeout": time(dispatch.timeout),
                "wake": match dispatch.wake {
                    WakeBy::Server => "server",
                    WakeBy::Poll => "poll",
                },
                "poll_interval": time(dispatch.poll_interval),
                "batch": dispatch.batch,
                "max_in_flight": dispatch.max_in_flight,
                "max_bytes": dispatch.max_bytes,
                "grace": time(dispatch.grace),
                "sweep_interval": time(dispatch.sweep_interval),
                "heartbeat": time(dispatch.heartbeat),
                "lane_ranges": dispatch.lane_ranges,
                "unrouted": dispatch.unrouted.as_str(),
                "namespaces": dispatch.scope.names().unwrap_or_default(),
            },
            "retention": retention(dispatch, self.archive.as_deref()),
            "limits": { "max_payload": self.limits.payload },
            "http": {
                "listen": self.http.listen.to_string(),
                "allow_remote": self.http.allow_remote,
                "hosts": self.http.hosts,
                "ops_listen": self.http.ops_listen.map(|address| address.to_string()),
            },
            "security": { "strict": self.strict },
            "destinations": self.destinations.iter().map(Destination::effective).collect::<Vec<_>>(),
            "routes": self.routes.iter().map(Route::effective).collect::<Vec<_>>(),
            "upcast": self.upcasts,
            "adopt": self.adopt.iter().map(Adopt::effective).collect::<Vec<_>>(),
        })
    }
}

impl Database {
    fn effective(&self) -> Value {
        json!({
            "name": self.name,
            "url": self.url.to_string(),
            "schema": self.schema,
            "max_connections": self.max_connections,
        })
    }
}

impl Destination {
    fn effective(&self) -> Value {
        json!({
            "name": self.name,
            "timeout": humantime::format_duration(self.policy.timeout).to_string(),
            "concurrency": self.concurrency,
            "rate": self.rate.map(|rate| json!({ "per_second": rate.per_second, "burst": rate.burst })),
            "on_dead": on_dead(self.policy.on_dead),
            "pipelined": self.policy.pipelined,
            "fair_by": self.fair_by_tenant.then_some("tenant"),
            "max_attempts": attempts(self.policy.retry.limit()),
            "upcast": self.versions,
            "sink": self.sink,
            "message": self.message,
        })
    }
}

impl Adopt {
    fn effective(&self) -> Value {
        let time = |duration| humantime::format_duration(duration).to_string();
        json!({
            "name": self.table.name,
            "database": self.database,
            "layout": self.layout,
            "namespaces": self.table.speaks_for.namespaces,
            "tenants": self.table.speaks_for.tenants,
            "trusted_roles": self.trusted_roles,
            "poll": time(self.table.poll),
            "batch": self.table.batch,
            "prune": self.table.prune.map(time),
            "prune_dead": self.table.prune_dead.map(time),
            "prune_interval": time(self.table.prune_interval),
            "table": self.table.layout,
        })
    }
}

impl Route {
    /// Its conditions, destinations and overrides.
    fn effective(&self) -> Value {
        let mut shown = serde_json::Map::new();
        let mut put = |key: &str, value: Value| {
            if !value.is_null() {
                shown.insert(key.to_owned(), value);
            }
        };
        if !self.databases.is_empty() {
            put("database", json!(self.databases));
        }
        if let Some(target) = self.targets.first() {
            for (key, patterns) in [
                ("namespace", &target.namespace),
                ("topic", &target.topic),
                ("event_type", &target.event_type),
                ("aggregate_type", &target.aggregate_type),
                ("severity", &target.severity),
            ] {
                put(key, patterns_as_written(patterns));
            }
            if !target.tenant.is_empty() {
                put("tenant", json!(target.tenant));
            }
            let own = &target.overrides;
            let timeout = own
                .timeout
                .map(|time| humantime::format_duration(time).to_string());
            put("timeout", json!(timeout));
            put("on_dead", json!(own.on_dead.map(on_dead)));
            put("pipelined", json!(own.pipelined));
            put("first_attempts_only", json!(own.first_attempts_only));
            if let Some(retry) = &own.retry {
                put("max_attempts", attempts(retry.limit()));
            }
        }
        let to: Vec<&str> = self
            .targets
            .iter()
            .map(|target| target.destination.as_str())
            .collect();
        put("to", json!(to));
        Value::Object(shown)
    }
}

fn retention(settings: &Settings, archive: Option<&Path>) -> Value {
    let time = |duration| humantime::format_duration(duration).to_string();
    let kept = |age: Option<Duration>| age.map_or_else(|| "never".to_owned(), in_days);
    let retention = &settings.retention;
    let own = retention.namespaces.iter();
    let own = own.map(
        |(name, keep)| json!({ "name": name, "delivered": kept(keep.delivered), "dead": kept(keep.dead) }),
    );
    json!({
        "delivered": kept(retention.keep.delivered),
        "dead": kept(retention.keep.dead),
        "sagas": kept(retention.sagas),
        "inbox": kept(retention.inbox),
        "archive": archive,
        "interval": time(settings.prune_interval),
        "batch": settings.prune_batch,
        "namespace": own.collect::<Vec<_>>(),
    })
}

fn attempts(limit: Option<u32>) -> Value {
    limit.map_or(json!("unlimited"), |attempts| json!(attempts))
}

fn on_dead(on_dead: OnDead) -> &'static str {
    match on_dead {
        OnDead::Block => "block",
        OnDead::Continue => "continue",
    }
}

/// Patterns as they are written; null if there are none.
fn patterns_as_written(patterns: &OneOf) -> Value {
    let shown: Vec<String> = patterns
        .0
        .iter()
        .map(|pattern| match pattern {
            Pattern::Any => "*".to_owned(),
            Pattern::Prefix(prefix) => format!("{prefix}*"),
            Pattern::Exact(text) => text.clone(),
        })
        .collect();
    if shown.is_empty() {
        Value::Null
    } else {
        json!(shown)
    }
}
