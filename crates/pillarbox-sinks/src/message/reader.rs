//! Reads a message as the event that it describes: the inverse of `writer.rs`, for consumers.
//!
//! It reads all three formats, so a destination can change its format while messages are in flight. A message of another
//! producer may have fewer fields.
//!
//! The metadata of Pillarbox decides. A message that has it and is a CloudEvent too is not read: the writer never makes one, so
//! one of the two is forged.
//!
//! **If we die here** nothing happened: reading has no effect.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use pillarbox::Envelope;
use pillarbox::internal::derived_id;
use pillarbox::text::json_error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::{Uuid, uuid};

use super::binding::{AMQP, BARE, Binding, HTTP, KAFKA, NATS, Names, REDIS};
use super::cloudevents::{STRUCTURED, is_cloudevent};
use crate::headers::{self, METADATA, is_ours};

/// The UUID namespace of ids that are derived from foreign ids. It never changes, because inboxes store such ids.
const FOREIGN: Uuid = uuid!("019a8661-2b54-5d3e-a8c1-666f72656967");

/// The protocol of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// AMQP 0-9-1: RabbitMQ.
    Amqp,
    /// Kafka.
    Kafka,
    /// HTTP: webhooks.
    Http,
    /// NATS.
    Nats,
    /// Redis streams.
    Redis,
}

impl Protocol {
    fn binding(self) -> &'static Binding {
        match self {
            Self::Amqp => &AMQP,
            Self::Kafka => &KAFKA,
            Self::Http => &HTTP,
            Self::Nats => &NATS,
            Self::Redis => &REDIS,
        }
    }
}

/// A message of any protocol.
#[derive(Debug, Clone, Default)]
pub struct Incoming {
    /// Its headers. Of several with the same name the last one counts; those that say which event it is must agree.
    pub headers: Vec<(String, String)>,
    /// The media type.
    pub content_type: Option<String>,
    /// How the body is encoded.
    pub content_encoding: Option<String>,
    /// The body.
    pub body: Bytes,
}

/// The event that a message describes. Fields of the envelope can be read directly.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Read {
    /// The event's id, instead of that of the envelope. The id of a CloudEvent is unique within its source: it is derived from
    /// `source` and `id`, unless the source is `/{namespace}` and the id is a UUID.
    pub id: Option<Uuid>,
    /// The other fields. A missing text is empty, and a missing version is 1.
    ///
    /// If the `source` of a CloudEvent is not `/{namespace}`, the namespace is the source. The event type of a CloudEvent
    /// without one is the topic.
    pub envelope: Envelope,
    /// When the event was written, by the database's clock.
    pub created_at: Option<OffsetDateTime>,
    /// The attempt of the dispatcher. CloudEvents do not have it.
    pub attempt: Option<u32>,
    /// The payload.
    pub body: Bytes,
}

impl Deref for Read {
    type Target = Envelope;

    fn deref(&self) -> &Envelope {
        &self.envelope
    }
}

impl DerefMut for Read {
    fn deref_mut(&mut self) -> &mut Envelope {
        &mut self.envelope
    }
}

/// Why a message is not an event. Never contains its values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A value of the wrong type.
    #[error("`{name}` is not {expected}")]
    Value {
        /// The header or attribute.
        name: String,
        /// The expected type.
        expected: &'static str,
    },
    /// The message says two things about the same event, and one of them may be forged.
    #[error("the message contradicts itself: {0} (let its producer send one of them)")]
    Contradiction(String),
    /// A structured CloudEvent that is not valid.
    #[error("the message is not valid {STRUCTURED}: {0}")]
    Structured(String),
}

/// Reads a message.
///
/// # Errors
/// When a field is invalid, or the message contradicts itself. A missing field is not an error here.
pub fn read(protocol: Protocol, incoming: Incoming) -> Result<Read, Unreadable> {
    let headers = Headers::sort(protocol.binding(), incoming.headers)?;
    let mut read = Read {
        body: incoming.body,
        ..Read::default()
    };
    read.content_type = incoming.content_type;
    read.content_encoding = incoming.content_encoding;
    let media_type = read.content_type.as_deref();
    if let Some(ours) = headers.ours.keys().next() {
        let attribute = headers.attributes.values().next().map(|(name, _)| name.as_str());
        let has_media_type = media_type.is_some_and(is_cloudevent);
        if let Some(other) = attribute.or(has_media_type.then_some("content-type: application/cloudevents")) {
            let other: String = other.chars().take(MAX_SHOWN).collect();
            let problem = format!("it has `{ours}` and `{other}`");
            return Err(Unreadable::Contradiction(problem));
        }
        plain(&mut read, headers)?;
    } else if media_type.is_some_and(is_structured) {
        structured(&mut read, headers)?;
    } else if headers.attributes.contains_key(BARE.specversion) {
        binary(&mut read, headers)?;
    } else {
        plain(&mut read, headers)?;
    }
    Ok(read)
}

/// How much of a foreign name an error shows.
const MAX_SHOWN: usize = 100;

