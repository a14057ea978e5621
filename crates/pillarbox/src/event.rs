//! What the application says happened, and the same thing on its way to one destination.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::payload::Payload;

/// The destination of rows that no route matches. They are held there until a route does.
pub const UNROUTED: &str = "unrouted";

/// Something that happened, to be told to others.
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
/// Nothing is checked while it is built; `enqueue` refuses an event that cannot be stored or sent
/// (see [`validate`](crate::validate)).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// What sinks, inboxes and people know the event by. It never changes, on no attempt.
    pub id: Uuid,
    /// Who publishes: a service or module.
    pub namespace: String,
    /// What is published, within the namespace.
    pub topic: String,
    /// What kind of thing happened, for example `OrderCreated`.
    pub event_type: Option<String>,
    /// The version of the payload's shape.
    pub event_version: i32,
    /// What kind of thing it happened to, for example `order`.
    pub aggregate_type: Option<String>,
    /// Which one it happened to.
    pub aggregate_id: Option<String>,
    /// Whose it is. For routing and scope; never part of idempotency.
    pub tenant_id: Option<Uuid>,
    /// Unique with namespace and topic: a second event with the same key is "already enqueued".
    pub dedupe_key: Option<String>,
    /// Events with equal namespace, key and destination are sent one after another.
    pub ordering_key: Option<String>,
    /// How bad it is, for the routing of notifications.
    pub severity: Option<String>,
    /// What happened, in the application's own words.
    pub payload: Payload,
    /// The media type of the payload, if it is not plain JSON.
    pub content_type: Option<String>,
    /// How the payload is encoded, for example `zstd`.
    pub content_encoding: Option<String>,
    /// Sent along with the event.
    pub headers: BTreeMap<String, String>,
    /// Where it goes, if the producer knows better than the routes.
    pub destination: Option<String>,
    /// Not sent before this. Refused together with an ordering key, which it would hold up.
    pub deliver_at: Option<OffsetDateTime>,
}

impl Event {
    /// An event with the payload `{}` and a fresh id.
    pub fn new(namespace: impl Into<String>, topic: impl Into<String>) -> Self {
        Self {
            id: Uuid::now_v7(),
            namespace: namespace.into(),
            topic: topic.into(),
            event_type: None,
            event_version: 1,
            aggregate_type: None,
            aggregate_id: None,
            tenant_id: None,
            dedupe_key: None,
            ordering_key: None,
            severity: None,
            payload: Payload::empty(),
            content_type: None,
            content_encoding: None,
            headers: BTreeMap::new(),
            destination: None,
            deliver_at: None,
        }
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

    /// Sets the version of the payload's shape; 1 unless said otherwise.
    #[must_use]
    pub fn version(mut self, version: i32) -> Self {
        self.event_version = version;
        self
    }

    /// Sets what it happened to.
    #[must_use]
    pub fn aggregate(mut self, kind: impl Into<String>, id: impl Into<String>) -> Self {
        self.aggregate_type = Some(kind.into());
        self.aggregate_id = Some(id.into());
        self
    }

    /// Sets whose it is.
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

    /// Sets how bad it is.
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

    /// Names the destination, past all routes.
    #[must_use]
    pub fn destination(mut self, destination: impl Into<String>) -> Self {
        self.destination = Some(destination.into());
        self
    }

    /// Sets when it may be sent. A time in the past is now.
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

    /// The media type that a receiver should be told.
    pub fn media_type(&self) -> &str {
        match (&self.content_type, &self.payload) {
            (Some(kind), _) => kind,
            (None, Payload::Json(_)) => "application/json",
            (None, Payload::Bytes(_)) => "application/octet-stream",
        }
    }
}

/// What can be enqueued: an [`Event`], or a type of the application's own that says of itself what event it is.
pub trait ToEvent {
    /// The event. A type of the application's own gives a fresh id to each that it makes.
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
    /// The lane of its ordering key, if it keeps to its place among the others of that key.
    pub lane: Option<u16>,
    /// How many attempts there were, this one included.
    pub attempts: u32,
    /// After how many attempts the row is dead, if the row knows.
    pub max_attempts: Option<u32>,
    /// When the row was written, by the store's clock.
    pub created_at: OffsetDateTime,
    /// The claim that holds the row; every settle names it.
    pub claim: Uuid,
    /// Was the row claimed because an earlier lease ran out?
    pub suspect: bool,
    /// May an earlier row of its key be unfinished at a destination that this one may go to as well? Then where it
    /// goes has to be [written down](crate::Sink) first. A store that does not know says yes.
    pub contested: bool,
}

impl Delivery {
    /// Roughly how much memory the delivery holds.
    pub fn size(&self) -> usize {
        let headers: usize = self.event.headers.iter().map(|(k, v)| k.len() + v.len()).sum();
        size_of::<Self>() + self.event.payload.len() + headers
    }
}
