//! Decodes rows into deliveries. This is the hot path: columns are read by position, and JSON stays text.
//!
//! A delivery is strict: a row that no sink could send is an error, and [`super::unreadable`] ends it. What operators see
//! is lenient.

use std::collections::BTreeMap;

use bytes::Bytes;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgRow, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::types::Json;
use sqlx::{Decode, Postgres, Row, Type};
use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

use crate::store::Stub;
use pillarbox::Envelope;
use pillarbox::Payload;
use pillarbox::internal::envelope::{Columns, texts_of};
use pillarbox::{Delivery, Event};

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

/// A `timestamptz`, in microseconds. PostgreSQL knows infinite times and years that no sink can write, and the decoder of
/// the driver panics at them.
#[derive(Clone, Copy)]
struct Moment(i64);

/// The range of the times that can be written as text.
const TIMES: (OffsetDateTime, OffsetDateTime) = (
    datetime!(0001-01-01 00:00 UTC),
    datetime!(9999-12-31 23:59:59.999999 UTC),
);

/// A time outside of [`TIMES`].
#[derive(Debug, thiserror::Error)]
#[error("a time outside of the years 1 to 9999")]
pub(super) struct OutOfRange;

impl Moment {
    fn exact(self) -> Result<OffsetDateTime, OutOfRange> {
        const EPOCH: i128 = datetime!(2000-01-01 00:00 UTC).unix_timestamp_nanos();
        let time = OffsetDateTime::from_unix_timestamp_nanos(EPOCH + i128::from(self.0) * 1_000);
        let time = time.map_err(|_| OutOfRange)?;
        let (first, last) = TIMES;
        Some(time)
            .filter(|time| (first..=last).contains(time))
            .ok_or(OutOfRange)
    }

    /// The nearest time that can be written as text.
    fn nearest(self) -> OffsetDateTime {
        let (first, last) = TIMES;
        self.exact().unwrap_or(if self.0 < 0 { first } else { last })
    }
}

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        <OffsetDateTime as Type<Postgres>>::type_info()
    }
}

impl<'r> Decode<'r, Postgres> for Moment {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        match value.format() {
            PgValueFormat::Binary => Ok(Self(i64::from_be_bytes(value.as_bytes()?.try_into()?))),
            PgValueFormat::Text => Err("a time by the simple protocol".into()),
        }
    }
}

/// A time as operators see it: an infinite one becomes the first or the last that can be written.
pub(super) fn shown(row: &PgRow, column: &str) -> Result<Option<OffsetDateTime>, sqlx::Error> {
    let moment: Option<Moment> = row.try_get(column)?;
    Ok(moment.map(Moment::nearest))
}

/// JSON as operators see it. `None` also if it cannot be parsed, such as the number 1e400.
pub(super) fn shown_json(row: &PgRow, column: &str) -> Result<Option<serde_json::Value>, sqlx::Error> {
    let json: Option<JsonText> = row.try_get(column)?;
    Ok(json.and_then(|json| serde_json::from_slice(&json.0).ok()))
}

/// A row, read from left to right.
pub(super) struct Cells<'r> {
    row: &'r PgRow,
    next: usize,
}

impl<'r> Cells<'r> {
    pub(super) fn of(row: &'r PgRow) -> Self {
        Self { row, next: 0 }
    }

    fn next<T: Decode<'r, Postgres>>(&mut self) -> Result<T, sqlx::Error> {
        let cell = self.row.try_get_unchecked(self.next)?;
        self.next += 1;
        Ok(cell)
    }
}

impl Columns for Cells<'_> {
    type Error = sqlx::Error;

    fn text(&mut self, _: &'static str) -> Result<Option<String>, sqlx::Error> {
        self.next()
    }

    fn number(&mut self, _: &'static str) -> Result<i32, sqlx::Error> {
        self.next()
    }

    fn id(&mut self, _: &'static str) -> Result<Option<Uuid>, sqlx::Error> {
        self.next()
    }

    fn texts(&mut self, _: &'static str) -> Result<BTreeMap<String, String>, sqlx::Error> {
        let json: Option<JsonText> = self.next()?;
        Ok(json.map_or_else(BTreeMap::new, |json| texts_of(&json.0)))
    }
}

/// The row's id, its `seq` and its event's envelope. Every statement returns them first.
pub(super) fn envelope(cells: &mut Cells<'_>) -> Result<(Uuid, i64, Envelope), sqlx::Error> {
    let id: Uuid = cells.next()?;
    let parent: Option<Uuid> = cells.next()?;
    let seq = cells.next()?;
    Ok((id, seq, Envelope::read(parent.unwrap_or(id), cells)?))
}

/// A row as `parked.sql` returns it, and as the claim statements begin.
pub(super) fn stub(cells: &mut Cells<'_>) -> Result<Stub, sqlx::Error> {
    let (id, seq, envelope) = envelope(cells)?;
    let mut event = Event::from(envelope);
    let json: JsonText = cells.next()?;
    let body: Option<Vec<u8>> = cells.next()?;
    event.payload = body.map_or(Payload::Json(json.0), |body| Payload::Bytes(body.into()));
    event.destination = cells.next()?;
    // The due time belongs to the row, not to the event.
    Ok(Stub { id, seq, event })
}

/// A row as the claim statements return it.
pub(super) fn delivery(row: &PgRow, claim: Uuid, suspect: bool) -> Result<Delivery, sqlx::Error> {
    let mut cells = Cells::of(row);
    let Stub { id, seq, event } = stub(&mut cells)?;
    let attempts: i32 = cells.next()?;
    let max_attempts: Option<i32> = cells.next()?;
    let created_at: Moment = cells.next()?;
    let created_at = created_at
        .exact()
        .map_err(|error| sqlx::Error::Decode(error.into()))?;
    let lane: Option<i16> = cells.next()?;
    Ok(Delivery {
        id,
        seq,
        event,
        lane: lane.map(i16::unsigned_abs),
        attempts: attempts.unsigned_abs(),
        max_attempts: max_attempts.map(|max| u32::try_from(max).unwrap_or(0)),
        created_at,
        claim,
        suspect,
        contested: cells.next()?,
    })
}
