//! The configuration as it is in force, for people to look at. Shows no secret.

use pillarbox_dispatch::Pattern;
use serde_json::{Value, json};

use super::{Config, Destination};

impl Config {
    /// Everything, defaults included. Secrets are `***`, or the name of where they come from.
    pub(crate) fn effective(&self) -> Value {
        let time = |duration| humantime::format_duration(duration).to_string();
        let dispatch = &self.dispatch;
        json!({
            "database": {
                "url": self.database.target.to_string(),
                "schema": self.database.schema,
                "max_connections": self.database.max_connections,
            },
            "dispatch": {
                "lease": time(dispatch.lease),
                "timeout": time(dispatch.timeout),
                "poll_interval": time(dispatch.poll_interval),
                "batch": dispatch.batch,
                "max_in_flight": dispatch.max_in_flight,
                "max_bytes": dispatch.max_bytes,
                "grace": time(dispatch.grace),
                "namespaces": dispatch.scope.names().unwrap_or_default(),
            },
            "limits": { "max_payload": self.limits.payload },
            "http": { "listen": self.http.listen.to_string(), "allow_remote": self.http.allow_remote },
            "destinations": self.destinations.iter().map(Destination::effective).collect::<Vec<_>>(),
            "routes": self.routes.iter().map(|route| json!({
                "namespace": shown(&route.namespace),
                "topic": shown(&route.topic),
                "event_type": shown(&route.event_type),
                "to": route.destination,
            })).collect::<Vec<_>>(),
        })
    }
}

impl Destination {
    fn effective(&self) -> Value {
        json!({
            "name": self.name,
            "timeout": humantime::format_duration(self.timeout).to_string(),
            "concurrency": self.concurrency,
            "max_attempts": self.retry.limit().map_or(json!("unlimited"), |attempts| json!(attempts)),
            "sink": self.sink,
        })
    }
}

/// A pattern as it is written.
fn shown(pattern: &Pattern) -> String {
    match pattern {
        Pattern::Any => "*".to_owned(),
        Pattern::Prefix(prefix) => format!("{prefix}*"),
        Pattern::Exact(text) => text.clone(),
    }
}
