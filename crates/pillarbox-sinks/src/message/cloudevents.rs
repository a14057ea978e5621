//! An event as a CloudEvent, version 1.0.
//!
//! | attribute | is |
//! |---|---|
//! | `id` | the event's id |
//! | `source` | the destination's `source`, by default `/{namespace}` |
//! | `type` | the event type, else the topic |
//! | `subject` | the aggregate's id |
//! | `time` | when the row was written |
//! | `datacontenttype` | the media type |
//! | `partitionkey`, `traceparent`, `tracestate` | the documented extensions for partitioning and tracing |
//! | `topic`, `aggregatetype`, `eventversion`, `tenantid`, `dedupekey`, `severity` | extensions of Pillarbox |
//! | `contentencoding` | extension of Pillarbox, only in structured mode, which has no header for it |

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pillarbox::trace::{TRACEPARENT, TRACESTATE, TraceContext};
use pillarbox::{Delivery, Event, Outcome};
use serde::ser::{SerializeMap, Serializer};
use serde_json::value::RawValue;
use time::format_description::well_known::Rfc3339;

use super::binding::{BARE, Names};
use super::config::Source;
use crate::headers::Header;

/// The media type of the JSON format.
pub(crate) const STRUCTURED: &str = "application/cloudevents+json";

/// Does the media type say that a body is a CloudEvent, or several, in whatever format?
pub(super) fn is_cloudevent(media_type: &str) -> bool {
    const PREFIX: &str = "application/cloudevents";
    let start = media_type.trim_start().get(..PREFIX.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// The attributes without the media type. Rejects an event with a value that CloudEvents does not allow.
pub(super) fn attributes<'a>(
    delivery: &'a Delivery,
    destination: &str,
    source: &Source,
    names: &Names,
) -> Result<Vec<Header<'a>>, Outcome> {
    let event = &delivery.event;
    let mut attributes: Vec<Header<'a>> = Vec::with_capacity(20);
    attributes.push((names.specversion, "1.0".into()));
    attributes.push((names.id, event.id.to_string().into()));
    attributes.push((names.source, source.render(delivery, destination)?.into()));
    attributes.push((
        names.kind,
        event.event_type.as_ref().unwrap_or(&event.topic).into(),
    ));
    // RFC 3339 cannot express every year; the attribute is optional.
    if let Ok(time) = delivery.created_at.format(&Rfc3339) {
        attributes.push((names.time, time.into()));
    }
    attributes.push((names.topic, event.topic.as_str().into()));
    attributes.push((names.eventversion, event.event_version.to_string().into()));
    if let Some(tenant) = event.tenant_id {
        attributes.push((names.tenantid, tenant.to_string().into()));
    }
    for (name, value) in [
        (names.subject, &event.aggregate_id),
        (names.partitionkey, &event.ordering_key),
        (names.aggregatetype, &event.aggregate_type),
        (names.dedupekey, &event.dedupe_key),
        (names.severity, &event.severity),
    ] {
        if let Some(value) = value {
            attributes.push((name, value.as_str().into()));
        }
    }
    if let Some(trace) = trace(event) {
        attributes.push((names.traceparent, trace.traceparent().to_owned().into()));
        let state = trace.tracestate().map(|state| state.to_owned().into());
        attributes.extend(state.map(|state| (names.tracestate, state)));
    }
    match attributes.iter().find(|(_, value)| !is_legal(value)) {
        None => Ok(attributes),
        Some((name, _)) => Err(illegal(name)),
    }
}

/// The whole event in the JSON format. A JSON payload stays as it is, any other is in base64.
pub(super) fn structured(
    delivery: &Delivery,
    destination: &str,
    source: &Source,
) -> Result<Vec<u8>, Outcome> {
    let event = &delivery.event;
    let attributes = attributes(delivery, destination, source, &BARE)?;
    for text in [Some(event.media_type()), event.content_encoding.as_deref()] {
        if !text.is_none_or(is_legal) {
            return Err(illegal(BARE.datacontenttype));
        }
    }
    let mut body = Vec::with_capacity(1024 + event.payload.len());
    let written = write(&mut body, &attributes, event);
    written.map_err(|error| Outcome::reject(format!("the event has no JSON form: {error}")))?;
    Ok(body)
}

