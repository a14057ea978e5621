//! Upcasts events on their way out, for receivers that know one version only.

use std::borrow::Cow;
use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{Upcast, Upcasters};
use crate::compress::MAX_DECOMPRESSED;
use crate::event::Delivery;
use crate::outbox::enqueued::restored;
use crate::outcome::Outcome;
use crate::payload::Payload;
use crate::sink::Sink;

/// A sink that delivers events in the version that its receivers understand.
///
/// A newer event is delivered as it is: it cannot be made older, and the receivers see its version. An event that an
/// upcaster refuses is rejected, with the reason. The stored event stays as it was written.
///
/// ```
/// # use pillarbox::Sink;
/// use pillarbox::versions::{Upcasters, Upcasting};
///
/// # fn example(webhook: impl Sink) -> Result<(), Box<dyn std::error::Error>> {
/// let upcasters = Upcasters::new().add("OrderCreated", 1, |mut order| {
///     order["currency"] = "EUR".into();
///     Ok(order)
/// });
/// let sink = Upcasting::new(webhook, upcasters).to("OrderCreated", 2)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Upcasting<S> {
    sink: S,
    upcasters: Upcasters,
    versions: BTreeMap<String, i32>,
}

impl<S> Upcasting<S> {
    /// Before this sink, by these upcasters.
    pub fn new(sink: S, upcasters: Upcasters) -> Self {
        Self {
            sink,
            upcasters,
            versions: BTreeMap::new(),
        }
    }

    /// Sets the version of an event type that the receivers understand. Other types are delivered as they are.
    ///
    /// # Errors
    /// When the upcasters do not [lead](Upcasters::leads_to) there.
    pub fn to(mut self, event_type: impl Into<String>, version: i32) -> Result<Self, super::BrokenChain> {
        let event_type = event_type.into();
        self.upcasters.leads_to(&event_type, version)?;
        self.versions.insert(event_type, version);
        Ok(self)
    }

    /// The delivery with a payload of the version that is understood.
    fn upcast<'a>(&self, delivery: &'a Delivery) -> Result<Cow<'a, Delivery>, Outcome> {
        let event = &delivery.event;
        let wanted = |name: &str| Some((name.to_owned(), *self.versions.get(name)?));
        let Some((name, version)) = event.event_type.as_deref().and_then(wanted) else {
            return Ok(Cow::Borrowed(delivery));
        };
        if event.event_version >= version {
            return Ok(Cow::Borrowed(delivery));
        }
        let restored =
            restored(event.clone(), MAX_DECOMPRESSED).map_err(|error| Outcome::reject(error.to_string()))?;
        let content = restored.payload.as_bytes();
        let upcast = self
            .upcasters
            .upcast(&name, event.event_version, version, content);
        let content = match upcast.map_err(|error| Outcome::reject(error.to_string()))? {
            Upcast::Same => return Ok(Cow::Borrowed(delivery)),
            Upcast::Changed(content) => content,
        };
        let mut newer = delivery.clone();
        newer.event = restored;
        newer.event.event_version = version;
        newer.event.payload = match newer.event.payload {
            Payload::Json(_) => Payload::Json(content),
            Payload::Bytes(_) => Payload::Bytes(content),
        };
        Ok(Cow::Owned(newer))
    }
}

#[async_trait]
impl<S: Sink> Sink for Upcasting<S> {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        match self.upcast(delivery) {
            Ok(delivery) => self.sink.deliver(&delivery).await,
            Err(outcome) => outcome,
        }
    }

    fn keeps_order(&self) -> bool {
        self.sink.keeps_order()
    }

    fn part(&self, delivery: &Delivery) -> Option<String> {
        self.sink.part(delivery)
    }

    async fn check(&self) -> Result<(), String> {
        self.sink.check().await
    }

    async fn close(&self) {
        self.sink.close().await;
    }
}
