//! What a handler gets: the body, decoded, and everything that the message says of its event.

use std::collections::BTreeMap;

use bytes::Bytes;
use pillarbox::inbox::Key;
use pillarbox::trace::{TRACEPARENT, TRACESTATE, TraceContext};
use pillarbox_sinks::message::Read;
use time::OffsetDateTime;
use uuid::Uuid;

/// An event that was received. `T` is its body: a type of the application's own, or [`Bytes`] as they came.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Received<T> {
    /// What happened, upcast to the version that the handler declared.
    pub body: T,
    /// The event's id: the same whenever it is delivered.
    pub id: Uuid,
    /// Who published it; empty if the message does not say.
    pub namespace: String,
    /// What was published. Of a message from elsewhere: the routing key, or the name of the Kafka topic.
    pub topic: String,
    /// What kind of thing happened.
    pub event_type: Option<String>,
    /// The version of the payload's shape as it was sent, before upcasting.
    pub version: i32,
    /// The key within which events are handled one after another.
    pub key: Option<String>,
    /// What the producer knows it by.
    pub dedupe_key: Option<String>,
    /// What kind of thing it happened to.
    pub aggregate_type: Option<String>,
    /// Which one it happened to.
    pub aggregate_id: Option<String>,
    /// Whose it is.
    pub tenant: Option<Uuid>,
    /// How bad it is.
    pub severity: Option<String>,
    /// When it was written, by the clock of the database that it comes from.
    pub created_at: Option<OffsetDateTime>,
    /// The event's own headers, and those that the destination added.
    pub headers: BTreeMap<String, String>,
    /// The media type of the body.
    pub content_type: Option<String>,
    /// How the body is encoded, if it is and in a way that is not ours.
    pub content_encoding: Option<String>,
    /// Which attempt of this consumer it is, 1 for the first. Begins anew when the message is delivered again.
    pub attempt: u32,
}

impl<T> Received<T> {
    /// An event with this body and a fresh id, and nothing else said of it: for tests of handlers. Its fields can be set.
    pub fn new(event_type: impl Into<String>, body: T) -> Self {
        Self {
            body,
            id: Uuid::now_v7(),
            namespace: String::new(),
            topic: String::new(),
            event_type: Some(event_type.into()),
            version: 1,
            key: None,
            dedupe_key: None,
            aggregate_type: None,
            aggregate_id: None,
            tenant: None,
            severity: None,
            created_at: None,
            headers: BTreeMap::new(),
            content_type: None,
            content_encoding: None,
            attempt: 1,
        }
    }

    /// The trace that the event belongs to. It is current while the handler runs.
    pub fn trace(&self) -> Option<TraceContext> {
        let header = |wanted: &str| {
            let mut headers = self.headers.iter();
            let found = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.as_str())
        };
        TraceContext::parse(header(TRACEPARENT)?, header(TRACESTATE)).ok()
    }

    /// The same with another body.
    pub fn with_body<U>(self, body: U) -> Received<U> {
        Received {
            body,
            id: self.id,
            namespace: self.namespace,
            topic: self.topic,
            event_type: self.event_type,
            version: self.version,
            key: self.key,
            dedupe_key: self.dedupe_key,
            aggregate_type: self.aggregate_type,
            aggregate_id: self.aggregate_id,
            tenant: self.tenant,
            severity: self.severity,
            created_at: self.created_at,
            headers: self.headers,
            content_type: self.content_type,
            content_encoding: self.content_encoding,
            attempt: self.attempt,
        }
    }

    /// What the inbox knows it by.
    pub(crate) fn inbox_key(&self, by_dedupe_key: bool) -> Key {
        match &self.dedupe_key {
            Some(key) if by_dedupe_key => Key::dedupe(&self.namespace, &self.topic, key),
            Some(_) | None => Key::event(self.id),
        }
    }
}

impl Received<Bytes> {
    /// From what a message says. `id` and `topic` stand in for what it does not say.
    pub(crate) fn from_read(read: Read, id: Option<Uuid>, topic: &str) -> Option<Self> {
        Some(Self {
            id: read.id.or(id)?,
            body: read.body,
            namespace: read.namespace.unwrap_or_default(),
            topic: read.topic.unwrap_or_else(|| topic.to_owned()),
            event_type: read.event_type,
            version: read.event_version.unwrap_or(1),
            key: read.ordering_key,
            dedupe_key: read.dedupe_key,
            aggregate_type: read.aggregate_type,
            aggregate_id: read.aggregate_id,
            tenant: read.tenant_id,
            severity: read.severity,
            created_at: read.created_at,
            headers: read.headers,
            content_type: read.content_type,
            content_encoding: read.content_encoding,
            attempt: 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_is_found_however_its_headers_are_written() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let mut event = Received::new("OrderCreated", ());
        assert_eq!(event.trace(), None);
        event.headers.insert("TraceParent".to_owned(), parent.to_owned());
        event.headers.insert("Tracestate".to_owned(), "a=1".to_owned());
        let trace = event.trace().unwrap();
        assert_eq!((trace.traceparent(), trace.tracestate()), (parent, Some("a=1")));
    }

    #[test]
    fn an_inbox_knows_an_event_by_its_dedupe_key_only_if_it_has_one_and_was_told_to() {
        let mut event = Received::new("OrderCreated", ());
        assert_eq!(event.inbox_key(true), Key::event(event.id));
        event.namespace = "shop".to_owned();
        event.topic = "orders".to_owned();
        event.dedupe_key = Some("order-1".to_owned());
        assert_eq!(event.inbox_key(false), Key::event(event.id));
        assert_eq!(event.inbox_key(true), Key::dedupe("shop", "orders", "order-1"));
    }
}