fn write(body: &mut Vec<u8>, attributes: &[Header<'_>], event: &Event) -> serde_json::Result<()> {
    let mut serializer = serde_json::Serializer::new(body);
    let mut map = serializer.serialize_map(None)?;
    for (name, value) in attributes {
        if *name == BARE.eventversion {
            map.serialize_entry(name, &event.event_version)?;
        } else {
            map.serialize_entry(name, value)?;
        }
    }
    map.serialize_entry(BARE.datacontenttype, event.media_type())?;
    if let Some(encoding) = &event.content_encoding {
        map.serialize_entry(BARE.contentencoding, encoding)?;
    }
    match json(event) {
        Some(json) => map.serialize_entry("data", json)?,
        None => map.serialize_entry("data_base64", &STANDARD.encode(event.payload.as_bytes()))?,
    }
    map.end()
}

/// The payload, if its media type is JSON and it is valid. It is checked and not parsed.
fn json(event: &Event) -> Option<&RawValue> {
    if event.content_encoding.is_some() || !is_json(event.media_type()) {
        return None;
    }
    serde_json::from_slice(event.payload.as_bytes()).ok()
}

/// Is the media type JSON: `*/json` or `*/*+json`, with any parameters?
pub(crate) fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let Some((_, subtype)) = essence.split_once('/') else {
        return false;
    };
    let subtype = subtype.to_ascii_lowercase();
    subtype == "json" || subtype.ends_with("+json")
}

/// The trace context of the event, if it is valid.
fn trace(event: &Event) -> Option<TraceContext> {
    let header = |wanted: &str| {
        let found = event
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.as_str())
    };
    TraceContext::parse(header(TRACEPARENT)?, header(TRACESTATE)).ok()
}

/// Is the text a valid attribute value: without control characters and noncharacters of Unicode?
fn is_legal(text: &str) -> bool {
    let is_noncharacter =
        |c: char| matches!(u32::from(c), 0xFDD0..=0xFDEF) || u32::from(c) & 0xFFFE == 0xFFFE;
    !text.is_empty() && !text.chars().any(|c| c.is_control() || is_noncharacter(c))
}

