//! Imports rows of an adopted table: one worker at a time, by a lease.
//!
//! **If we die here** the round rolls back, and another worker imports when the lease has expired.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::statements::Adoption;
use super::write_back::retry_pending;
use super::{check, failures, maintain, tables};
use crate::adopt::{AdoptedTable, Import, ImportRequest, Imported};
use crate::store::StoreError;
use crate::stores::postgres::{Inner, Postgres, Transaction, interval, store_error};

/// How many rows are listed at once: about 7 MB of ids. Where no index has the order, a list costs the whole backlog.
const LISTED: usize = 100_000;
/// A list that is still in use is read again only when this many times its own duration has passed, and so are rows that
/// failed, before those listed. So looking for late commits and changes costs at most 2 % of the time.
const LOOK_AGAIN: u32 = 50;
/// How many mapping rows are checked in a round that prunes. They take a few bytes each, so there is no hurry.
const CHECKED: i64 = 1000;

/// The port [`Import`] of one table.
pub(in crate::stores::postgres) struct Importer {
    store: Postgres,
    adoption: Arc<Adoption>,
}

impl Importer {
    pub(in crate::stores::postgres) fn new(store: Postgres, adoption: Arc<Adoption>) -> Self {
        Self { store, adoption }
    }
}

#[async_trait]
impl Import for Importer {
    fn table(&self) -> &AdoptedTable {
        &self.adoption.table
    }

    async fn import(&self, request: &ImportRequest) -> Result<Imported, StoreError> {
        let inner = Arc::clone(&self.store.inner);
        let round = import(inner, Arc::clone(&self.adoption), request.clone());
        self.store.run(round).await
    }
}

/// What an importer keeps between two rounds. A round that fails, and one without the lease, resets it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    list: List,
    /// How many rows may be imported before those in progress are counted again. Only an importer adds to them.
    room: usize,
    /// The mapping row up to which rows were checked. `None` begins at the first one.
    checked_to: Option<Uuid>,
    /// The same for rows that cannot be imported.
    failures_checked_to: Option<Uuid>,
    /// When old rows of the table were last pruned, unless there were more.
    pruned_at: Option<Instant>,
    /// Many rows of the table cannot be imported.
    many_failed: bool,
    /// The role has every permission that it needs, and the mapping rows fit the table.
    is_checked: bool,
}

/// The rows to import next. It is a hint: the import checks each row again.
#[derive(Debug, Default)]
struct List {
    /// Their ids, in the table's order.
    rows: VecDeque<String>,
    /// Where the next list begins, if many rows cannot be imported: at the first row to import.
    from: Option<Vec<String>>,
    /// When a list was last read from the table's beginning, and how long that took.
    read: Option<(Instant, Duration)>,
}

impl List {
    /// Is it time to look for rows that committed late, or were changed by others, below those listed?
    fn is_old(&self) -> bool {
        self.read
            .is_none_or(|(at, took)| at.elapsed() >= took * LOOK_AGAIN)
    }
}

/// One round.
async fn import(
    inner: Arc<Inner>,
    adoption: Arc<Adoption>,
    request: ImportRequest,
) -> Result<Imported, StoreError> {
    let mut round = Round::begin(&inner, &adoption, &request).await?;
    if round.lease_table().await? {
        round.check().await?;
        if request.detect_changes {
            round.detect_changes().await?;
        }
        if request.prune {
            // After the changes by others, which may restart an event that ended. Before the write-backs, which include
            // the ends that are detected here.
            round.detect_ended().await?;
            round.prune_mapping().await?;
        }
        if request.detect_changes {
            round.retry_write_backs().await?;
            round.renew_locks().await?;
        }
        round.make_room().await?;
        if request.detect_changes {
            round.retry_failures().await?;
        }
        round.import_rows().await?;
    } else {
        round.progress = Progress::default();
    }
    let Round {
        transaction,
        mut progress,
        mut imported,
        ..
    } = round;
    transaction.commit().await.map_err(store_error)?;
    if request.prune && progress.is_checked {
        maintain::maintain(
            &inner,
            &adoption,
            &mut imported,
            &mut progress.failures_checked_to,
            &mut progress.pruned_at,
        )
        .await;
    }
    *progress_of(&adoption) = progress;
    Ok(imported)
}

fn progress_of(adoption: &Adoption) -> MutexGuard<'_, Progress> {
    adoption.progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The steps of a round. All of them are one transaction.
