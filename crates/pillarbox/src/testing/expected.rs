//! What matters of an event, and nothing else.

use serde_json::Value;
use uuid::Uuid;

use super::Expectation;
use super::compare::{Difference, Differences};
use crate::event::Event;

/// What is expected of an event, as far as it is said.
///
/// ```
/// use pillarbox::testing::Expected;
///
/// let expected = Expected::event_type("OrderCreated").version(2).aggregate("order", "42");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Expected {
    texts: Vec<(&'static str, String)>,
    version: Option<i32>,
    tenant: Option<Uuid>,
    headers: Vec<(String, String)>,
    payload: Option<Value>,
    included: Vec<Value>,
}

impl Expected {
    /// An event of this type.
    pub fn event_type(name: impl Into<String>) -> Self {
        Self::default().text("event_type", name)
    }

    /// Any event at all.
    pub fn any() -> Self {
        Self::default()
    }

    /// By this publisher.
    #[must_use]
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.text("namespace", namespace)
    }

    /// On this topic.
    #[must_use]
    pub fn topic(self, topic: impl Into<String>) -> Self {
        self.text("topic", topic)
    }

    /// With a payload of this version.
    #[must_use]
    pub fn version(mut self, version: i32) -> Self {
        self.version = Some(version);
        self
    }

    /// That happened to this.
    #[must_use]
    pub fn aggregate(self, kind: impl Into<String>, id: impl Into<String>) -> Self {
        self.text("aggregate_type", kind).text("aggregate_id", id)
    }

    /// Of this tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: Uuid) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// With this dedupe key.
    #[must_use]
    pub fn dedupe_key(self, key: impl Into<String>) -> Self {
        self.text("dedupe_key", key)
    }

    /// With this ordering key.
    #[must_use]
    pub fn ordering_key(self, key: impl Into<String>) -> Self {
        self.text("ordering_key", key)
    }

    /// As bad as this.
    #[must_use]
    pub fn severity(self, severity: impl Into<String>) -> Self {
        self.text("severity", severity)
    }

    /// On its way to this destination, because its producer said so.
    #[must_use]
    pub fn destination(self, destination: impl Into<String>) -> Self {
        self.text("destination", destination)
    }

    /// With this header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// With this payload, and no more in it.
    #[must_use]
    pub fn payload(mut self, json: Value) -> Self {
        self.payload = Some(json);
        self
    }

    /// With this in its payload. Objects may have more fields than are named; lists are compared whole.
    #[must_use]
    pub fn payload_includes(mut self, json: Value) -> Self {
        self.included.push(json);
        self
    }

    fn text(mut self, field: &'static str, text: impl Into<String>) -> Self {
        self.texts.push((field, text.into()));
        self
    }
}

impl Expectation for Expected {
    fn differences(&self, event: &Event) -> Vec<Difference> {
        let mut all = Differences::default();
        for (field, expected) in &self.texts {
            all.field(field, &Some(expected.as_str()), &text(event, field));
        }
        if self.version.is_some() {
            all.field("event_version", &self.version, &Some(event.event_version));
        }
        if self.tenant.is_some() {
            all.field("tenant_id", &self.tenant, &event.tenant_id);
        }
        for (name, expected) in &self.headers {
            all.field(
                &format!("headers.{name}"),
                &Some(expected),
                &event.headers.get(name),
            );
        }
        if let Some(json) = &self.payload {
            all.json_payload(json, &event.payload, true);
        }
        for json in &self.included {
            all.json_payload(json, &event.payload, false);
        }
        all.0
    }

    fn describe(&self) -> String {
        let mut said: Vec<String> = (self.texts.iter())
            .map(|(field, text)| format!("{field} {text:?}"))
            .collect();
        said.extend(self.version.map(|version| format!("event_version {version}")));
        said.extend(self.tenant.map(|tenant| format!("tenant_id {tenant}")));
        said.extend((self.headers.iter()).map(|(name, value)| format!("headers.{name} {value:?}")));
        said.extend(self.payload.as_ref().map(|json| format!("payload {json}")));
        said.extend((self.included.iter()).map(|json| format!("payload with {json}")));
        if said.is_empty() {
            return "any event".to_owned();
        }
        said.join(", ")
    }
}

fn text<'a>(event: &'a Event, field: &str) -> Option<&'a str> {
    if field == "destination" {
        return event.destination.as_deref();
    }
    event
        .texts()
        .find(|(name, _)| *name == field)
        .map(|(_, text)| text)
}
