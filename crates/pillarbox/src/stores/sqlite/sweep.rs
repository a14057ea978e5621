//! Makes rows dead that have no attempts left and whose worker did not come back.
//!
//! Also ends leases that last too long, because the clock was put back after they were given.
//!
//! **If we die here** the next sweep finds them again.

use std::time::Duration;

use sqlx::SqlitePool;

use super::{column_limit, decode, earlier, later, scope_json};
use crate::state::SWEPT;
use crate::store::{Scope, Swept};

pub(super) async fn sweep(
    writer: SqlitePool,
    scope: Scope,
    max_attempts: u32,
    grace: Duration,
) -> Result<Swept, sqlx::Error> {
    let limit = column_limit(max_attempts);
    let scope = scope_json(&scope);
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query(include_str!("sql/mend_leases.sql"))
        .bind(later(grace))
        .bind(&scope)
        .execute(&mut *tx)
        .await?;
    let rows = sqlx::query(include_str!("sql/sweep.sql"))
        .bind(limit)
        .bind(earlier(grace))
        .bind(&scope)
        .bind(SWEPT)
        .fetch_all(&mut *tx)
        .await?;
    let alone = sqlx::query_scalar(include_str!("sql/is_alone.sql"))
        .bind(limit)
        .bind(&scope)
        .fetch_one(&mut *tx)
        .await?;
    tx.commit().await?;
    let mut dead = Vec::new();
    for row in &rows {
        dead.extend(decode::uuid(row, "id")?);
    }
    Ok(Swept { dead, alone })
}
