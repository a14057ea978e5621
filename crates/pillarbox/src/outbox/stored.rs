//! A row of PostgreSQL as `enqueued.sql` returns it: JSON, which every library can read.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use crate::envelope::Envelope;
use crate::error::StoreError;
use crate::event::Event;
use crate::payload::Payload;

#[derive(Deserialize)]
struct Row {
    #[serde(flatten)]
    envelope: Envelope,
    payload: Box<RawValue>,
    /// In hexadecimal digits.
    body: Option<String>,
    destination: Option<String>,
    /// In microseconds since 1970.
    deliver_at: Option<i64>,
}

pub(super) fn event(json: &str) -> Result<Event, StoreError> {
    let row: Row = serde_json::from_str(json).map_err(|error| unreadable(&error.to_string()))?;
    let mut event = Event::from(row.envelope);
    event.payload = match &row.body {
        Some(digits) => Payload::Bytes(bytes(digits).ok_or_else(|| unreadable("its body"))?),
        None => Payload::Json(String::from(Box::<str>::from(row.payload)).into()),
    };
    event.destination = row.destination;
    event.deliver_at = row.deliver_at.and_then(moment);
    Ok(event)
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
