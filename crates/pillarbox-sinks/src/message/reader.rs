//! Reads a message as the event that it describes: the inverse of `writer.rs`, for consumers.
//!
//! It reads all three formats, so a destination can change its format while messages are in flight. A message of another
//! producer may have fewer fields.
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
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::{Uuid, uuid};

use super::binding::{AMQP, BARE, Binding, KAFKA, Names};
use super::cloudevents::STRUCTURED;
use crate::headers::PREFIX;

/// The UUID namespace of ids that are derived from foreign ids. It never changes, because inboxes store such ids.
const FOREIGN: Uuid = uuid!("019a8661-2b54-5d3e-a8c1-666f72656967");

/// The protocol of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// AMQP 0-9-1: RabbitMQ.
    Amqp,
    /// Kafka.
    Kafka,
}

/// A message of any protocol.
#[derive(Debug, Clone, Default)]
pub struct Incoming {
    /// Its headers. Of several with the same name the last one counts.
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
    /// The event's id, instead of that of the envelope. If the id of a CloudEvent is not a UUID, it is derived from
    /// `source` and `id`.
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

/// Why a message is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A value of the wrong type.
    #[error("`{name}` is `{value}`, which is not {expected}")]
    Value {
        /// The header or attribute.
        name: String,
        /// Its value.
        value: String,
        /// The expected type.
        expected: &'static str,
    },
    /// A structured CloudEvent that is not valid.
    #[error("the message is not valid {STRUCTURED}: {0}")]
    Structured(String),
}

/// Reads a message.
///
/// # Errors
/// When a field is invalid. A missing field is not an error here.
pub fn read(protocol: Protocol, incoming: Incoming) -> Result<Read, Unreadable> {
    let binding = match protocol {
        Protocol::Amqp => &AMQP,
        Protocol::Kafka => &KAFKA,
    };
    let essence = incoming.content_type.as_deref().map(essence);
    if essence.is_some_and(|essence| essence.eq_ignore_ascii_case(STRUCTURED)) {
        return structured(incoming);
    }
    let is_cloudevent = |(name, _): &(String, String)| binding.bare(name) == Some(BARE.specversion);
    if incoming.headers.iter().any(is_cloudevent) {
        return binary(binding, incoming);
    }
    plain(incoming)
}

fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

fn plain(incoming: Incoming) -> Result<Read, Unreadable> {
    let mut read = Read {
        body: incoming.body,
        ..Read::default()
    };
    read.content_type = incoming.content_type;
    read.content_encoding = incoming.content_encoding;
    for (name, value) in incoming.headers {
        let ours = name
            .get(..PREFIX.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
        if ours {
            read.header(&name, value)?;
        } else {
            read.headers.insert(name, value);
        }
    }
    Ok(read)
}

fn binary(binding: &Binding, incoming: Incoming) -> Result<Read, Unreadable> {
    let mut read = Read {
        body: incoming.body,
        ..Read::default()
    };
    read.content_type = incoming.content_type;
    read.content_encoding = incoming.content_encoding;
    let mut attributes = Attributes::default();
    for (name, value) in incoming.headers {
        match binding.bare(&name) {
            Some(bare) if attributes.take(bare, &value) => {}
            Some(_) | None => {
                read.headers.insert(name, value);
            }
        }
    }
    attributes.write_to(&mut read)?;
    Ok(read)
}

fn structured(incoming: Incoming) -> Result<Read, Unreadable> {
    let event: Structured =
        serde_json::from_slice(&incoming.body).map_err(|error| Unreadable::Structured(error.to_string()))?;
    let body = match (event.data, event.data_base64) {
        (Some(data), None) => Bytes::from(data.get().as_bytes().to_vec()),
        (None, Some(text)) => STANDARD
            .decode(text)
            .map_err(|error| Unreadable::Structured(format!("`data_base64`: {error}")))?
            .into(),
        (None, None) => Bytes::new(),
        (Some(_), Some(_)) => {
            let problem = "it has both `data` and `data_base64`";
            return Err(Unreadable::Structured(problem.to_owned()));
        }
    };
    let mut read = Read {
        body,
        ..Read::default()
    };
    read.headers = incoming.headers.into_iter().collect();
    let mut attributes = Attributes::default();
    for (name, value) in event.attributes {
        let text = match value {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Bool(is) => is.to_string(),
            // The specification has no other types. An attribute that is null is absent.
            Value::Null | Value::Array(_) | Value::Object(_) => continue,
        };
        match name.as_str() {
            name if name == BARE.datacontenttype => read.content_type = Some(text),
            name if name == BARE.contentencoding => read.content_encoding = Some(text),
            name if attributes.take(name, &text) => {}
            _ => {
                read.headers.entry(name).or_insert(text);
            }
        }
    }
    attributes.write_to(&mut read)?;
    Ok(read)
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
    /// Reads a header that begins with `pillarbox-`. Those of later versions are ignored.
    fn header(&mut self, name: &str, value: String) -> Result<(), Unreadable> {
        match name.to_ascii_lowercase().as_str() {
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
    value.parse().map_err(|_| Unreadable::Value {
        name: name.to_owned(),
        value: value.chars().take(100).collect(),
        expected,
    })
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
        if let Some(id) = self.0.remove(BARE.id) {
            let foreign = || {
                let source = source.as_deref().unwrap_or_default();
                Uuid::new_v5(&FOREIGN, format!("{} {source}{id}", source.len()).as_bytes())
            };
            read.id = Some(id.parse().unwrap_or_else(|_| foreign()));
        }
        read.namespace = source.map(namespace).unwrap_or_default();
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

/// The `source` of the namespace `shop` is `/shop`.
fn namespace(source: String) -> String {
    let decoded = source
        .strip_prefix('/')
        .filter(|name| !name.is_empty() && !name.contains('/'))
        .and_then(|name| percent_decode_str(name).decode_utf8().ok())
        .map(std::borrow::Cow::into_owned);
    decoded.unwrap_or(source)
}

#[cfg(test)]
mod tests;
