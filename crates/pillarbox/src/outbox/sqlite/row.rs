//! Reads an event out of a row of SQLite.
//!
//! Lenient: another program may have written the row, and one row that cannot be read would block every claim.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use crate::event::Event;
use crate::payload::Payload;

/// A row as `enqueued.sql` returns it.
///
/// # Errors
/// When a column is missing.
pub fn enqueued(row: &SqliteRow) -> Result<Event, sqlx::Error> {
    Ok(Event {
        deliver_at: moment(row, "deliver_at")?,
        ..whole_event(row)?
    })
}

/// The whole event, without the time at which it is due.
///
/// # Errors
/// When a column is missing.
pub fn whole_event(row: &SqliteRow) -> Result<Event, sqlx::Error> {
    let body: Option<Vec<u8>> = row.try_get("body")?;
    Ok(Event {
        payload: match body {
            Some(body) => Payload::Bytes(body.into()),
            None => Payload::Json(Bytes::from(row.try_get::<Vec<u8>, _>("payload")?)),
        },
        headers: headers(&text(row, "headers")?.unwrap_or_default()),
        ..event(row)?
    })
}

/// The event without its payload and headers.
///
/// # Errors
/// When a column is missing.
pub fn event(row: &SqliteRow) -> Result<Event, sqlx::Error> {
    let id = uuid(row, "id")?.unwrap_or_default();
    Ok(Event {
        id: uuid(row, "parent_id")?.unwrap_or(id),
        namespace: text(row, "namespace")?.unwrap_or_default(),
        topic: text(row, "topic")?.unwrap_or_default(),
        event_type: text(row, "event_type")?,
        event_version: narrow(row.try_get("event_version")?),
        aggregate_type: text(row, "aggregate_type")?,
        aggregate_id: text(row, "aggregate_id")?,
        tenant_id: uuid(row, "tenant_id")?,
        dedupe_key: text(row, "dedupe_key")?,
        ordering_key: text(row, "ordering_key")?,
        severity: text(row, "severity")?,
        payload: Payload::empty(),
        content_type: text(row, "content_type")?,
        content_encoding: text(row, "content_encoding")?,
        headers: BTreeMap::new(),
        destination: text(row, "destination")?,
        deliver_at: None, // it has become the time at which the row is due
    })
}

/// Text, also where it is not UTF-8: SQLite stores what it is given.
///
/// # Errors
/// When a column is missing.
pub fn text(row: &SqliteRow, column: &str) -> Result<Option<String>, sqlx::Error> {
    let bytes: Option<&[u8]> = row.try_get(column)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

/// An id; what is none counts as absent.
///
/// # Errors
/// When a column is missing.
pub fn uuid(row: &SqliteRow, column: &str) -> Result<Option<Uuid>, sqlx::Error> {
    Ok(text(row, column)?.and_then(|text| Uuid::parse_str(&text).ok()))
}

/// A time; what is none counts as absent.
///
/// # Errors
/// When a column is missing.
pub fn moment(row: &SqliteRow, column: &str) -> Result<Option<OffsetDateTime>, sqlx::Error> {
    Ok(text(row, column)?.and_then(|text| OffsetDateTime::parse(&text, &Rfc3339).ok()))
}

/// A number that our column never exceeds, though SQLite's could.
pub fn narrow(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}

/// Headers are text; a value of another kind, written by somebody else, is sent as its JSON.
fn headers(object: &str) -> BTreeMap<String, String> {
    if object == "{}" {
        return BTreeMap::new(); // most rows
    }
    let values: BTreeMap<String, Value> = serde_json::from_str(object).unwrap_or_default();
    let text = |(name, value)| match value {
        Value::Null => None,
        Value::String(text) => Some((name, text)),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Some((name, value.to_string()))
        }
    };
    values.into_iter().filter_map(text).collect()
}