struct Round<'a> {
    inner: &'a Inner,
    adoption: &'a Adoption,
    request: &'a ImportRequest,
    transaction: Transaction,
    progress: Progress,
    imported: Imported,
}

impl<'a> Round<'a> {
    async fn begin(
        inner: &'a Inner,
        adoption: &'a Adoption,
        request: &'a ImportRequest,
    ) -> Result<Self, StoreError> {
        let progress = std::mem::take(&mut *progress_of(adoption));
        Ok(Self {
            inner,
            adoption,
            request,
            progress,
            transaction: inner.begin().await?,
            imported: Imported::default(),
        })
    }

    /// Gets or renews the lease of the table. False if another worker holds it.
    async fn lease_table(&mut self) -> Result<bool, StoreError> {
        let (schema, table) = self.adoption.names();
        let leased = sqlx::query(self.inner.sql.lease_importer.safe())
            .bind(self.adoption.name())
            .bind(self.request.worker)
            .bind(interval(self.request.lease))
            .bind(schema)
            .bind(table)
            .persistent(false)
            .fetch_optional(&mut *self.transaction)
            .await
            .map_err(store_error)?;
        Ok(leased.is_some())
    }

    async fn check(&mut self) -> Result<(), StoreError> {
        if !self.progress.is_checked {
            check(self.inner, &mut self.transaction, self.adoption).await?;
            self.progress.is_checked = true;
        }
        Ok(())
    }

    /// Drops events whose rows were ended or deleted by others, and restarts those that were reset.
    async fn detect_changes(&mut self) -> Result<(), StoreError> {
        if self.progress.list.is_old() {
            self.progress.list = List::default();
        }
        self.progress.room = 0;
        let row = sqlx::query(AssertSqlSafe(self.adoption.detect_changes.clone()))
            .bind(self.adoption.name())
            .persistent(false)
            .fetch_one(&mut *self.transaction)
            .await
            .map_err(store_error)?;
        let count = |column: usize| -> Result<usize, StoreError> {
            let count: i64 = row.try_get(column).map_err(store_error)?;
            Ok(usize::try_from(count).unwrap_or_default())
        };
        self.imported.dropped = count(0)?;
        self.imported.reset = count(1)?;
        Ok(())
    }

    /// Finds events that ended without a write-back. A worker whose configuration lacks the table writes nothing back.
    async fn detect_ended(&mut self) -> Result<(), StoreError> {
        sqlx::query(self.inner.sql.detect_ended.safe())
            .bind(self.adoption.name())
            .persistent(false)
            .execute(&mut *self.transaction)
            .await
            .map_err(store_error)?;
        Ok(())
    }

    /// Prunes mapping rows of dead events whose rows are gone, a bounded number per round.
    async fn prune_mapping(&mut self) -> Result<(), StoreError> {
        let after = self.progress.checked_to.unwrap_or(Uuid::nil());
        let statement = AssertSqlSafe(self.adoption.prune_mapping.clone());
        let (checked, last): (i64, Option<Uuid>) = sqlx::query_as(statement)
            .bind(self.adoption.name())
            .bind(after)
            .bind(CHECKED)
            .persistent(false)
            .fetch_one(&mut *self.transaction)
            .await
            .map_err(store_error)?;
        self.progress.checked_to = last.filter(|_| checked == CHECKED);
        Ok(())
    }

    async fn retry_write_backs(&mut self) -> Result<(), StoreError> {
        retry_pending(self.inner, &mut self.transaction, self.adoption).await?;
        // Once a minute, as pruning is.
        if self.request.prune {
            let name = self.adoption.name().to_owned();
            let record = tables::table(self.inner, &mut self.transaction, name).await?;
            if record.rejected_write_backs > 0 {
                tracing::warn!(
                    table = record.name,
                    rows = record.rejected_write_backs,
                    "write-back to adopted table rejected; retrying in 60 s"
                );
            }
        }
        Ok(())
    }

    /// Renews the locks of rows in progress, if the table shows them.
    async fn renew_locks(&mut self) -> Result<(), StoreError> {
        let Some(statement) = &self.adoption.renew_locks else {
            return Ok(());
        };
        sqlx::query(AssertSqlSafe(statement.clone()))
            .bind(self.adoption.name())
            .bind(self.request.worker)
            .persistent(false)
            .execute(&mut *self.transaction)
            .await
            .map_err(store_error)?;
        Ok(())
    }

