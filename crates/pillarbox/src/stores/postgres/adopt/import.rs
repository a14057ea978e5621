//! Takes rows of an adopted table over, one worker at a time.
//!
//! **If we die here** nothing of this round is there, and the lease goes to somebody else.

use std::sync::{Arc, MutexGuard, PoisonError};

use sqlx::{AssertSqlSafe, Row};

use super::statements::Adoption;
use super::tell::catch_up;
use crate::operate::MOST_UNKNOWN;
use crate::store::{ImportRequest, Imported, StoreError};
use crate::stores::postgres::{Inner, Transaction, interval, store_error};

/// How many delivered rows are deleted at once.
const PRUNED: i64 = 5000;

/// One round: what a person changed, what could not be told before, then new rows, if we are the importer.
pub(in crate::stores::postgres) async fn import(
    inner: Arc<Inner>,
    adoption: Arc<Adoption>,
    request: ImportRequest,
) -> Result<Imported, StoreError> {
    let mut transaction = inner.begin().await?;
    let mut imported = Imported::default();
    let mut last = None;
    if is_ours(&inner, &mut transaction, &adoption, &request).await? {
        if request.heed {
            (imported.dropped, imported.reset) = heed(&mut transaction, &adoption).await?;
            imported.strange = strangers(&mut transaction, &adoption).await?;
            imported.pruned = prune(&mut transaction, &adoption).await?;
            catch_up(&inner, &mut transaction, &adoption).await?;
        }
        let open = on_their_way(&inner, &mut transaction, &adoption, request.most).await?;
        let room = request.most.saturating_sub(open).min(request.batch);
        imported.full = room == 0;
        if room > 0 {
            let floor = floor(&adoption).take().filter(|_| !request.heed);
            let taken = take(&mut transaction, &adoption, room, floor.as_ref()).await?;
            imported.rows = taken.rows;
            // Nobody waits before the table was looked at from its beginning.
            imported.more = taken.rows == room || floor.is_some();
            last = taken.last.filter(|_| taken.rows == room);
        }
    }
    transaction.commit().await.map_err(store_error)?;
    *floor(&adoption) = last;
    Ok(imported)
}

fn floor(adoption: &Adoption) -> MutexGuard<'_, Option<Vec<String>>> {
    adoption.floor.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn is_ours(
    inner: &Inner,
    transaction: &mut Transaction,
    adoption: &Adoption,
    request: &ImportRequest,
) -> Result<bool, StoreError> {
    let query = sqlx::query(inner.sql.be_importer.safe())
        .bind(&adoption.source)
        .bind(request.worker)
        .bind(interval(request.lease))
        .persistent(false);
    let taken = query
        .fetch_optional(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(taken.is_some())
}

async fn heed(transaction: &mut Transaction, adoption: &Adoption) -> Result<(usize, usize), StoreError> {
    let row = sqlx::query(AssertSqlSafe(adoption.heed.clone()))
        .bind(&adoption.source)
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    let count = |column: usize| -> Result<usize, StoreError> {
        let count: i64 = row.try_get(column).map_err(store_error)?;
        Ok(usize::try_from(count).unwrap_or_default())
    };
    Ok((count(0)?, count(1)?))
}

async fn on_their_way(
    inner: &Inner,
    transaction: &mut Transaction,
    adoption: &Adoption,
    most: usize,
) -> Result<usize, StoreError> {
    let count: i64 = sqlx::query_scalar(inner.sql.on_their_way.safe())
        .bind(&adoption.source)
        .bind(i64::try_from(most).unwrap_or(i64::MAX))
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(usize::try_from(count).unwrap_or_default())
}

/// What one batch was.
struct Taken {
    rows: usize,
    /// The place of the last one.
    last: Option<Vec<String>>,
}

async fn take(
    transaction: &mut Transaction,
    adoption: &Adoption,
    room: usize,
    floor: Option<&Vec<String>>,
) -> Result<Taken, StoreError> {
    let statement = match floor {
        Some(_) => &adoption.import_after,
        None => &adoption.import,
    };
    let mut query = sqlx::query_as(AssertSqlSafe(statement.clone()))
        .bind(&adoption.source)
        .bind(i64::try_from(room).unwrap_or(i64::MAX));
    if let Some(floor) = floor {
        query = query.bind(floor);
    }
    let (rows, last): (i64, Option<Vec<Option<String>>>) = query
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(Taken {
        rows: usize::try_from(rows).unwrap_or_default(),
        // A row without a place cannot be a floor.
        last: last.and_then(|parts| parts.into_iter().collect()),
    })
}

/// Rows that are not ours to judge.
pub(super) async fn strangers(
    transaction: &mut Transaction,
    adoption: &Adoption,
) -> Result<Option<usize>, StoreError> {
    let Some(statement) = &adoption.strangers else {
        return Ok(None);
    };
    let count: i64 = sqlx::query_scalar(AssertSqlSafe(statement.clone()))
        .bind(i64::try_from(MOST_UNKNOWN).unwrap_or(i64::MAX))
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(usize::try_from(count).ok())
}

async fn prune(transaction: &mut Transaction, adoption: &Adoption) -> Result<usize, StoreError> {
    let Some(statement) = &adoption.prune else {
        return Ok(0);
    };
    let count: i64 = sqlx::query_scalar(AssertSqlSafe(statement.clone()))
        .bind(&adoption.source)
        .bind(PRUNED)
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(usize::try_from(count).unwrap_or_default())
}
