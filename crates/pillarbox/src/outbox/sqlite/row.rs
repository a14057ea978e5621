//! Reads an event out of a row of SQLite.
//!
//! Lenient: another program may have written the row, and one row that cannot be read would block every claim.

use std::collections::BTreeMap;

use bytes::Bytes;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use crate::envelope::{Columns, Envelope, texts_of};
use crate::event::Event;
use crate::payload::Payload;

/// A row as `enqueued.sql` returns it.
///
/// # Errors
/// When a column is missing.
pub fn enqueued(row: &SqliteRow) -> Result<Event, sqlx::Error> {
    let mut event = whole_event(row)?;
    event.deliver_at = moment(row, "deliver_at")?;
    Ok(event)
}

/// The whole event, without the time at which it is due.
///
/// # Errors
/// When a column is missing.
pub fn whole_event(row: &SqliteRow) -> Result<Event, sqlx::Error> {
    let mut event = event(row)?;
    let body: Option<Vec<u8>> = row.try_get("body")?;
    event.payload = match body {
        Some(body) => Payload::Bytes(body.into()),
        None => Payload::Json(Bytes::from(row.try_get::<Vec<u8>, _>("payload")?)),
    };
    Ok(event)
}

/// The event without its payload.
///
/// # Errors
/// When a column is missing.
pub fn event(row: &SqliteRow) -> Result<Event, sqlx::Error> {
    let mut event = Event::from(envelope(row)?);
    event.destination = text(row, "destination")?;
    Ok(event) // what was `deliver_at` has become the time at which the row is due
}

/// The envelope of the row's event.
///
/// # Errors
/// When a column is missing.
pub fn envelope(row: &SqliteRow) -> Result<Envelope, sqlx::Error> {
    let id = uuid(row, "id")?.unwrap_or_default();
    let event_id = uuid(row, "parent_id")?.unwrap_or(id);
    Envelope::read(event_id, &mut ByName(row))
}

/// Columns are found by their names.
struct ByName<'a>(&'a SqliteRow);

impl Columns for ByName<'_> {
    type Error = sqlx::Error;

    fn text(&mut self, column: &'static str) -> Result<Option<String>, sqlx::Error> {
        text(self.0, column)
    }

    fn number(&mut self, column: &'static str) -> Result<i32, sqlx::Error> {
        self.0.try_get(column).map(narrow)
    }

    fn id(&mut self, column: &'static str) -> Result<Option<Uuid>, sqlx::Error> {
        uuid(self.0, column)
    }

    fn texts(&mut self, column: &'static str) -> Result<BTreeMap<String, String>, sqlx::Error> {
        Ok(texts_of(
            self.0.try_get::<Option<&[u8]>, _>(column)?.unwrap_or_default(),
        ))
    }
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