fn is_structured(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(STRUCTURED)
}

/// The headers of a message by what they are.
#[derive(Default)]
struct Headers {
    /// The metadata of Pillarbox.
    ours: BTreeMap<&'static str, String>,
    /// Attributes of a CloudEvent by their bare names, each with the name of its header.
    attributes: BTreeMap<String, (String, String)>,
    own: BTreeMap<String, String>,
}

impl Headers {
    fn sort(binding: &Binding, headers: Vec<(String, String)>) -> Result<Self, Unreadable> {
        let mut sorted = Self::default();
        for (name, value) in headers {
            if is_ours(&name) {
                // Those of later versions and of dead letters are ignored.
                let known = METADATA.iter().find(|known| headers::is_same(known, &name));
                if let Some(known) = known
                    && let Some(before) = sorted.ours.insert(known, value)
                    && sorted.ours[known] != before
                {
                    return Err(twice(known));
                }
            } else if let Some(bare) = binding.bare(&name) {
                let value = binding
                    .decode(&value)
                    .ok_or_else(|| invalid(&name, "percent-encoded UTF-8"))?;
                let (bare, attribute) = (bare.to_ascii_lowercase(), (name, value));
                match sorted.attributes.get(&bare) {
                    Some((name, before)) if *before != attribute.1 => return Err(twice(name)),
                    Some(_) | None => sorted.attributes.insert(bare, attribute),
                };
            } else {
                sorted.own.insert(name, value);
            }
        }
        Ok(sorted)
    }
}

fn twice(name: &str) -> Unreadable {
    let name: String = name.chars().take(MAX_SHOWN).collect();
    Unreadable::Contradiction(format!("it has `{name}` twice, with different values"))
}

fn plain(read: &mut Read, headers: Headers) -> Result<(), Unreadable> {
    for (name, value) in headers.ours {
        read.metadata(name, value)?;
    }
    read.headers = headers.own;
    // Without a version of the specification they are ordinary headers.
    read.headers.extend(headers.attributes.into_values());
    Ok(())
}

fn binary(read: &mut Read, headers: Headers) -> Result<(), Unreadable> {
    read.headers = headers.own;
    let mut attributes = Attributes::default();
    for (bare, (name, value)) in headers.attributes {
        if bare == BARE.datacontenttype {
            match &read.content_type {
                Some(media_type) if *media_type != value => {
                    return Err(Unreadable::Contradiction(format!(
                        "`{name}` is not its media type"
                    )));
                }
                Some(_) | None => read.content_type = Some(value),
            }
        } else if !attributes.take(&bare, &value) {
            read.headers.insert(name, value);
        }
    }
    attributes.write_to(read)
}

/// The headers may repeat attributes, as the specification allows. They must say the same.
fn structured(read: &mut Read, mut headers: Headers) -> Result<(), Unreadable> {
    let event: Structured =
        serde_json::from_slice(&read.body).map_err(|error| Unreadable::Structured(json_error(&error)))?;
    read.body = match (event.data, event.data_base64) {
        (Some(data), None) => Bytes::from(data.get().as_bytes().to_vec()),
        (None, Some(text)) => STANDARD
            .decode(text)
            .map_err(|_| Unreadable::Structured("`data_base64` is not base64".to_owned()))?
            .into(),
        (None, None) => Bytes::new(),
        (Some(_), Some(_)) => {
            let problem = "it has both `data` and `data_base64`";
            return Err(Unreadable::Structured(problem.to_owned()));
        }
    };
    read.content_type = None;
    read.content_encoding = None;
    let mut attributes = Attributes::default();
    for (name, value) in event.attributes {
        let text = match value {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Bool(is) => is.to_string(),
            // The specification has no other types. An attribute that is null is absent.
            Value::Null | Value::Array(_) | Value::Object(_) => continue,
        };
        if headers
            .attributes
            .get(&name)
            .is_some_and(|(_, repeated)| *repeated == text)
        {
            headers.attributes.remove(&name);
        }
        match name.as_str() {
            name if name == BARE.datacontenttype => read.content_type = Some(text),
            name if name == BARE.contentencoding => read.content_encoding = Some(text),
            name if attributes.take(name, &text) => {}
            _ => {
                headers.own.entry(name).or_insert(text);
            }
        }
    }
    if let Some((name, _)) = headers.attributes.values().next() {
        let name: String = name.chars().take(MAX_SHOWN).collect();
        return Err(Unreadable::Contradiction(format!(
            "`{name}` is not what its body says"
        )));
    }
    read.headers = headers.own;
    attributes.write_to(read)
}

#[derive(Deserialize)]
struct Structured {
    #[serde(default, deserialize_with = "even_null")]
    data: Option<Box<RawValue>>,
    data_base64: Option<String>,
    #[serde(flatten)]
    attributes: BTreeMap<String, Value>,
}

