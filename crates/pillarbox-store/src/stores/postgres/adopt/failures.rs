//! Imports what can be imported, and records the rows that cannot.
//!
//! A value of a row may not fit: a `\u0000` in JSON, a number out of range, a key that is too long for an index. A batch that
//! fails is halved until each such row is alone. The row is recorded with its version, and left alone until others change it
//! or the layout changes. So it costs some statements once, and nothing in later rounds.
//!
//! **If we die here** the round rolls back, and the row fails again.

use sqlx::{AssertSqlSafe, Connection};
use uuid::Uuid;

use super::statements::Adoption;
use super::tables;
use crate::store::StoreError;
use crate::stores::postgres::{Inner, Transaction, store_error};
use pillarbox::text::error_text;

/// How many statements that fail a round may cost, about 2 ms each. The rest of the batch waits for the next round.
const MAX_FAILED: usize = 200;
/// How many failures are checked in a round that prunes.
const CHECKED: i64 = 10_000;

/// What came of a batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Imported rows.
    pub(super) rows: usize,
    /// Rows that cannot be imported.
    pub(super) failed: usize,
    /// Rows that were not tried, in their order.
    pub(super) left: Vec<String>,
}

impl Batch {
    fn add(&mut self, (rows, failed): (usize, usize)) {
        self.rows += rows;
        self.failed += failed;
    }
}

/// Imports these rows, in their order. Rows that were changed, and those that another session holds, are left out.
pub(super) async fn import_rows(
    transaction: &mut Transaction,
    adoption: &Adoption,
    worker: Uuid,
    ids: &[String],
) -> Result<Batch, StoreError> {
    let mut batch = Batch::default();
    let mut budget = MAX_FAILED;
    let mut groups = vec![ids];
    while let Some(group) = groups.pop() {
        if budget == 0 {
            batch.left.extend_from_slice(group);
            continue;
        }
        match try_import(transaction, adoption, worker, group).await? {
            Ok(counts) => batch.add(counts),
            Err(_) => {
                budget -= 1;
                if let [row] = group {
                    batch.add(import_or_fail(transaction, adoption, worker, row).await?);
                } else {
                    let (first, rest) = group.split_at(group.len() / 2);
                    groups.extend([rest, first]);
                }
            }
        }
    }
    Ok(batch)
}

/// Imports rows, and returns how many were imported and how many have the id of another event. The inner error is about one
/// of the rows.
async fn try_import(
    transaction: &mut Transaction,
    adoption: &Adoption,
    worker: Uuid,
    ids: &[String],
) -> Result<Result<(usize, usize), sqlx::Error>, StoreError> {
    if ids.is_empty() {
        return Ok(Ok((0, 0)));
    }
    let mut attempt = transaction.begin().await.map_err(store_error)?;
    let counts: Result<(i64, i64), sqlx::Error> = sqlx::query_as(AssertSqlSafe(adoption.import.clone()))
        .bind(adoption.name())
        .bind(ids)
        .bind(worker)
        .persistent(false)
        .fetch_one(&mut *attempt)
        .await;
    match counts {
        Ok((rows, conflicts)) => {
            attempt.commit().await.map_err(store_error)?;
            let count = |rows| usize::try_from(rows).unwrap_or_default();
            Ok(Ok((count(rows), count(conflicts))))
        }
        Err(error) if is_about_a_row(&error) => {
            attempt.rollback().await.map_err(store_error)?;
            Ok(Err(error))
        }
        Err(error) => Err(store_error(error)),
    }
}

/// Tries the row again under a lock, so that the recorded version is the one that fails.
async fn import_or_fail(
    transaction: &mut Transaction,
    adoption: &Adoption,
    worker: Uuid,
    row: &String,
) -> Result<(usize, usize), StoreError> {
    let locked = sqlx::query(AssertSqlSafe(adoption.lock_row.clone()))
        .bind(row)
        .persistent(false)
        .fetch_optional(&mut **transaction)
        .await
        .map_err(store_error)?;
    if locked.is_none() {
        return Ok((0, 0));
    }
    let error = match try_import(transaction, adoption, worker, std::slice::from_ref(row)).await? {
        Ok(counts) => return Ok(counts),
        Err(error) => error,
    };
    // A producer has just inserted the same key. The next round sees it.
    if code(&error) == "23505" {
        return Ok((0, 0));
    }
    sqlx::query(AssertSqlSafe(adoption.fail.clone()))
        .bind(adoption.name())
        .bind(row)
        .bind(error_text(&message(&error)))
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok((0, 1))
}

/// Would the other rows of the batch succeed without one of them? Invalid values, violated constraints, exceeded limits, and
/// exceptions of a trigger.
fn is_about_a_row(error: &sqlx::Error) -> bool {
    let code = code(error);
    ["22", "23", "54"].iter().any(|class| code.starts_with(class)) || code == "P0001"
}

fn code(error: &sqlx::Error) -> String {
    let code = error.as_database_error().and_then(|answer| answer.code());
    code.unwrap_or_default().into_owned()
}

fn message(error: &sqlx::Error) -> String {
    match error.as_database_error() {
        Some(answer) => format!("{} ({})", answer.message(), code(error)),
        None => error.to_string(),
    }
}

/// Prunes failures that are over, and logs those that are left. `checked_to` is the failure up to which they were checked.
pub(super) async fn maintain(
    inner: &Inner,
    mut transaction: Transaction,
    adoption: &Adoption,
    checked_to: &mut Option<Uuid>,
) -> Result<(), StoreError> {
    let (checked, last): (i64, Option<Uuid>) = sqlx::query_as(AssertSqlSafe(adoption.prune_failures.clone()))
        .bind(adoption.name())
        .bind(checked_to.unwrap_or(Uuid::nil()))
        .bind(CHECKED)
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    *checked_to = last.filter(|_| checked == CHECKED);
    let record = tables::table(inner, &mut transaction, adoption.name().to_owned()).await?;
    let example: Option<(String, String)> = sqlx::query_as(inner.sql.import_failure.safe())
        .bind(adoption.name())
        .persistent(false)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    if let Some((row_id, error)) = example {
        let (table, rows) = (record.name, record.not_imported);
        tracing::warn!(table, rows, row_id, error, "adopted rows cannot be imported");
    }
    Ok(())
}
