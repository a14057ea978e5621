//! Ends rows whose lease expired on the last attempt, and shortens leases that are too long because the clock was set back.
//!
//! It also reports whether there are suspects, so that a claim takes the write lock only if there are.
//!
//! **If we die here** the next sweep finds them again.

use sqlx::{Row, SqlitePool};

use super::expired::{Search, expired};
use super::{column_limit, decode, earlier, later, scope_json};
use crate::state::SWEPT;
use crate::store::{DeadRow, SweepRequest, Swept};

pub(super) async fn sweep(writer: SqlitePool, request: SweepRequest) -> Result<Swept, sqlx::Error> {
    let scope = scope_json(&request.scope);
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query(include_str!("sql/cap_leases.sql"))
        .bind(later(request.grace))
        .bind(&scope)
        .execute(&mut *tx)
        .await?;
    let rows = sqlx::query(include_str!("sql/sweep.sql"))
        .bind(column_limit(request.max_attempts))
        .bind(earlier(request.grace))
        .bind(&scope)
        .bind(SWEPT)
        .fetch_all(&mut *tx)
        .await?;
    let search = Search::from(&request);
    let suspects = !expired(&mut tx, &search, false, 1).await?.is_empty();
    let lone_suspect = !expired(&mut tx, &search, true, 1).await?.is_empty();
    tx.commit().await?;
    let mut dead = Vec::new();
    let mut details = Vec::new();
    for row in &rows {
        dead.extend(decode::uuid(row, "id")?);
        details.push(DeadRow {
            event: decode::uuid(row, "event_id")?.unwrap_or_default(),
            namespace: decode::text(row, "namespace")?.unwrap_or_default(),
            destination: decode::text(row, "destination")?,
            ordering_key: decode::text(row, "ordering_key")?,
            attempts: u32::try_from(row.try_get::<i64, _>("attempts")?).unwrap_or_default(),
            reason: decode::text(row, "last_error")?.unwrap_or_default(),
        });
    }
    Ok(Swept {
        dead,
        rows: details,
        suspects,
        lone_suspect,
    })
}
