//! Prunes delivered and dead rows of an adopted table, and counts rows with an unknown status.
//!
//! Both may read the whole table if it lacks an index. So they run apart from the import, with a time limit, and a failure
//! is only logged.

use std::time::Instant;

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::failures;
use super::statements::Adoption;
use crate::adopt::Imported;
use crate::operate::MOST_UNKNOWN;
use crate::store::StoreError;
use crate::stores::postgres::{Inner, Transaction, store_error};

/// How many delivered rows are pruned at once, and how many dead ones.
const PRUNED: usize = 5000;

pub(super) async fn maintain(
    inner: &Inner,
    adoption: &Adoption,
    imported: &mut Imported,
    failures_checked_to: &mut Option<Uuid>,
    pruned_at: &mut Option<Instant>,
) {
    let table = adoption.name();
    if pruned_at.is_none_or(|at| at.elapsed() >= adoption.prune_interval) {
        *pruned_at = Some(Instant::now());
        for statement in &adoption.prune {
            match prune(inner, adoption, statement).await {
                Ok(pruned) => {
                    imported.pruned += pruned;
                    imported.more_to_prune |= pruned == PRUNED;
                }
                Err(error) => tracing::warn!(
                    table,
                    %error,
                    "pruning adopted table failed; an index on the time of its last change makes this fast"
                ),
            }
        }
        if imported.more_to_prune {
            *pruned_at = None;
        }
    }
    match count_unknown(inner, adoption).await {
        Ok(unknown) => imported.unknown_status = unknown,
        Err(error) => tracing::warn!(
            table,
            %error,
            "counting unknown statuses failed; an index on the status makes this fast"
        ),
    }
    if let Err(error) = check_failures(inner, adoption, failures_checked_to).await {
        tracing::warn!(table, %error, "checking adopted rows that cannot be imported failed");
    }
}

async fn check_failures(
    inner: &Inner,
    adoption: &Adoption,
    checked_to: &mut Option<Uuid>,
) -> Result<(), StoreError> {
    let transaction = begin_brief(inner).await?;
    failures::maintain(inner, transaction, adoption, checked_to).await
}

/// Counts rows with a status that the layout does not know.
pub(super) async fn count_unknown(inner: &Inner, adoption: &Adoption) -> Result<Option<usize>, StoreError> {
    let Some(statement) = &adoption.count_unknown else {
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

async fn prune(inner: &Inner, adoption: &Adoption, statement: &str) -> Result<usize, StoreError> {
    let mut transaction = begin_brief(inner).await?;
    let count: i64 = sqlx::query_scalar(AssertSqlSafe(statement.to_owned()))
        .bind(adoption.name())
        .bind(i64::try_from(PRUNED).unwrap_or(i64::MAX))
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(usize::try_from(count).unwrap_or_default())
}

/// Begins a transaction whose statements end well before the store's own timeout.
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
