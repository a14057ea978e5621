//! Decodes rows into deliveries and records.
//!
//! It accepts invalid values where it can, because one row that cannot be decoded would fail every claim.

use serde_json::Value;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::operate::{BlockedKey, DestinationRecord, Paused, Record, WorkerRecord};
use crate::store::{Backlog, LANES, Stub};
use pillarbox::Delivery;
pub(super) use pillarbox::internal::sqlite::row::{envelope, event, moment, narrow, text, uuid, whole_event};

/// A row as `claim.sql` returns it.
pub(super) fn delivery(row: &SqliteRow, claim: Uuid, suspect: bool) -> Result<Delivery, sqlx::Error> {
    let max_attempts: Option<i64> = row.try_get("max_attempts")?;
    let lane: Option<i64> = row.try_get("lane")?;
    Ok(Delivery {
        id: uuid(row, "id")?.unwrap_or_default(),
        seq: row.try_get("seq")?,
        event: whole_event(row)?,
        lane: lane.and_then(|lane| u16::try_from(lane).ok()),
        attempts: u32::try_from(row.try_get::<i64, _>("attempts")?).unwrap_or(u32::MAX),
        max_attempts: max_attempts.map(|max| u32::try_from(max.max(0)).unwrap_or(u32::MAX)),
        created_at: moment(row, "created_at")?.unwrap_or(OffsetDateTime::UNIX_EPOCH),
        claim,
        suspect,
        contested: false,
    })
}

/// A row as `parked_*.sql` return it.
pub(super) fn stub(row: &SqliteRow) -> Result<Stub, sqlx::Error> {
    Ok(Stub {
        id: uuid(row, "id")?.unwrap_or_default(),
        seq: row.try_get("seq")?,
        event: event(row)?,
    })
}

/// A row as `record.sql` returns it.
pub(super) fn record(row: &SqliteRow) -> Result<Record, sqlx::Error> {
    let moment_or_epoch = |column| -> Result<OffsetDateTime, sqlx::Error> {
        Ok(moment(row, column)?.unwrap_or(OffsetDateTime::UNIX_EPOCH))
    };
    Ok(Record {
        id: uuid(row, "id")?.unwrap_or_default(),
        seq: row.try_get("seq")?,
        event: envelope(row)?,
        destination: text(row, "destination")?,
        status: text(row, "status")?.unwrap_or_default(),
        unordered: row.try_get("unordered")?,
        attempts: narrow(row.try_get("attempts")?),
        max_attempts: row.try_get::<Option<i64>, _>("max_attempts")?.map(narrow),
        next_attempt_at: moment_or_epoch("next_attempt_at")?,
        locked_by: uuid(row, "locked_by")?,
        locked_until: moment(row, "locked_until")?,
        last_error: text(row, "last_error")?,
        created_at: moment_or_epoch("created_at")?,
        updated_at: moment_or_epoch("updated_at")?,
        delivered_at: moment(row, "delivered_at")?,
        payload: text(row, "payload")?.map(|text| json(Some(text))),
        body_bytes: row.try_get("body_bytes")?,
    })
}

/// A row as `blocked.sql` returns it.
pub(super) fn blocked_key(row: &SqliteRow) -> Result<BlockedKey, sqlx::Error> {
    Ok(BlockedKey {
        namespace: text(row, "namespace")?.unwrap_or_default(),
        destination: text(row, "destination")?,
        ordering_key: text(row, "ordering_key")?.unwrap_or_default(),
        head: uuid(row, "id")?.unwrap_or_default(),
        seq: row.try_get("seq")?,
        status: text(row, "status")?.unwrap_or_default(),
        attempts: narrow(row.try_get("attempts")?),
        reason: text(row, "last_error")?,
        age_seconds: row.try_get("age")?,
        next_attempt_at: moment(row, "next_attempt_at")?,
        behind: count(row, "behind")?,
    })
}

/// A row as `destinations.sql` returns it.
pub(super) fn destination(row: &SqliteRow) -> Result<DestinationRecord, sqlx::Error> {
    let paused = match moment(row, "since")? {
        Some(since) => Some(Paused {
            since,
            reason: text(row, "reason")?.unwrap_or_default(),
            disabled: row.try_get("disabled")?,
        }),
        None => None,
    };
    Ok(DestinationRecord {
        name: text(row, "name")?.unwrap_or_default(),
        paused,
        pending: count(row, "pending")?,
        dead: count(row, "dead")?,
    })
}

/// A row as `workers.sql` returns it.
pub(super) fn worker(row: &SqliteRow) -> Result<WorkerRecord, sqlx::Error> {
    let moment_or_epoch = |column| -> Result<OffsetDateTime, sqlx::Error> {
        Ok(moment(row, column)?.unwrap_or(OffsetDateTime::UNIX_EPOCH))
    };
    let backlogs = u32::try_from(count(row, "backlogs")?).unwrap_or(u32::MAX);
    Ok(WorkerRecord {
        id: uuid(row, "id")?.unwrap_or_default(),
        host: text(row, "host")?.unwrap_or_default(),
        version: text(row, "version")?.unwrap_or_default(),
        scope: text(row, "scope")?.and_then(|names| serde_json::from_str(&names).ok()),
        started_at: moment_or_epoch("started_at")?,
        seen_at: moment_or_epoch("seen_at")?,
        alive: row.try_get("alive")?,
        lanes: backlogs.saturating_mul(u32::from(LANES)),
        claimed: count(row, "claimed")?,
        delivered: count(row, "delivered")?,
        failed: count(row, "failed")?,
        breakers: text(row, "breakers")?
            .and_then(|breakers| serde_json::from_str(&breakers).ok())
            .unwrap_or_default(),
    })
}

/// The backlog of a row with its namespace and destination.
pub(super) fn backlog(row: &SqliteRow) -> Result<Backlog, sqlx::Error> {
    Ok(Backlog {
        destination: text(row, "destination")?.filter(|name| !name.is_empty()),
        namespace: text(row, "namespace")?.unwrap_or_default(),
    })
}

/// A count, which is never negative.
pub(super) fn count(row: &SqliteRow, column: &str) -> Result<u64, sqlx::Error> {
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0))
}

pub(super) fn json(text: Option<String>) -> Value {
    text.and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default()
}
