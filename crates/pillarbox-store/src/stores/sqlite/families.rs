//! What has become of events with several destinations, for the log.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqlitePool};

use super::decode;
use crate::store::Family;

pub(super) async fn families(readers: SqlitePool, events: String) -> Result<Vec<Family>, sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/families.sql"))
        .bind(events)
        .fetch_all(&readers)
        .await?;
    rows.iter().map(family).collect()
}

fn family(row: &SqliteRow) -> Result<Family, sqlx::Error> {
    let mut errors: Vec<String> =
        serde_json::from_str(row.try_get("errors")?).map_err(|error| sqlx::Error::Decode(error.into()))?;
    errors.truncate(Family::ERRORS);
    Ok(Family {
        event: decode::uuid(row, "event")?.unwrap_or_default(),
        delivered: decode::count(row, "delivered")?,
        dead: decode::count(row, "dead")?,
        unfinished: decode::count(row, "unfinished")?,
        errors,
    })
}
