//! An event as one line of JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pillarbox::{Delivery, Outcome, Payload};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::headers;
use crate::message::Writer;

#[derive(Serialize)]
struct Line<'a> {
    id: String,
    namespace: &'a str,
    topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type: Option<&'a str>,
    event_version: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregate_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregate_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedupe_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<&'a str>,
    created_at: String,
    attempt: u32,
    content_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_encoding: Option<&'a str>,
    headers: &'a std::collections::BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// The line with its line break: a CloudEvent if the log is to have those.
pub(super) fn line(delivery: &Delivery, cloudevents: Option<&Writer>) -> Result<Vec<u8>, Outcome> {
    let mut line = match cloudevents {
        Some(writer) => cloudevent(delivery, writer)?,
        None => plain(delivery)?,
    };
    line.push(b'\n');
    Ok(line)
}

/// Line breaks stand only between values: in strings JSON escapes them.
fn cloudevent(delivery: &Delivery, writer: &Writer) -> Result<Vec<u8>, Outcome> {
    let mut line = Vec::from(writer.write(delivery)?.body);
    for byte in line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    Ok(line)
}

fn plain(delivery: &Delivery) -> Result<Vec<u8>, Outcome> {
    let event = &delivery.event;
    let (payload, payload_base64) = match &event.payload {
        Payload::Json(text) => (Some(one_line(text)?), None),
        Payload::Bytes(bytes) => (None, Some(STANDARD.encode(bytes))),
    };
    let line = Line {
        id: event.id.to_string(),
        namespace: &event.namespace,
        topic: &event.topic,
        event_type: event.event_type.as_deref(),
        event_version: event.event_version,
        aggregate_type: event.aggregate_type.as_deref(),
        aggregate_id: event.aggregate_id.as_deref(),
        tenant_id: event.tenant_id.map(|tenant| tenant.to_string()),
        ordering_key: event.ordering_key.as_deref(),
        dedupe_key: event.dedupe_key.as_deref(),
        severity: event.severity.as_deref(),
        created_at: headers::created_at(delivery),
        attempt: delivery.attempts,
        content_type: event.media_type(),
        content_encoding: event.content_encoding.as_deref(),
        headers: &event.headers,
        payload,
        payload_base64,
    };
    serde_json::to_vec(&line).map_err(|error| Outcome::reject(error.to_string()))
}

/// The same JSON without the line breaks that it may have between its values. Inside of strings there
/// are none: JSON escapes them.
fn one_line(text: &[u8]) -> Result<Box<RawValue>, Outcome> {
    let not_json = |error: String| Outcome::reject(format!("the payload is not JSON: {error}"));
    let text = std::str::from_utf8(text).map_err(|error| not_json(error.to_string()))?;
    RawValue::from_string(text.replace(['\n', '\r'], " ")).map_err(|error| not_json(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Added;
    use crate::message::{self, Format, HTTP};
    use crate::sample::delivery;
    use pillarbox::Event;
    use serde_json::{Value, json};

    fn value(event: Event) -> Value {
        parsed(line(&delivery(event), None).unwrap())
    }

    fn parsed(line: Vec<u8>) -> Value {
        let text = String::from_utf8(line).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(text.ends_with('\n'), "{text}");
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn json_stays_json_and_on_one_line() {
        let line =
            value(Event::new("shop", "orders").json_text("{\n  \"total\": 19.90,\r\n \"note\": \"a\\nb\"}"));
        assert_eq!(line["payload"], json!({"total": 19.90, "note": "a\nb"}));
        assert_eq!(line["content_type"], "application/json");
        assert_eq!(line["created_at"], "2026-01-02T03:04:05Z");
        assert!(line.get("payload_base64").is_none() && line.get("severity").is_none());
    }

    #[test]
    fn a_number_keeps_its_digits() {
        let event = Event::new("shop", "orders").json_text("123456789012345678901234567890.10");
        let text = String::from_utf8(line(&delivery(event), None).unwrap()).unwrap();
        assert!(
            text.contains("\"payload\":123456789012345678901234567890.10"),
            "{text}"
        );
    }

    #[test]
    fn bytes_become_base64() {
        let line = value(Event::new("shop", "orders").bytes(&b"\x00\xff"[..], "image/png"));
        assert_eq!(line["payload_base64"], "AP8=");
        assert_eq!(line["content_type"], "image/png");
        assert!(line.get("payload").is_none());
    }

    #[test]
    fn what_claims_to_be_json_and_is_not_is_rejected() {
        let outcome = line(&delivery(Event::new("shop", "orders").json_text("{")), None).unwrap_err();
        assert_eq!(outcome.name(), "reject");
        let bytes = Event::new("shop", "orders").json_text(&b"\"\xff\""[..]);
        let outcome = line(&delivery(bytes), None).unwrap_err();
        assert_eq!(outcome.name(), "reject");
    }

    #[test]
    fn a_cloudevent_stays_on_one_line() {
        let config = message::Config {
            format: Format::CloudEventsStructured,
            ..message::Config::default()
        };
        let writer = Writer::new("log", &HTTP, Added::default()).with_form(&config.form().unwrap());
        let event = Event::new("shop", "orders").json_text("{\n\"note\": \"a\\nb\"\r\n}");
        let line = parsed(line(&delivery(event), Some(&writer)).unwrap());
        assert_eq!(line["data"], json!({"note": "a\nb"}));
        assert_eq!(line["specversion"], "1.0");
    }
}
