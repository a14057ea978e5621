//! Takes rows of an adopted table over, one worker at a time.
//!
//! **If we die here** nothing of this round is there, and the lease goes to somebody else.

use std::sync::{Arc, MutexGuard, PoisonError};

use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::rights;
use super::statements::Adoption;
use super::tell::catch_up;
use crate::operate::MOST_UNKNOWN;
use crate::store::{ImportRequest, Imported, StoreError};
use crate::stores::postgres::{Inner, Transaction, interval, store_error};

/// How many delivered rows are deleted at once.
const PRUNED: usize = 5000;
/// How many notes are looked at in a round that tidies. They take a few bytes each, so nobody hurries.
const LOOKED_AT: i64 = 1000;

/// Where the importer stands between two rounds. A round that fails, and one that is not ours, forget it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The place of the last row that was taken, while there are more: what is before it is on its way, and need not be
    /// looked through for every batch. What was committed late is found when the table is looked at from its beginning.
    floor: Option<Vec<String>>,
    /// So many rows may be taken before they are counted again: only an importer adds to those on their way.
    room: usize,
    /// Up to here notes were looked at for rows that are gone; then it goes on from the first one.
    looked_to: Option<Uuid>,
    /// The role was found to have the rights that it needs.
    is_allowed: bool,
}

/// One round: what a person changed, what could not be told before, then new rows, if we are the importer.
pub(in crate::stores::postgres) async fn import(
    inner: Arc<Inner>,
    adoption: Arc<Adoption>,
    request: ImportRequest,
) -> Result<Imported, StoreError> {
    let mut pace = std::mem::take(&mut *pace_of(&adoption));
    let mut transaction = inner.begin().await?;
    let mut imported = Imported::default();
    if is_ours(&inner, &mut transaction, &adoption, &request).await? {
        if !pace.is_allowed {
            rights::check(&inner, &mut transaction, &adoption).await?;
            pace.is_allowed = true;
        }
        if request.heed {
            pace.floor = None;
            pace.room = 0;
            (imported.dropped, imported.reset) = heed(&mut transaction, &adoption).await?;
        }
        if request.tidy {
            // After people were heeded, who may have begun anew what ended; before what is noticed here is told.
            notice_ended(&inner, &mut transaction, &adoption).await?;
            pace.looked_to = forget(&mut transaction, &adoption, pace.looked_to).await?;
        }
        if request.heed {
            let refused = catch_up(&inner, &mut transaction, &adoption).await?;
            if refused > 0 && request.tidy {
                let source = adoption.source.as_str();
                tracing::warn!(source, rows = refused, "rows cannot be told what became of them");
            }
        }
        if pace.room < request.batch {
            let open = on_their_way(&inner, &mut transaction, &adoption, request.most).await?;
            pace.room = request.most.saturating_sub(open);
        }
        take_some(
            &mut transaction,
            &adoption,
            request.batch,
            &mut pace,
            &mut imported,
        )
        .await?;
    } else {
        pace = Pace::default();
    }
    transaction.commit().await.map_err(store_error)?;
    if request.tidy && pace.is_allowed {
        look_after(&inner, &adoption, &mut imported).await;
    }
    *pace_of(&adoption) = pace;
    Ok(imported)
}

/// What may read all of the table where an index is missing: apart, for a while only, and without it nothing stands still.
async fn look_after(inner: &Inner, adoption: &Adoption, imported: &mut Imported) {
    let source = adoption.source.as_str();
    match prune(inner, adoption).await {
        Ok(pruned) => {
            imported.pruned = pruned;
            imported.untidy = pruned == PRUNED;
        }
        Err(error) => tracing::warn!(
            source,
            %error,
            "delivered rows cannot be deleted; with an index on the time of their delivery it is quick"
        ),
    }
    match strangers(inner, adoption).await {
        Ok(strange) => imported.strange = strange,
        Err(error) => tracing::warn!(
            source,
            %error,
            "rows with an unknown status cannot be counted; with an index on the status it is quick"
        ),
    }
}

/// A transaction whose statements end before anybody waits for them.
async fn begin_brief(inner: &Inner) -> Result<Transaction, StoreError> {
    let mut transaction = inner.begin().await?;
    let limit = (inner.options.timeout / 3).as_millis().max(1);
    sqlx::raw_sql(AssertSqlSafe(format!(
        "set local statement_timeout = '{limit}ms'"
    )))
    .execute(&mut *transaction)
    .await
    .map_err(store_error)?;
    Ok(transaction)
}

fn pace_of(adoption: &Adoption) -> MutexGuard<'_, Pace> {
    adoption.pace.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next rows, as many as there is room for.
async fn take_some(
    transaction: &mut Transaction,
    adoption: &Adoption,
    batch: usize,
    pace: &mut Pace,
    imported: &mut Imported,
) -> Result<(), StoreError> {
    let room = pace.room.min(batch);
    imported.full = room == 0;
    if room == 0 {
        return Ok(());
    }
    let floor = pace.floor.take();
    let taken = take(transaction, adoption, room, floor.as_ref()).await?;
    imported.rows = taken.rows;
    // Nobody waits before the table was looked at from its beginning.
    imported.more = taken.rows == room || floor.is_some();
    pace.floor = taken.last.filter(|_| taken.rows == room);
    pace.room = pace.room.saturating_sub(taken.rows);
    Ok(())
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

/// A worker that knows of no adopted table tells none, such as one that runs with the configuration of yesterday.
async fn notice_ended(
    inner: &Inner,
    transaction: &mut Transaction,
    adoption: &Adoption,
) -> Result<(), StoreError> {
    sqlx::query(inner.sql.notice_ended.safe())
        .bind(&adoption.source)
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(())
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
pub(super) async fn strangers(inner: &Inner, adoption: &Adoption) -> Result<Option<usize>, StoreError> {
    let Some(statement) = &adoption.strangers else {
        return Ok(None);
    };
    let mut transaction = begin_brief(inner).await?;
    let count: i64 = sqlx::query_scalar(AssertSqlSafe(statement.clone()))
        .bind(i64::try_from(MOST_UNKNOWN).unwrap_or(i64::MAX))
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(usize::try_from(count).ok())
}

async fn prune(inner: &Inner, adoption: &Adoption) -> Result<usize, StoreError> {
    let Some(statement) = &adoption.prune else {
        return Ok(0);
    };
    let mut transaction = begin_brief(inner).await?;
    let count: i64 = sqlx::query_scalar(AssertSqlSafe(statement.clone()))
        .bind(&adoption.source)
        .bind(i64::try_from(PRUNED).unwrap_or(i64::MAX))
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(usize::try_from(count).unwrap_or_default())
}

/// What was given up on stays noted, until its row is gone. Where to go on; nowhere if that was the last.
async fn forget(
    transaction: &mut Transaction,
    adoption: &Adoption,
    after: Option<Uuid>,
) -> Result<Option<Uuid>, StoreError> {
    let (looked_at, last): (i64, Option<Uuid>) = sqlx::query_as(AssertSqlSafe(adoption.forget.clone()))
        .bind(&adoption.source)
        .bind(after.unwrap_or(Uuid::nil()))
        .bind(LOOKED_AT)
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(last.filter(|_| looked_at == LOOKED_AT))
}