fn illegal(name: &str) -> Outcome {
    Outcome::reject(format!(
        "the attribute `{name}` is empty or has a control character, which CloudEvents does not allow"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::delivery;
    use serde_json::{Value, json};
    use time::macros::datetime;
    use uuid::Uuid;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn event() -> Event {
        Event::new("shop", "orders")
    }

    fn full() -> Event {
        event()
            .event_type("OrderCreated")
            .version(3)
            .aggregate("order", "42")
            .tenant(Uuid::nil())
            .dedupe_key("once")
            .ordering_key("order-42")
            .severity("low")
            .header("Traceparent", PARENT)
            .header("tracestate", "a=1")
    }

    fn object(event: Event) -> Value {
        serde_json::from_slice(&text(event)).unwrap()
    }

    fn text(event: Event) -> Vec<u8> {
        structured(&delivery(event), "partner", &Source::default()).unwrap()
    }

    fn rejected(event: Event) -> String {
        match structured(&delivery(event), "partner", &Source::default()) {
            Err(Outcome::Reject { reason }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_field_has_its_attribute() {
        let event = full();
        let id = event.id.to_string();
        assert_eq!(
            object(event.json(&json!({"total": 1})).unwrap()),
            json!({
                "specversion": "1.0",
                "id": id,
                "source": "/shop",
                "type": "OrderCreated",
                "subject": "42",
                "time": "2026-01-02T03:04:05Z",
                "datacontenttype": "application/json",
                "topic": "orders",
                "eventversion": 3,
                "tenantid": "00000000-0000-0000-0000-000000000000",
                "partitionkey": "order-42",
                "aggregatetype": "order",
                "dedupekey": "once",
                "severity": "low",
                "traceparent": PARENT,
                "tracestate": "a=1",
                "data": {"total": 1},
            })
        );
    }

    #[test]
    fn what_is_not_set_is_not_there_and_the_topic_stands_in_for_the_type() {
        let event = event();
        let id = event.id.to_string();
        assert_eq!(
            object(event),
            json!({
                "specversion": "1.0", "id": id, "source": "/shop", "type": "orders", "topic": "orders",
                "time": "2026-01-02T03:04:05Z", "eventversion": 1, "datacontenttype": "application/json", "data": {},
            })
        );
    }

    #[test]
    fn json_keeps_its_digits_and_null_is_a_value() {
        let long = event().json_text("{\"n\": 123456789012345678901234567890.10}");
        assert!(
            String::from_utf8(text(long))
                .unwrap()
                .contains("123456789012345678901234567890.10")
        );
        let null = object(event().json_text("null"));
        assert_eq!(null.as_object().unwrap().get("data"), Some(&Value::Null));
    }

    #[test]
    fn bytes_are_data_only_if_they_are_the_json_that_they_say() {
        for (bytes, media_type, data) in [
            (&b"{\"a\":1}"[..], "application/json", Some(json!({"a": 1}))),
            (
                b"[1]",
                "application/vnd.shop+json; charset=utf-8",
                Some(json!([1])),
            ),
            (b"1", "text/JSON", Some(json!(1))),
            (b"{\"a\":1}", "text/plain", None),
            (b"{\"a\":1}", "json", None),
            (b"{", "application/json", None),
            (b"", "application/json", None),
        ] {
            let object = object(event().bytes(bytes, media_type));
            assert_eq!(object.get("data"), data.as_ref(), "{media_type}");
            assert_eq!(object["datacontenttype"], media_type);
            let base64 = data.is_none().then(|| Value::from(STANDARD.encode(bytes)));
            assert_eq!(object.get("data_base64"), base64.as_ref(), "{media_type}");
        }
    }

    #[test]
    fn an_encoding_of_the_producers_own_is_named_and_its_bytes_are_left_alone() {
        let mut event = event().bytes(&b"{}"[..], "application/json");
        event.content_encoding = Some("gzip".to_owned());
        let object = object(event);
        assert_eq!(object["contentencoding"], "gzip");
        assert_eq!(object["data_base64"], "e30=");
    }

    #[test]
    fn what_cloudevents_cannot_carry_is_rejected_with_the_attribute() {
        for (event, name) in [
            (event().event_type("a\nb"), "`type`"),
            (event().ordering_key("\u{7f}"), "`partitionkey`"),
            (event().aggregate("order", "\u{9f}"), "`subject`"),
            (event().severity("\u{fffe}"), "`severity`"),
            (event().dedupe_key("\u{fdd0}"), "`dedupekey`"),
            (event().bytes(&b""[..], "text/plain\n"), "`datacontenttype`"),
        ] {
            let reason = rejected(event);
            assert!(reason.contains(name), "{reason}");
        }
        assert_eq!(object(event().severity("größe 😀"))["severity"], "größe 😀");
    }

    #[test]
    fn a_trace_that_is_none_is_no_attribute() {
        let object = object(
            event()
                .header("traceparent", "00-abc-1")
                .header("tracestate", "a=1"),
        );
        assert!(object.get("traceparent").is_none() && object.get("tracestate").is_none());
    }

    #[test]
    fn a_time_that_cannot_be_written_is_left_out() {
        let mut early = delivery(event());
        early.created_at = datetime!(-0001-01-01 00:00 UTC);
        let attributes = attributes(&early, "partner", &Source::default(), &BARE).unwrap();
        assert!(attributes.iter().all(|(name, _)| *name != "time"));
    }
}
