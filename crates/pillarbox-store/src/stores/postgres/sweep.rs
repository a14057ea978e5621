//! Makes rows dead that have no attempts left and whose worker did not come back, a bounded number at a time, and
//! finds out whether rows came back whose lease ran out.
//!
//! Mostly there are none: one query by the simple protocol says so.
//!
//! **If we die here** the next sweep finds them again.

use std::sync::Arc;

use sqlx::Row;
use uuid::Uuid;

use super::{Inner, Transaction, adopt, attempts, interval, store_error};
use crate::state::SWEPT;
use crate::store::{StoreError, SweepRequest, Swept};

pub(super) async fn sweep(inner: Arc<Inner>, request: SweepRequest) -> Result<Swept, StoreError> {
    let probe = inner.sql.is_abandoned(attempts(request.max_attempts));
    let row = sqlx::raw_sql(probe.safe())
        .fetch_one(&inner.pool())
        .await
        .map_err(store_error)?;
    let expired: bool = row.try_get("expired").map_err(store_error)?;
    let exhausted: bool = row.try_get("exhausted").map_err(store_error)?;
    let mut swept = Swept::default();
    if !expired && !exhausted {
        return Ok(swept);
    }
    let mut transaction = inner.begin().await?;
    swept.dead = bury(&inner, &mut transaction, &request).await?;
    // Which rows are dead is known only now; nothing is waited for, so that nobody can wait for us in turn.
    if let Some(touched) = adopt::try_lock(&inner, &mut transaction, &swept.dead).await? {
        adopt::tell(&inner, &mut transaction, touched).await?;
    } else {
        // Somebody settles one of them after all, or tells its table: the next sweep finds what is left.
        transaction.rollback().await.map_err(store_error)?;
        swept.dead.clear();
        transaction = inner.begin().await?;
    }
    if expired {
        swept.suspects = could_take(&inner, &mut transaction, &request, (i32::MIN, 2)).await?;
        swept.lone_suspect = could_take(&inner, &mut transaction, &request, (2, i32::MAX)).await?;
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(swept)
}

async fn bury(
    inner: &Inner,
    transaction: &mut Transaction,
    request: &SweepRequest,
) -> Result<Vec<Uuid>, StoreError> {
    let query = sqlx::query_scalar(inner.sql.sweep.safe())
        .bind(attempts(request.max_attempts))
        .bind(interval(request.grace))
        .bind(request.scope.names())
        .bind(SWEPT)
        .persistent(false);
    query.fetch_all(&mut **transaction).await.map_err(store_error)
}

/// Is there a row with so many attempts whose lease ran out and that the claim would take?
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
