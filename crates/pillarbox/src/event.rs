//! An event as the application enqueues it, and on its way to one destination.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::envelope::Envelope;
use crate::payload::Payload;

/// The destination of rows that no route matches. They are held there until a route does.
pub const UNROUTED: &str = "unrouted";

/// Something that happened in the application, to be delivered to others.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use pillarbox::Event;
/// use serde_json::json;
///
/// let event = Event::new("shop", "orders")
///     .event_type("OrderCreated")
///     .aggregate("order", "42")
///     .ordering_key("order-42")
///     .dedupe_key("order-42/created")
///     .json(&json!({"order": 42, "total": "19.90"}))?;
/// assert_eq!(event.topic, "orders");
/// # Ok(())
/// # }
/// ```
///
/// Its [`Envelope`] has the other fields, and they read as the event's own. Nothing is checked while it is built: `enqueue`
/// refuses an event that cannot be stored or sent (see [`InvalidEvent`](crate::InvalidEvent)).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// Shared, so that a clone costs one counter: the event goes to several destinations and through several attempts.
    envelope: Arc<Envelope>,
    /// What happened: JSON or bytes.
    pub payload: Payload,
    /// The destination, if the producer chooses it instead of the routes.
    pub destination: Option<String>,
    /// Not sent before this time. Rejected together with an ordering key, because the key's other events would wait.
    pub deliver_at: Option<OffsetDateTime>,
}

impl Deref for Event {
    type Target = Envelope;

    fn deref(&self) -> &Envelope {
        &self.envelope
    }
}

impl DerefMut for Event {
    /// Copies the envelope first if a clone of the event shares it.
    fn deref_mut(&mut self) -> &mut Envelope {
        Arc::make_mut(&mut self.envelope)
    }
}

impl From<Envelope> for Event {
    /// An event with the payload `{}`.
    fn from(envelope: Envelope) -> Self {
        Self {
            envelope: Arc::new(envelope),
            payload: Payload::empty(),
            destination: None,
            deliver_at: None,
        }
    }
}

impl Event {
    /// An event with the payload `{}` and a fresh id.
    pub fn new(namespace: impl Into<String>, topic: impl Into<String>) -> Self {
        Self::from(Envelope {
            id: Uuid::now_v7(),
            namespace: namespace.into(),
            topic: topic.into(),
            ..Envelope::default()
        })
    }

    /// Sets the id, which must be new for every event.
    #[must_use]
    pub fn id(mut self, id: Uuid) -> Self {
        self.id = id;
        self
    }

    /// Sets what kind of thing happened.
    #[must_use]
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// Sets the version of the payload's shape; 1 by default.
    #[must_use]
    pub fn version(mut self, version: i32) -> Self {
        self.event_version = version;
        self
    }

    /// Sets the aggregate that the event is about.
    #[must_use]
    pub fn aggregate(mut self, kind: impl Into<String>, id: impl Into<String>) -> Self {
        self.aggregate_type = Some(kind.into());
        self.aggregate_id = Some(id.into());
        self
    }

    /// Sets the tenant that the event belongs to.
    #[must_use]
    pub fn tenant(mut self, tenant: Uuid) -> Self {
        self.tenant_id = Some(tenant);
        self
    }

    /// Sets the key that makes a second enqueue do nothing. With a tenant it must begin with the
    /// tenant's id and `/`.
    #[must_use]
    pub fn dedupe_key(mut self, key: impl Into<String>) -> Self {
        self.dedupe_key = Some(key.into());
        self
    }

    /// Sets the key within which events are sent one after another.
    #[must_use]
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Sets the severity, for the routing of notifications.
    #[must_use]
    pub fn severity(mut self, severity: impl Into<String>) -> Self {
        self.severity = Some(severity.into());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Names the destination. No route applies.
    #[must_use]
    pub fn destination(mut self, destination: impl Into<String>) -> Self {
        self.destination = Some(destination.into());
        self
    }

    /// Sets the time before which it is not sent. A time in the past means now.
    #[must_use]
    pub fn deliver_at(mut self, time: OffsetDateTime) -> Self {
        self.deliver_at = Some(time);
        self
    }

    /// Sets the payload to anything that serialises to JSON.
    ///
    /// # Errors
    /// When the value has no JSON form, for example a map whose keys are not strings.
    pub fn json<T: Serialize + ?Sized>(mut self, value: &T) -> Result<Self, serde_json::Error> {
        self.payload = Payload::json(value)?;
        Ok(self)
    }

    /// Sets the payload to JSON text that was made elsewhere. `enqueue` checks that it is JSON.
    #[must_use]
    pub fn json_text(mut self, text: impl Into<bytes::Bytes>) -> Self {
        self.payload = Payload::Json(text.into());
        self
    }

    /// Sets the payload to bytes that are not JSON, with their media type.
    #[must_use]
    pub fn bytes(mut self, body: impl Into<bytes::Bytes>, content_type: impl Into<String>) -> Self {
        self.payload = Payload::Bytes(body.into());
        self.content_type = Some(content_type.into());
        self
    }

    /// The media type that is sent with the payload.
    pub fn media_type(&self) -> &str {
        match (&self.content_type, &self.payload) {
            (Some(kind), _) => kind,
            (None, Payload::Json(_)) => "application/json",
            (None, Payload::Bytes(_)) => "application/octet-stream",
        }
    }
}

/// What can be enqueued: an [`Event`], or a type of the application's own that converts into one.
pub trait ToEvent {
    /// Converts it. A type of the application's own gives every event a fresh id.
    ///
    /// # Errors
    /// When the value has no JSON form.
    fn to_event(&self) -> Result<Cow<'_, Event>, serde_json::Error>;
}

impl ToEvent for Event {
    fn to_event(&self) -> Result<Cow<'_, Event>, serde_json::Error> {
        Ok(Cow::Borrowed(self))
    }
}

impl<T: ToEvent + ?Sized> ToEvent for &T {
    fn to_event(&self) -> Result<Cow<'_, Event>, serde_json::Error> {
        (**self).to_event()
    }
}

/// One row of the outbox that this worker has claimed: an event on its way to one destination.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The row's id. Differs from `event.id` only for siblings.
    pub id: Uuid,
    /// The order of insertion.
    pub seq: i64,
    /// What is to be delivered.
    pub event: Event,
    /// The lane of its ordering key, if the row keeps the order of that key.
    pub lane: Option<u16>,
    /// How many attempts there were, this one included.
    pub attempts: u32,
    /// After how many attempts the row is dead, if its destination is known.
    pub max_attempts: Option<u32>,
    /// When the row was written, by the store's clock.
    pub created_at: OffsetDateTime,
    /// The claim that holds the row; every settle names it.
    pub claim: Uuid,
    /// Was the row claimed because an earlier lease expired?
    pub suspect: bool,
    /// May an earlier row of its key be unfinished at a destination of this row? Then the store must write the
    /// destinations before the row is sent. A store that cannot tell sets it.
    pub contested: bool,
}

impl Delivery {
    /// Roughly how much memory the delivery holds.
    pub fn size(&self) -> usize {
        let headers: usize = self.event.headers.iter().map(|(k, v)| k.len() + v.len()).sum();
        size_of::<Self>() + size_of::<Envelope>() + self.event.payload.len() + headers
    }
}
