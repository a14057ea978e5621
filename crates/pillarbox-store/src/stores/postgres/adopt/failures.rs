//! Imports what can be imported, and records the rows that cannot.
//!
//! A value of a row may not fit: a `\u0000` in JSON, a number out of range, a key that is too long for an index. Or the cause
//! lies outside, such as a trigger. A batch that fails is halved until each such row is alone. The row is recorded with its
//! version. It is tried again when others change it, when the layout changes, and otherwise with a slow backoff. So it costs
//! some statements each time, and later rounds pass over it.
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
/// The same for rows that failed before. They are likely to fail again, and are tried every two seconds.
const MAX_FAILED_AGAIN: usize = 20;
/// How many rows that failed before are tried at once, and how often in one round.
const RETRIED: usize = 100;
const GROUPS: usize = 50;
/// So many rows that failed cost a list about 5 ms. If there are more, it passes over them.
const MANY: i64 = 1000;
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
    let mut attempts = Attempts {
        transaction,
        adoption,
        worker,
        failed_before: false,
        budget: MAX_FAILED,
    };
    attempts.import(ids).await
}

/// Imports rows that failed before and are due again, at most as many as there is room for. Also returns whether many rows of
/// the table have failed.
pub(super) async fn retry(
    inner: &Inner,
    transaction: &mut Transaction,
    adoption: &Adoption,
    worker: Uuid,
    room: usize,
) -> Result<(Batch, bool), StoreError> {
    let mut retried = Batch::default();
    let mut attempts = Attempts {
        transaction,
        adoption,
        worker,
        failed_before: true,
        budget: MAX_FAILED_AGAIN,
    };
    for _ in 0..GROUPS {
        let limit = RETRIED.min(room - retried.rows);
        let due = attempts.due(inner, limit).await?;
        let batch = attempts.import(&due.rows).await?;
        // Those that were not tried are the last.
        let tried = &due.events[..due.events.len() - batch.left.len()];
        attempts.postpone(inner, tried).await?;
        retried.add((batch.rows, batch.failed));
        // Conflicts fail without a statement that fails.
        let is_enough = attempts.budget == 0 || retried.failed >= RETRIED;
        if is_enough || limit == 0 || due.rows.len() < limit {
            return Ok((retried, due.are_many));
        }
    }
    Ok((retried, true))
}

/// Rows that failed before and are due again.
struct Due {
    /// Have many rows of the table failed, due or not?
    are_many: bool,
    events: Vec<Uuid>,
    rows: Vec<String>,
}

/// The attempts to import some rows.
struct Attempts<'a> {
    transaction: &'a mut Transaction,
    adoption: &'a Adoption,
    worker: Uuid,
    /// Are these rows that failed before? Otherwise such rows are left out.
    failed_before: bool,
    /// How many more statements may fail.
    budget: usize,
}

impl Attempts<'_> {
    async fn import(&mut self, ids: &[String]) -> Result<Batch, StoreError> {
        let mut batch = Batch::default();
        let mut groups = vec![ids];
        while let Some(group) = groups.pop() {
            if self.budget == 0 {
                batch.left.extend_from_slice(group);
                continue;
            }
            match self.try_import(group).await? {
                Ok(counts) => batch.add(counts),
                Err(_) => {
                    self.budget -= 1;
                    if let [row] = group {
                        batch.add(self.import_or_fail(row).await?);
                    } else {
                        let (first, rest) = group.split_at(group.len() / 2);
                        groups.extend([rest, first]);
                    }
                }
            }
        }
        Ok(batch)
    }

    /// Imports rows, and returns how many were imported and how many have the id of another event. The inner error is about
    /// one of the rows.
    async fn try_import(
        &mut self,
        ids: &[String],
    ) -> Result<Result<(usize, usize), sqlx::Error>, StoreError> {
        if ids.is_empty() {
            return Ok(Ok((0, 0)));
        }
        let mut attempt = self.transaction.begin().await.map_err(store_error)?;
        let statement = AssertSqlSafe(self.adoption.import.clone());
        let counts: Result<(i64, i64), sqlx::Error> = sqlx::query_as(statement)
            .bind(self.adoption.name())
            .bind(ids)
            .bind(self.worker)
            .bind(self.failed_before)
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
    async fn import_or_fail(&mut self, row: &String) -> Result<(usize, usize), StoreError> {
        let locked = sqlx::query(AssertSqlSafe(self.adoption.lock_row.clone()))
            .bind(row)
            .persistent(false)
            .fetch_all(&mut **self.transaction)
            .await
            .map_err(store_error)?;
        if locked.is_empty() {
            return Ok((0, 0));
        }
        let error = match self.try_import(std::slice::from_ref(row)).await? {
            Ok(counts) => return Ok(counts),
            Err(error) => error,
        };
        sqlx::query(AssertSqlSafe(self.adoption.fail.clone()))
            .bind(self.adoption.name())
            .bind(row)
            .bind(error_text(&message(&error, locked.len())))
            .persistent(false)
            .execute(&mut **self.transaction)
            .await
            .map_err(store_error)?;
        Ok((0, 1))
    }

    async fn due(&mut self, inner: &Inner, limit: usize) -> Result<Due, StoreError> {
        let (failed, events, rows): (i64, _, _) = sqlx::query_as(inner.sql.due_failures.safe())
            .bind(self.adoption.name())
            .bind(&self.adoption.layout)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(MANY)
            .persistent(false)
            .fetch_one(&mut **self.transaction)
            .await
            .map_err(store_error)?;
        Ok(Due {
            are_many: failed == MANY,
            events,
            rows,
        })
    }

    /// Postpones those that are still due, so that they keep no other from its turn.
    async fn postpone(&mut self, inner: &Inner, tried: &[Uuid]) -> Result<(), StoreError> {
        if tried.is_empty() {
            return Ok(());
        }
        sqlx::query(inner.sql.postpone_failures.safe())
            .bind(self.adoption.name())
            .bind(tried)
            .persistent(false)
            .execute(&mut **self.transaction)
            .await
            .map_err(store_error)?;
        Ok(())
    }
}

/// Would the other rows of the batch succeed without one of them? Invalid values, violated constraints, exceeded limits,
/// exceptions of a trigger, and rows that are damaged (class XX).
fn is_about_a_row(error: &sqlx::Error) -> bool {
    let code = code(error);
    ["22", "23", "54", "XX"]
        .iter()
        .any(|class| code.starts_with(class))
        || code == "P0001"
}

fn code(error: &sqlx::Error) -> String {
    let code = error.as_database_error().and_then(|answer| answer.code());
    code.unwrap_or_default().into_owned()
}

/// `rows` is how many rows have the id that failed.
fn message(error: &sqlx::Error, rows: usize) -> String {
    let code = code(error);
    match error.as_database_error() {
        // A race with a producer would be over: the row failed twice, and the second statement saw what the first one met.
        Some(_) if code == "23505" && rows > 1 => format!("{rows} rows of the table have this id ({code})"),
        Some(answer) => format!("{} ({code})", answer.message()),
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