/// `"data": null` is a payload of `null`.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl Read {
    /// Reads a header of [`METADATA`].
    fn metadata(&mut self, name: &str, value: String) -> Result<(), Unreadable> {
        match name {
            "pillarbox-id" => self.id = Some(parse(name, &value, UUID)?),
            "pillarbox-namespace" => self.namespace = value,
            "pillarbox-topic" => self.topic = value,
            "pillarbox-version" => self.event_version = parse(name, &value, VERSION)?,
            "pillarbox-created-at" => self.created_at = time(&value),
            "pillarbox-attempt" => self.attempt = value.parse().ok(),
            "pillarbox-type" => self.event_type = Some(value),
            "pillarbox-aggregate-type" => self.aggregate_type = Some(value),
            "pillarbox-aggregate-id" => self.aggregate_id = Some(value),
            "pillarbox-tenant" => self.tenant_id = Some(parse(name, &value, UUID)?),
            "pillarbox-key" => self.ordering_key = Some(value),
            "pillarbox-dedupe-key" => self.dedupe_key = Some(value),
            "pillarbox-severity" => self.severity = Some(value),
            _ => {}
        }
        Ok(())
    }
}

const UUID: &str = "a UUID";
const VERSION: &str = "a version (a whole number)";

fn parse<T: FromStr<Err: Display>>(name: &str, value: &str, expected: &'static str) -> Result<T, Unreadable> {
    value.parse().map_err(|_| invalid(name, expected))
}

fn invalid(name: &str, expected: &'static str) -> Unreadable {
    Unreadable::Value {
        name: name.chars().take(MAX_SHOWN).collect(),
        expected,
    }
}

/// RFC 3339, or seconds since 1970 for years that RFC 3339 cannot express.
fn time(text: &str) -> Option<OffsetDateTime> {
    let seconds = || OffsetDateTime::from_unix_timestamp(text.parse().ok()?).ok();
    OffsetDateTime::parse(text, &Rfc3339).ok().or_else(seconds)
}

/// The attributes of a CloudEvent by their bare names.
#[derive(Default)]
struct Attributes(BTreeMap<&'static str, String>);

/// The attributes that [`Read`] has a field for, and those that are ignored.
const KNOWN: [&str; 15] = {
    let Names {
        specversion,
        id,
        source,
        kind,
        subject,
        time,
        datacontenttype: _,
        partitionkey,
        traceparent,
        tracestate,
        topic,
        aggregatetype,
        eventversion,
        tenantid,
        dedupekey,
        severity,
        contentencoding: _,
    } = BARE;
    [
        specversion,
        id,
        source,
        kind,
        subject,
        time,
        partitionkey,
        traceparent,
        tracestate,
        topic,
        aggregatetype,
        eventversion,
        tenantid,
        dedupekey,
        severity,
    ]
};

impl Attributes {
    /// Reads a known attribute.
    fn take(&mut self, name: &str, value: &str) -> bool {
        let known = KNOWN.iter().find(|known| **known == name);
        if let Some(known) = known {
            self.0.insert(known, value.to_owned());
        }
        known.is_some()
    }

    fn write_to(mut self, read: &mut Read) -> Result<(), Unreadable> {
        let source = self.0.remove(BARE.source);
        let namespace = source.as_deref().and_then(namespace);
        if let Some(id) = self.0.remove(BARE.id) {
            let foreign = || {
                let source = source.as_deref().unwrap_or_default();
                derived_id(&FOREIGN, &format!("{} {source}{id}", source.len()))
            };
            let own: Option<Uuid> = id.parse().ok().filter(|_| namespace.is_some());
            read.id = Some(own.unwrap_or_else(foreign));
        }
        read.namespace = namespace.or(source).unwrap_or_default();
        if let Some(version) = self.0.remove(BARE.eventversion) {
            read.event_version = parse(BARE.eventversion, &version, VERSION)?;
        }
        if let Some(tenant) = self.0.remove(BARE.tenantid) {
            read.tenant_id = Some(parse(BARE.tenantid, &tenant, UUID)?);
        }
        read.created_at = self.0.remove(BARE.time).and_then(|text| time(&text));
        read.event_type = self.0.remove(BARE.kind);
        read.topic = self.0.remove(BARE.topic).unwrap_or_default();
        read.aggregate_id = self.0.remove(BARE.subject);
        read.aggregate_type = self.0.remove(BARE.aggregatetype);
        read.ordering_key = self.0.remove(BARE.partitionkey);
        read.dedupe_key = self.0.remove(BARE.dedupekey);
        read.severity = self.0.remove(BARE.severity);
        // The headers of the same names are sent too, and are the event's own.
        for name in [BARE.traceparent, BARE.tracestate] {
            if let Some(value) = self.0.remove(name) {
                let said = read
                    .headers
                    .keys()
                    .any(|header| header.eq_ignore_ascii_case(name));
                if !said {
                    read.headers.insert(name.to_owned(), value);
                }
            }
        }
        Ok(())
    }
}

/// The namespace of a `source` that is `/{namespace}`, as ours is by default.
fn namespace(source: &str) -> Option<String> {
    let name = source.strip_prefix('/')?;
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let decoded = percent_decode_str(name).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

#[cfg(test)]
mod tests;
