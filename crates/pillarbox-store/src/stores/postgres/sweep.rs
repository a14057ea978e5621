//! Makes rows dead whose lease expired on the last attempt, a bounded number at a time. Also finds out whether there are
//! suspects to claim.
//!
//! Mostly there are neither. One query by the simple protocol finds that out. Otherwise expired leases are ended first.
//!
//! **If we die here** the next sweep finds them again.

use std::sync::Arc;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::observer::Change;
use super::{Inner, Transaction, attempts, interval, leases, store_error};
use crate::state::SWEPT;
use crate::store::{DeadRow, StoreError, SweepRequest, Swept};

pub(super) async fn sweep(inner: Arc<Inner>, request: SweepRequest) -> Result<Swept, StoreError> {
    leases::find_lost(&inner, &request.scope).await?;
    let probe = inner.sql.is_abandoned(attempts(request.max_attempts));
    let mut connection = inner.connection().await?;
    let row = sqlx::raw_sql(inner.bounded(&probe))
        .fetch_one(&mut *connection)
        .await
        .map_err(store_error)?;
    drop(connection);
    let expired: bool = row.try_get("expired").map_err(store_error)?;
    let exhausted: bool = row.try_get("exhausted").map_err(store_error)?;
    let mut swept = Swept::default();
    if !expired && !exhausted {
        return Ok(swept);
    }
    let mut transaction = inner.begin().await?;
    if expired {
        leases::end_expired(&inner, &mut transaction).await?;
    }
    end_exhausted(&inner, &mut transaction, &request, &mut swept).await?;
    let observer = inner.observer();
    // The rows are locked already, so waiting for more locks could deadlock.
    if let Some(locked) = observer.try_lock(&mut transaction, &swept.dead).await? {
        observer
            .changed(&mut transaction, locked, Change::default())
            .await?;
    } else {
        // Another transaction settles or writes back one of them. The next sweep finds the rest.
        transaction.rollback().await.map_err(store_error)?;
        swept.dead.clear();
        swept.rows.clear();
        transaction = inner.begin().await?;
        leases::end_expired(&inner, &mut transaction).await?;
    }
    if expired {
        swept.suspects = could_take(&inner, &mut transaction, &request, (i32::MIN, 2)).await?;
        swept.lone_suspect = could_take(&inner, &mut transaction, &request, (2, i32::MAX)).await?;
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(swept)
}

async fn end_exhausted(
    inner: &Inner,
    transaction: &mut Transaction,
    request: &SweepRequest,
    swept: &mut Swept,
) -> Result<(), StoreError> {
    let query = sqlx::query(inner.sql.sweep.safe())
        .bind(attempts(request.max_attempts))
        .bind(interval(request.grace))
        .bind(request.scope.names())
        .bind(SWEPT)
        .persistent(false);
    let rows = query.fetch_all(&mut **transaction).await.map_err(store_error)?;
    for row in &rows {
        swept.dead.push(row.try_get("id").map_err(store_error)?);
        swept.rows.push(dead_row(row).map_err(store_error)?);
    }
    Ok(())
}

fn dead_row(row: &PgRow) -> Result<DeadRow, sqlx::Error> {
    Ok(DeadRow {
        event: row.try_get("event_id")?,
        namespace: row.try_get("namespace")?,
        destination: row.try_get("destination")?,
        ordering_key: row.try_get("ordering_key")?,
        attempts: row.try_get::<i32, _>("attempts")?.unsigned_abs(),
        reason: row.try_get("reason")?,
    })
}

/// Is there a row with an expired lease and so many attempts that a claim would take?
async fn could_take(
    inner: &Inner,
    transaction: &mut Transaction,
    request: &SweepRequest,
    (from, below): (i32, i32),
) -> Result<bool, StoreError> {
    let query = sqlx::query_scalar(inner.sql.is_expired.safe())
        .bind(request.worker)
        .bind(from)
        .bind(below)
        .bind(attempts(request.max_attempts))
        .bind(request.scope.names())
        .bind(request.excluded.clone())
        .bind(1i64)
        .persistent(false);
    query.fetch_one(&mut **transaction).await.map_err(store_error)
}
