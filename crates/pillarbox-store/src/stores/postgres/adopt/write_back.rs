//! Writes the state of native rows back to the adopted table, in the transaction that changes them.
//!
//! The mapping rows are locked first, in one order for all workers, by a statement of its own. A later statement reads the
//! family. So when two siblings end at the same time, one waits for the other here, and the second sees both.
//!
//! The adopted table's own rows are locked by the statement that writes them, without waiting. If another session holds a
//! row, its write-back stays pending, and the importer retries it.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use super::statements::Adoption;
use crate::store::StoreError;
use crate::stores::postgres::observer::{Change, Locked, LockedEvents, RowObserver};
use crate::stores::postgres::sql::Statement;
use crate::stores::postgres::{Inner, Transaction, interval, store_error};

/// How many pending write-backs are retried at once, and how often in one round.
const RETRIED: i64 = 1000;
const GROUPS: usize = 5;
/// How many statements that the table rejects a round may cost. A rejected row costs two of them, about 2 ms each.
const MAX_REJECTED: usize = 200;
/// After a rejection, only the importer writes back to the table for this long. It retries a rejected row after as long.
const REJECTED: Duration = Duration::from_secs(60);

/// The observer that writes back.
pub(in crate::stores::postgres) struct WriteBack<'a> {
    inner: &'a Inner,
    /// Follows changes of rows that an operator names.
    few: bool,
}

#[async_trait]
impl RowObserver for WriteBack<'_> {
    async fn lock(&self, transaction: &mut Transaction, rows: &[Uuid]) -> Result<Locked, StoreError> {
        let statement = if self.few {
            &self.inner.sql.lock_mapping_of_few()
        } else {
            &self.inner.sql.lock_mapping
        };
        self.lock_mapping(transaction, statement, rows).await
    }

    async fn try_lock(
        &self,
        transaction: &mut Transaction,
        rows: &[Uuid],
    ) -> Result<Option<Locked>, StoreError> {
        if rows.is_empty() {
            return Ok(Some(Locked::default()));
        }
        let statement = self.inner.sql.lock_mapping_at_once();
        let locked = self.lock_mapping(transaction, &statement, rows).await?;
        let wanted: i64 = sqlx::query_scalar(self.inner.sql.count_mapping.safe())
            .bind(rows)
            .persistent(false)
            .fetch_one(&mut **transaction)
            .await
            .map_err(store_error)?;
        let found: usize = locked.0.iter().map(|one| one.events.len()).sum();
        let is_complete = i64::try_from(found).is_ok_and(|found| found >= wanted);
        Ok(is_complete.then_some(locked))
    }

    async fn changed(
        &self,
        transaction: &mut Transaction,
        mut locked: Locked,
        change: Change<'_>,
    ) -> Result<(), StoreError> {
        if locked.0.is_empty() {
            return Ok(());
        }
        self.record_end(transaction, change.unrouted, End::Delivered)
            .await?;
        self.record_end(transaction, change.deleted, End::Dead).await?;
        self.leave_out_unchanged(transaction, &mut locked, change).await?;
        for LockedEvents { table, events } in locked.0 {
            self.write(transaction, &table, &events).await?;
        }
        Ok(())
    }
}

/// How an event ended that has no rows left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// No route matches: nothing is left to do.
    Delivered,
    /// An operator deleted it. A reset in the adopted table brings it back.
    Dead,
}

impl<'a> WriteBack<'a> {
    pub(in crate::stores::postgres) fn new(inner: &'a Inner) -> Self {
        Self { inner, few: false }
    }

    /// For rows that an operator names.
    pub(in crate::stores::postgres) fn of_few(inner: &'a Inner) -> Self {
        Self { inner, few: true }
    }

    async fn lock_mapping(
        &self,
        transaction: &mut Transaction,
        statement: &Statement,
        rows: &[Uuid],
    ) -> Result<Locked, StoreError> {
        if rows.is_empty() {
            return Ok(Locked::default());
        }
        let events: Vec<(String, Vec<Uuid>)> = sqlx::query_as(statement.safe())
            .bind(rows)
            .persistent(false)
            .fetch_all(&mut **transaction)
            .await
            .map_err(store_error)?;
        let locked = |(table, events)| LockedEvents { table, events };
        Ok(Locked(events.into_iter().map(locked).collect()))
    }

    /// Records how those of these events ended that have no rows left. A later write-back needs it too.
    async fn record_end(
        &self,
        transaction: &mut Transaction,
        events: &[Uuid],
        end: End,
    ) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        sqlx::query(self.inner.sql.record_end.safe())
            .bind(events)
            .bind(end == End::Dead)
            .persistent(false)
            .execute(&mut **transaction)
            .await
            .map_err(store_error)?;
        Ok(())
    }

    /// Leaves out events whose rows were all lost. Another worker wrote them back, or others changed the table since.
    async fn leave_out_unchanged(
        &self,
        transaction: &mut Transaction,
        locked: &mut Locked,
        change: Change<'_>,
    ) -> Result<(), StoreError> {
        if change.lost.is_empty() {
            return Ok(());
        }
        let unchanged: Vec<Uuid> = sqlx::query_scalar(self.inner.sql.unchanged_events.safe())
            .bind(change.lost)
            .bind(change.rows)
            .persistent(false)
            .fetch_all(&mut **transaction)
            .await
            .map_err(store_error)?;
        for one in &mut locked.0 {
            one.events.retain(|event| !unchanged.contains(event));
        }
        Ok(())
    }

    /// Writes back, or defers it to the importer if this process does not know the table's layout.
    ///
    /// A table may reject a write-back, by a trigger, a check or a revoked grant. This fails the transaction. For a while
    /// after that, write-backs to the table are deferred, and the importer finds out which rows it accepts.
    async fn write(
        &self,
        transaction: &mut Transaction,
        table: &str,
        events: &[Uuid],
    ) -> Result<(), StoreError> {
        match self.inner.adoption(table).filter(|adoption| !rejects(adoption)) {
            Some(adoption) => {
                let written = write_rows(transaction, &adoption, events, false).await;
                written.inspect_err(|error| note_rejection(&adoption, error))
            }
            None => self.defer(transaction, events).await,
        }
    }

    async fn defer(&self, transaction: &mut Transaction, events: &[Uuid]) -> Result<(), StoreError> {
        sqlx::query(self.inner.sql.defer_write_back.safe())
            .bind(events)
            .persistent(false)
            .execute(&mut **transaction)
            .await
            .map_err(store_error)?;
        Ok(())
    }
}