    /// Counts the rows in progress, unless there is room for a whole batch anyway.
    async fn make_room(&mut self) -> Result<(), StoreError> {
        if self.progress.room >= self.request.batch {
            return Ok(());
        }
        let most = self.request.max_in_progress;
        let count: i64 = sqlx::query_scalar(self.inner.sql.in_progress.safe())
            .bind(self.adoption.name())
            .bind(i64::try_from(most).unwrap_or(i64::MAX))
            .persistent(false)
            .fetch_one(&mut *self.transaction)
            .await
            .map_err(store_error)?;
        self.progress.room = most.saturating_sub(usize::try_from(count).unwrap_or_default());
        Ok(())
    }

    /// Retries rows that could not be imported and are due again.
    async fn retry_failures(&mut self) -> Result<(), StoreError> {
        let (inner, worker, room) = (self.inner, self.request.worker, self.progress.room);
        let retried = failures::retry(inner, &mut self.transaction, self.adoption, worker, room).await?;
        let (batch, many_failed) = retried;
        self.progress.many_failed = many_failed;
        self.progress.room -= batch.rows;
        self.imported.rows += batch.rows;
        self.imported.failed += batch.failed;
        Ok(())
    }

    /// Imports the next rows, as many as there is room for.
    async fn import_rows(&mut self) -> Result<(), StoreError> {
        let room = self.progress.room.min(self.request.batch);
        self.imported.full = room == 0;
        if room == 0 {
            return Ok(());
        }
        // The importer goes idle only after a list that was read in the same round.
        let is_fresh = self.progress.list.rows.is_empty();
        if is_fresh {
            self.list_rows().await?;
        }
        let listed = &mut self.progress.list.rows;
        let is_whole = listed.len() < LISTED;
        let ids: Vec<String> = listed.drain(..room.min(listed.len())).collect();
        self.imported.more = !(is_fresh && is_whole && listed.is_empty());
        let batch =
            failures::import_rows(&mut self.transaction, self.adoption, self.request.worker, &ids).await?;
        self.imported.rows += batch.rows;
        self.imported.failed += batch.failed;
        self.imported.more |= !batch.left.is_empty();
        for id in batch.left.into_iter().rev() {
            self.progress.list.rows.push_front(id);
        }
        self.progress.room = self.progress.room.saturating_sub(batch.rows);
        Ok(())
    }

    /// Reads the list. If many rows failed, before all others, it passes over them until it is old.
    async fn list_rows(&mut self) -> Result<(), StoreError> {
        let began = Instant::now();
        let last = std::mem::take(&mut self.progress.list);
        let is_valid = self.progress.many_failed && !last.is_old();
        let start = last.from.filter(|_| is_valid);
        let is_whole = start.is_none();
        let (from, is_empty) = self.skip_failed(start).await?;
        let rows = if is_empty {
            VecDeque::new()
        } else {
            self.list_from(from.as_deref()).await?
        };
        let read = if is_whole {
            Some((began, began.elapsed()))
        } else {
            last.read
        };
        self.progress.list = List { rows, from, read };
        Ok(())
    }

    /// Steps over rows that failed, from a position on, if they are many. Otherwise a million of them would be looked up for
    /// every list. Returns where to begin, and whether there is nothing to import.
    async fn skip_failed(
        &mut self,
        from: Option<Vec<String>>,
    ) -> Result<(Option<Vec<String>>, bool), StoreError> {
        if !self.progress.many_failed {
            return Ok((None, false));
        }
        let statement = AssertSqlSafe(self.adoption.first_position.clone());
        let first: Option<(Vec<Option<String>>, bool)> = sqlx::query_as(statement)
            .bind(self.adoption.name())
            .bind(&from)
            .persistent(false)
            .fetch_optional(&mut *self.transaction)
            .await
            .map_err(store_error)?;
        Ok(match first {
            // A position with a null has no place among others.
            Some((position, is_importable)) => (position.into_iter().collect(), !is_importable),
            None => (from, true),
        })
    }

    async fn list_from(&mut self, from: Option<&[String]>) -> Result<VecDeque<String>, StoreError> {
        let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(self.adoption.list.clone()))
            .bind(self.adoption.name())
            .bind(i64::try_from(LISTED).unwrap_or(i64::MAX))
            .bind(from)
            .persistent(false)
            .fetch_all(&mut *self.transaction)
            .await
            .map_err(store_error)?;
        Ok(rows.into())
    }
}
