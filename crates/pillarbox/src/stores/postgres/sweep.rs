//! Makes rows dead that have no attempts left and whose worker did not come back, a bounded number at a time.
//!
//! **If we die here** the next sweep finds them again.

use std::sync::Arc;
use std::time::Duration;

use super::{Inner, attempts, interval, store_error};
use crate::state::SWEPT;
use crate::store::{Scope, StoreError, Swept};

pub(super) async fn sweep(
    inner: Arc<Inner>,
    scope: Scope,
    max_attempts: u32,
    grace: Duration,
) -> Result<Swept, StoreError> {
    let mut transaction = inner.begin().await?;
    let query = sqlx::query_scalar(inner.sql.sweep.safe())
        .bind(attempts(max_attempts))
        .bind(interval(grace))
        .bind(scope.names())
        .bind(SWEPT)
        .persistent(false);
    let dead = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    let query = sqlx::query_scalar(inner.sql.is_alone.safe())
        .bind(attempts(max_attempts))
        .bind(scope.names())
        .persistent(false);
    let alone = query.fetch_one(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(Swept { dead, alone })
}