fn rejects(adoption: &Adoption) -> bool {
    let until = adoption.rejects_until.lock();
    let until = *until.unwrap_or_else(PoisonError::into_inner);
    until.is_some_and(|until| Instant::now() < until)
}

fn note_rejection(adoption: &Adoption, error: &StoreError) {
    if is_rejection(error) {
        let table = adoption.name();
        tracing::warn!(table, %error, "write-back to adopted table rejected; retrying in 60 s");
        let until = adoption.rejects_until.lock();
        *until.unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + REJECTED);
    }
}

/// Would the same write-back fail again?
fn is_rejection(error: &StoreError) -> bool {
    matches!(error, StoreError::Other(_) | StoreError::Denied(_))
}

async fn write_rows(
    connection: &mut PgConnection,
    adoption: &Adoption,
    events: &[Uuid],
    with_rejected: bool,
) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    sqlx::query(AssertSqlSafe(adoption.write_back.clone()))
        .bind(events)
        .bind(with_rejected)
        .persistent(false)
        .execute(connection)
        .await
        .map_err(store_error)?;
    Ok(())
}

/// Retries pending write-backs, those first that were tried longest ago. Rejected ones come last and wait a minute, so that
/// any number of them costs a round no more than [`MAX_REJECTED`] statements, and keeps no other from its turn.
pub(super) async fn retry_pending(
    inner: &Inner,
    transaction: &mut Transaction,
    adoption: &Adoption,
) -> Result<(), StoreError> {
    let mut retry = Retry {
        inner,
        transaction,
        adoption,
        budget: MAX_REJECTED,
    };
    for _ in 0..GROUPS {
        let is_full = retry.group(false, Duration::ZERO).await?;
        if !is_full || retry.budget == 0 {
            break;
        }
    }
    retry.group(true, REJECTED).await?;
    Ok(())
}

/// The retries of one round.
struct Retry<'a> {
    inner: &'a Inner,
    transaction: &'a mut Transaction,
    adoption: &'a Adoption,
    /// How many more statements may be rejected.
    budget: usize,
}

impl Retry<'_> {
    /// Retries one group. True if there may be more of them.
    async fn group(&mut self, rejected: bool, wait: Duration) -> Result<bool, StoreError> {
        let pending: Vec<Uuid> = sqlx::query_scalar(self.inner.sql.pending_write_backs.safe())
            .bind(self.adoption.name())
            .bind(RETRIED)
            .bind(rejected)
            .bind(interval(wait))
            .persistent(false)
            .fetch_all(&mut **self.transaction)
            .await
            .map_err(store_error)?;
        if pending.is_empty() {
            return Ok(false);
        }
        let refused = self.write_accepted(&pending).await?;
        self.note_tried(&refused, true).await?;
        let is_full = i64::try_from(pending.len()).is_ok_and(|count| count >= RETRIED);
        if is_full && !rejected {
            // Rows that are still pending are locked by others. The next group is another one.
            self.note_tried(&pending, false).await?;
        }
        // Rows that are gone from the table would fill every later round.
        sqlx::query(AssertSqlSafe(self.adoption.cancel_write_back.clone()))
            .bind(pending)
            .persistent(false)
            .execute(&mut **self.transaction)
            .await
            .map_err(store_error)?;
        Ok(is_full)
    }

    /// Writes back each event that the table accepts, and returns those that it rejected. Halves a group that is rejected.
    async fn write_accepted(&mut self, events: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let mut rejected = Vec::new();
        let mut groups = vec![events];
        while let Some(group) = groups.pop() {
            if self.budget == 0 {
                break;
            }
            let mut attempt = self.transaction.begin().await.map_err(store_error)?;
            match write_rows(&mut attempt, self.adoption, group, true).await {
                Ok(()) => attempt.commit().await.map_err(store_error)?,
                Err(error) if is_rejection(&error) => {
                    attempt.rollback().await.map_err(store_error)?;
                    self.budget -= 1;
                    if let [one] = group {
                        rejected.push(*one);
                    } else {
                        let (first, rest) = group.split_at(group.len() / 2);
                        groups.extend([rest, first]);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(rejected)
    }

    async fn note_tried(&mut self, events: &[Uuid], rejected: bool) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        sqlx::query(self.inner.sql.note_tried.safe())
            .bind(events)
            .bind(rejected)
            .persistent(false)
            .execute(&mut **self.transaction)
            .await
            .map_err(store_error)?;
        Ok(())
    }
}
