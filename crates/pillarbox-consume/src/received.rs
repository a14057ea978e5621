//! What a handler receives: the decoded body and the event's other fields.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::Bytes;
use pillarbox::Envelope;
use pillarbox::inbox::Key;
use pillarbox::trace::{TRACEPARENT, TRACESTATE, TraceContext};
use pillarbox_sinks::message::Read;
use time::OffsetDateTime;
use uuid::Uuid;

/// A received event. `T` is its body: a type of the application, or the raw [`Bytes`].
///
/// The fields of its [`Envelope`] read as its own: `event.topic`, `event.ordering_key`. Fields that the message does not carry
/// are empty. For a message of another producer, the topic is the routing key or the name of the Kafka topic. `event_version`
/// is the version that was sent, before upcasting.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Received<T> {
    /// What happened, upcast to the version that the handler declared.
    pub body: T,
    /// Shared, so that another attempt costs no copy.
    envelope: Arc<Envelope>,
    /// When it was enqueued, by the producer's database clock.
    pub created_at: Option<OffsetDateTime>,
    /// The consumer's attempt, counted from 1. A redelivery starts at 1 again.
    pub attempt: u32,
}

impl<T> Deref for Received<T> {
    type Target = Envelope;

    fn deref(&self) -> &Envelope {
        &self.envelope
    }
}

impl<T> DerefMut for Received<T> {
    /// Copies the envelope first if a clone of the event shares it.
    fn deref_mut(&mut self) -> &mut Envelope {
        Arc::make_mut(&mut self.envelope)
    }
}

impl<T> Received<T> {
    /// An event with this body, a new id and defaults, for tests of handlers. Its fields can be set.
    pub fn new(event_type: impl Into<String>, body: T) -> Self {
        let mut envelope = Envelope::default();
        envelope.id = Uuid::now_v7();
        envelope.event_type = Some(event_type.into());
        Self {
            body,
            envelope: Arc::new(envelope),
            created_at: None,
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
            envelope: self.envelope,
            created_at: self.created_at,
            attempt: self.attempt,
        }
    }

    /// The key of its mark in the inbox.
    pub(crate) fn inbox_key(&self, by_dedupe_key: bool) -> Key {
        match &self.dedupe_key {
            Some(key) if by_dedupe_key => Key::dedupe(&self.namespace, &self.topic, key),
            Some(_) | None => Key::event(self.id),
        }
    }
}

impl Received<Bytes> {
    /// From a decoded message. `id` and `topic` are used where the message has none.
    pub(crate) fn from_read(read: Read, id: Option<Uuid>, topic: &str) -> Option<Self> {
        let mut envelope = read.envelope;
        envelope.id = read.id.or(id)?;
        if envelope.topic.is_empty() {
            topic.clone_into(&mut envelope.topic);
        }
        Some(Self {
            body: read.body,
            envelope: Arc::new(envelope),
            created_at: read.created_at,
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
    fn the_mark_uses_the_dedupe_key_only_if_configured_and_present() {
        let mut event = Received::new("OrderCreated", ());
        assert_eq!(event.inbox_key(true), Key::event(event.id));
        event.namespace = "shop".to_owned();
        event.topic = "orders".to_owned();
        event.dedupe_key = Some("order-1".to_owned());
        assert_eq!(event.inbox_key(false), Key::event(event.id));
        assert_eq!(event.inbox_key(true), Key::dedupe("shop", "orders", "order-1"));
    }
}
