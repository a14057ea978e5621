//! Rows into deliveries. On the hot path: by position, and JSON stays text.

use std::collections::BTreeMap;

use bytes::Bytes;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgRow, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::types::Json;
use sqlx::{Decode, Postgres, Row, Type};
use time::OffsetDateTime;
use uuid::Uuid;

use pillarbox::event::{Delivery, Event};
use pillarbox::payload::Payload;

/// `jsonb` as the text that the database sends, not parsed.
struct JsonText(Bytes);

impl Type<Postgres> for JsonText {
    fn type_info() -> PgTypeInfo {
        <Json<()> as Type<Postgres>>::type_info()
    }
}

impl<'r> Decode<'r, Postgres> for JsonText {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        let format = value.format();
        let bytes = value.as_bytes()?;
        Ok(Self(Bytes::copy_from_slice(match format {
            // Binary jsonb is a version, always 1, and then the text.
            PgValueFormat::Binary => bytes.strip_prefix(&[1]).ok_or("an unknown version of jsonb")?,
            PgValueFormat::Text => bytes,
        })))
    }
}

/// A row as the claim statements return it.
pub(super) fn delivery(row: &PgRow, claim: Uuid, suspect: bool) -> Result<Delivery, sqlx::Error> {
    let attempts: i32 = row.try_get_unchecked(19)?;
    let max_attempts: Option<i32> = row.try_get_unchecked(20)?;
    let lane: Option<i16> = row.try_get_unchecked(22)?;
    Ok(Delivery {
        id: row.try_get_unchecked(0)?,
        seq: row.try_get_unchecked(2)?,
        event: event(row)?,
        lane: lane.map(i16::unsigned_abs),
        attempts: attempts.unsigned_abs(),
        max_attempts: max_attempts.map(|max| u32::try_from(max).unwrap_or(0)),
        created_at: row.try_get_unchecked::<OffsetDateTime, _>(21)?,
        claim,
        suspect,
        contested: row.try_get_unchecked(23)?,
    })
}

/// The event of such a row: its first nineteen columns.
pub(super) fn event(row: &PgRow) -> Result<Event, sqlx::Error> {
    let id: Uuid = row.try_get_unchecked(0)?;
    let parent: Option<Uuid> = row.try_get_unchecked(1)?;
    let body: Option<Vec<u8>> = row.try_get_unchecked(14)?;
    let payload = match body {
        Some(body) => Payload::Bytes(body.into()),
        None => Payload::Json(row.try_get_unchecked::<JsonText, _>(13)?.0),
    };
    let mut event = Event::new(
        row.try_get_unchecked::<String, _>(3)?,
        row.try_get_unchecked::<String, _>(4)?,
    );
    event.id = parent.unwrap_or(id);
    event.event_type = row.try_get_unchecked(5)?;
    event.event_version = row.try_get_unchecked(6)?;
    event.aggregate_type = row.try_get_unchecked(7)?;
    event.aggregate_id = row.try_get_unchecked(8)?;
    event.tenant_id = row.try_get_unchecked(9)?;
    event.dedupe_key = row.try_get_unchecked(10)?;
    event.ordering_key = row.try_get_unchecked(11)?;
    event.severity = row.try_get_unchecked(12)?;
    event.payload = payload;
    event.content_type = row.try_get_unchecked(15)?;
    event.content_encoding = row.try_get_unchecked(16)?;
    event.headers = row
        .try_get_unchecked::<Option<JsonText>, _>(17)?
        .map_or_else(BTreeMap::new, headers);
    event.destination = row.try_get_unchecked(18)?;
    // When it is due is the row's to know.
    Ok(event)
}

/// Headers are text. A value of another kind, written by somebody else, is sent as its JSON, and null not at all.
fn headers(json: JsonText) -> BTreeMap<String, String> {
    let parsed: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&json.0).unwrap_or_default();
    parsed
        .into_iter()
        .filter_map(|(name, value)| match value {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some((name, text)),
            other => Some((name, other.to_string())),
        })
        .collect()
}
