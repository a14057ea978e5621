//! Rows into deliveries and records.
//!
//! Lenient where somebody else wrote: one row that cannot be read would stand in the way of every claim.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use crate::event::{Delivery, Event};
use crate::operate::Record;
use crate::payload::Payload;

/// A row as `claim.sql` returns it.
pub(super) fn delivery(row: &SqliteRow, claim: Uuid, recovered: bool) -> Result<Delivery, sqlx::Error> {
    let id = uuid(row, "id")?.unwrap_or_default();
    let body: Option<Vec<u8>> = row.try_get("body")?;
    let payload = match body {
        Some(body) => Payload::Bytes(body.into()),
        None => Payload::Json(Bytes::from(row.try_get::<Vec<u8>, _>("payload")?)),
    };
    let max_attempts: Option<i64> = row.try_get("max_attempts")?;
    Ok(Delivery {
        id,
        seq: row.try_get("seq")?,
        event: Event {
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
            payload,
            content_type: text(row, "content_type")?,
            content_encoding: text(row, "content_encoding")?,
            headers: headers(&text(row, "headers")?.unwrap_or_default()),
            destination: text(row, "destination")?,
        },
        attempts: u32::try_from(row.try_get::<i64, _>("attempts")?).unwrap_or(u32::MAX),
        max_attempts: max_attempts.map(|max| u32::try_from(max.max(0)).unwrap_or(u32::MAX)),
        created_at: moment(row, "created_at")?.unwrap_or(OffsetDateTime::UNIX_EPOCH),
        claim,
        recovered,
    })
}

/// A row as `record.sql` returns it.
pub(super) fn record(row: &SqliteRow) -> Result<Record, sqlx::Error> {
    let moment_or_epoch = |column| -> Result<OffsetDateTime, sqlx::Error> {
        Ok(moment(row, column)?.unwrap_or(OffsetDateTime::UNIX_EPOCH))
    };
    Ok(Record {
        id: uuid(row, "id")?.unwrap_or_default(),
        event_id: uuid(row, "event_id")?.unwrap_or_default(),
        seq: row.try_get("seq")?,
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
        destination: text(row, "destination")?,
        status: text(row, "status")?.unwrap_or_default(),
        attempts: narrow(row.try_get("attempts")?),
        max_attempts: row.try_get::<Option<i64>, _>("max_attempts")?.map(narrow),
        next_attempt_at: moment_or_epoch("next_attempt_at")?,
        locked_by: uuid(row, "locked_by")?,
        locked_until: moment(row, "locked_until")?,
        last_error: text(row, "last_error")?,
        created_at: moment_or_epoch("created_at")?,
        updated_at: moment_or_epoch("updated_at")?,
        delivered_at: moment(row, "delivered_at")?,
        content_type: text(row, "content_type")?,
        content_encoding: text(row, "content_encoding")?,
        headers: json(text(row, "headers")?),
        payload: text(row, "payload")?.map(|text| json(Some(text))),
        body_bytes: row.try_get("body_bytes")?,
    })
}

/// Text, also where it is not UTF-8: SQLite stores what it is given.
pub(super) fn text(row: &SqliteRow, column: &str) -> Result<Option<String>, sqlx::Error> {
    let bytes: Option<&[u8]> = row.try_get(column)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

/// An id; what is none counts as absent.
pub(super) fn uuid(row: &SqliteRow, column: &str) -> Result<Option<Uuid>, sqlx::Error> {
    Ok(text(row, column)?.and_then(|text| Uuid::parse_str(&text).ok()))
}

/// A time; what is none counts as absent.
fn moment(row: &SqliteRow, column: &str) -> Result<Option<OffsetDateTime>, sqlx::Error> {
    Ok(text(row, column)?.and_then(|text| OffsetDateTime::parse(&text, &Rfc3339).ok()))
}

/// A number that our column never exceeds, though SQLite's could.
fn narrow(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}

fn json(text: Option<String>) -> Value {
    text.and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default()
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
