//! What has become of events with several destinations, for the log.

use std::sync::Arc;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Inner, store_error};
use crate::store::{Family, StoreError};

pub(super) async fn families(inner: Arc<Inner>, events: Vec<Uuid>) -> Result<Vec<Family>, StoreError> {
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.families.safe())
        .bind(events)
        .bind(i32::try_from(Family::ERRORS).unwrap_or(i32::MAX))
        .persistent(false);
    let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    rows.iter()
        .map(family)
        .collect::<Result<_, _>>()
        .map_err(store_error)
}

fn family(row: &PgRow) -> Result<Family, sqlx::Error> {
    let count = |name| Ok::<u64, sqlx::Error>(row.try_get::<i64, _>(name)?.unsigned_abs());
    Ok(Family {
        event: row.try_get("event")?,
        delivered: count("delivered")?,
        dead: count("dead")?,
        unfinished: count("unfinished")?,
        errors: row.try_get("errors")?,
    })
}
