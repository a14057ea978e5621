//! Takes due rows for one worker, and rows whose lease ran out: one statement.
//!
//! **If we die here** the lease ends and the next claim takes the rows. The attempt stays counted.

use std::sync::Arc;

use futures_util::TryStreamExt;
use sqlx::Row;

use super::decode::delivery;
use super::{Inner, attempts, interval, store_error};
use crate::event::Delivery;
use crate::failpoint;
use crate::store::{ClaimRequest, Scope, StoreError, Take};

pub(super) async fn claim(inner: Arc<Inner>, request: ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
    let mut transaction = inner.begin().await?;
    let names = request.scope.names();
    let count = |rows: usize| i64::try_from(rows).unwrap_or(i64::MAX);
    let query = match request.take {
        Take::Due { limit, recovered } => sqlx::query(inner.sql.claim.safe())
            .bind(request.worker)
            .bind(request.claim)
            .bind(interval(request.lease))
            .bind(count(limit))
            .bind(count(recovered))
            .bind(attempts(request.max_attempts))
            .bind(names)
            .bind(count(request.max_bytes.max(1))),
        Take::Alone => sqlx::query(inner.sql.claim_alone.safe())
            .bind(request.worker)
            .bind(request.claim)
            .bind(interval(request.lease))
            .bind(attempts(request.max_attempts))
            .bind(names),
    };
    // Each row is let go of as soon as it is a delivery: a batch of large ones is never held twice.
    let mut rows = query.persistent(false).fetch(&mut *transaction);
    let mut claimed = Vec::new();
    while let Some(row) = rows.try_next().await.map_err(store_error)? {
        claimed.push(delivery(&row, request.claim).map_err(store_error)?);
    }
    drop(rows);
    failpoint::hit("in_claim");
    transaction.commit().await.map_err(store_error)?;
    // RETURNING has no order.
    claimed.sort_unstable_by_key(|delivery| delivery.seq);
    Ok(claimed)
}

pub(super) async fn is_due(inner: Arc<Inner>, scope: Scope) -> Result<bool, StoreError> {
    let probe = sqlx::raw_sql(inner.sql.is_due(&scope).safe());
    let row = probe.fetch_one(&inner.pool()).await.map_err(store_error)?;
    row.try_get("due").map_err(store_error)
}
