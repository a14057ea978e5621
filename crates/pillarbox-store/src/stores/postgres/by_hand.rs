//! What operators change: retry, skip, delete. The actor's tenant is a condition of each statement.
//!
//! **If we die here** the transaction rolls back, with its line of the audit.

use std::sync::Arc;

use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use uuid::Uuid;

use super::observer::{Change, RowObserver};
use super::{Inner, Transaction, audit, prune, store_error};
use crate::actor::Actor;
use crate::archive::{Restored, refusal};
use crate::audit::{Action, Changed, Line};
use crate::operate::SKIPPED;
use crate::retention::{DeleteOld, Pruned};
use crate::state::Status;
use crate::store::StoreError;

type ChangedQuery = QueryAs<'static, sqlx::Postgres, Changed, PgArguments>;

pub(super) async fn retry(inner: Arc<Inner>, actor: Actor, ids: Vec<Uuid>) -> Result<Vec<Uuid>, StoreError> {
    let query = sqlx::query_as(inner.sql.retry.safe())
        .bind(ids.clone())
        .bind(actor.tenant())
        .persistent(false);
    change(&inner, &actor, ids, query, Action::RetryEvents, &Status::Pending).await
}

pub(super) async fn skip(inner: Arc<Inner>, actor: Actor, ids: Vec<Uuid>) -> Result<Vec<Uuid>, StoreError> {
    let query = sqlx::query_as(inner.sql.skip.safe())
        .bind(ids.clone())
        .bind(SKIPPED)
        .bind(actor.tenant())
        .persistent(false);
    change(&inner, &actor, ids, query, Action::SkipEvents, &Status::Dead).await
}

/// Runs a change after which the rows have this status.
async fn change(
    inner: &Inner,
    actor: &Actor,
    ids: Vec<Uuid>,
    query: ChangedQuery,
    action: Action,
    now: &Status,
) -> Result<Vec<Uuid>, StoreError> {
    let mut transaction = inner.begin_for(actor.tenant()).await?;
    let observer = inner.operator_observer();
    let locked = observer.lock(&mut transaction, &ids).await?;
    let changed: Vec<Changed> = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    observer
        .changed(&mut transaction, locked, Change::default())
        .await?;
    if !changed.is_empty() {
        if action == Action::RetryEvents {
            count_retries(inner, &mut transaction, changed.len()).await?;
        }
        let line = Line::of_rows(actor, action, &changed, Some(now));
        audit::write(inner, &mut transaction, line).await?;
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(changed.into_iter().map(|(id, _)| id).collect())
}

/// Counts rows that an operator retried, for metrics. Last: its lock ends with the transaction, and all operators share it.
async fn count_retries(inner: &Inner, transaction: &mut Transaction, rows: usize) -> Result<(), StoreError> {
    let counted = sqlx::query(inner.sql.count_retries.safe())
        .bind(i64::try_from(rows).unwrap_or(i64::MAX))
        .persistent(false)
        .execute(&mut **transaction)
        .await;
    counted.map_err(store_error)?;
    Ok(())
}

pub(super) async fn delete(inner: Arc<Inner>, actor: Actor, ids: Vec<Uuid>) -> Result<Vec<Uuid>, StoreError> {
    let mut transaction = inner.begin_for(actor.tenant()).await?;
    let observer = inner.operator_observer();
    let locked = observer.lock(&mut transaction, &ids).await?;
    let deleted: Vec<(Uuid, Uuid, String)> = sqlx::query_as(inner.sql.delete.safe())
        .bind(ids)
        .bind(actor.tenant())
        .persistent(false)
        .fetch_all(&mut *transaction)
        .await
        .map_err(store_error)?;
    let undelivered = deleted
        .iter()
        .filter(|(_, _, status)| status != Status::Delivered.as_str());
    let undelivered: Vec<Uuid> = undelivered.map(|(_, event, _)| *event).collect();
    let change = Change {
        deleted: &undelivered,
        ..Change::default()
    };
    observer.changed(&mut transaction, locked, change).await?;
    let deleted: Vec<Changed> = deleted.into_iter().map(|(id, _, status)| (id, status)).collect();
    if !deleted.is_empty() {
        let line = Line::of_rows(&actor, Action::DeleteEvents, &deleted, None);
        audit::write(&inner, &mut transaction, line).await?;
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(deleted.into_iter().map(|(id, _)| id).collect())
}

/// The line of the audit comes first: an operator who misses events finds it, also if we die here.
pub(super) async fn delete_old(
    inner: Arc<Inner>,
    actor: Actor,
    request: DeleteOld,
) -> Result<Pruned, StoreError> {
    if let Some(line) = request.line(&actor) {
        let mut transaction = inner.begin().await?;
        audit::write(&inner, &mut transaction, line).await?;
        transaction.commit().await.map_err(store_error)?;
    }
    prune::prune(inner, request.as_prune()).await
}

pub(super) async fn restore(
    inner: Arc<Inner>,
    actor: Actor,
    rows: Vec<String>,
    dry_run: bool,
) -> Result<Restored, StoreError> {
    if let Some(why) = rows.iter().find_map(|row| refusal(row)) {
        return Err(StoreError::Other(format!("an archived row was refused: {why}")));
    }
    if rows.is_empty() {
        return Ok(Restored::default());
    }
    let given = rows.len() as u64;
    let mut transaction = inner.begin().await?;
    let restored: Vec<Uuid> = sqlx::query_scalar(inner.sql.restore.safe())
        .bind(rows)
        .persistent(false)
        .fetch_all(&mut *transaction)
        .await
        .map_err(store_error)?;
    let count = restored.len() as u64;
    if dry_run {
        transaction.rollback().await.map_err(store_error)?;
    } else {
        if count > 0 {
            audit::write(&inner, &mut transaction, Line::restored(&actor, &restored)).await?;
        }
        transaction.commit().await.map_err(store_error)?;
    }
    Ok(Restored {
        restored: count,
        known: given - count,
    })
}
