//! A row of PostgreSQL as `enqueued.sql` returns it: JSON, which every library can hand over.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::StoreError;
use crate::event::Event;
use crate::payload::Payload;

#[derive(Deserialize)]
struct Row {
    id: Uuid,
    namespace: String,
    topic: String,
    event_type: Option<String>,
    event_version: i32,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    tenant_id: Option<Uuid>,
    dedupe_key: Option<String>,
    ordering_key: Option<String>,
    severity: Option<String>,
    payload: Box<RawValue>,
    /// In hexadecimal digits.
    body: Option<String>,
    content_type: Option<String>,
    content_encoding: Option<String>,
    headers: BTreeMap<String, Value>,
    destination: Option<String>,
    /// In microseconds since 1970.
    deliver_at: Option<i64>,
}

pub(super) fn event(json: &str) -> Result<Event, StoreError> {
    let row: Row = serde_json::from_str(json).map_err(|error| unreadable(&error.to_string()))?;
    let payload = match &row.body {
        Some(digits) => Payload::Bytes(bytes(digits).ok_or_else(|| unreadable("its body"))?),
        None => Payload::Json(String::from(Box::<str>::from(row.payload)).into()),
    };
    Ok(Event {
        id: row.id,
        namespace: row.namespace,
        topic: row.topic,
        event_type: row.event_type,
        event_version: row.event_version,
        aggregate_type: row.aggregate_type,
        aggregate_id: row.aggregate_id,
        tenant_id: row.tenant_id,
        dedupe_key: row.dedupe_key,
        ordering_key: row.ordering_key,
        severity: row.severity,
        payload,
        content_type: row.content_type,
        content_encoding: row.content_encoding,
        headers: row.headers.into_iter().filter_map(header).collect(),
        destination: row.destination,
        deliver_at: row.deliver_at.and_then(moment),
    })
}

/// A value that is no text, written by somebody else, is sent as its JSON, and null not at all.
fn header((name, value): (String, Value)) -> Option<(String, String)> {
    match value {
        Value::Null => None,
        Value::String(text) => Some((name, text)),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Some((name, value.to_string()))
        }
    }
}

fn moment(microseconds: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(microseconds) * 1_000).ok()
}

fn bytes(digits: &str) -> Option<Bytes> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect::<Option<Vec<u8>>>().map(Bytes::from)
}

fn unreadable(why: &str) -> StoreError {
    StoreError::Other(format!("a row of the outbox cannot be read: {why}"))
}
