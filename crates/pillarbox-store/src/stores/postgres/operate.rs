//! What operators do with the outbox. Bounded: no statement here reads the whole of a large table.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::observer::{Change, RowObserver};
use super::{Inner, Postgres, adopt, decode, list, sagas, store_error, workers};
use crate::operate::{
    AdoptedTableRecord, BlockedKey, DestinationRecord, Filter, MOST_BEHIND, MOST_NAMES, MOST_WAITING,
    Operate, Paused, Record, SKIPPED, Stats, WorkerRecord,
};
use crate::sagas::{SagaFilter, SagaLine, SagaRecord};
use crate::store::{Backlog, Scope, StoreError};
use crate::stores::sharing::unserved;
use pillarbox::saga::{Ask, AskResult};

/// Up to this many rows, a table is counted exactly.
const COUNTED: i64 = 100_000;

#[async_trait]
impl Operate for Postgres {
    async fn stats(&self, scope: &Scope) -> Result<Stats, StoreError> {
        self.run(stats(self.inner.clone(), scope.clone())).await
    }

    async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError> {
        self.run(list::list(self.inner.clone(), filter.clone())).await
    }

    async fn show(&self, id: Uuid) -> Result<Option<Record>, StoreError> {
        self.run(list::show(self.inner.clone(), id)).await
    }

    async fn retry(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let (inner, ids) = (self.inner.clone(), ids.to_vec());
        self.run(async move { inner.change(inner.sql.retry.safe(), ids).await })
            .await
    }

    async fn delete(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        self.run(delete(self.inner.clone(), ids.to_vec())).await
    }

    async fn blocked(&self, scope: &Scope, limit: usize) -> Result<Vec<BlockedKey>, StoreError> {
        self.run(blocked(self.inner.clone(), scope.clone(), limit)).await
    }

    async fn skip(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        self.run(skip(self.inner.clone(), ids.to_vec())).await
    }

    async fn destinations(
        &self,
        scope: &Scope,
        known: &[String],
    ) -> Result<Vec<DestinationRecord>, StoreError> {
        self.run(destinations(self.inner.clone(), scope.clone(), known.to_vec()))
            .await
    }

    async fn pause(&self, destination: &str, reason: &str) -> Result<(), StoreError> {
        let (destination, reason) = (destination.to_owned(), reason.to_owned());
        self.run(workers::pause(self.inner.clone(), destination, reason, false))
            .await
    }

    async fn resume(&self, destination: &str) -> Result<bool, StoreError> {
        self.run(workers::resume(self.inner.clone(), destination.to_owned()))
            .await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.run(workers::workers(self.inner.clone())).await
    }

    async fn adopted_tables(&self) -> Result<Vec<AdoptedTableRecord>, StoreError> {
        self.run(adopt::tables(self.inner.clone())).await
    }

    async fn retry_imports(&self, table: &str, rows: Option<&[String]>) -> Result<Vec<String>, StoreError> {
        let (table, rows) = (table.to_owned(), rows.map(<[String]>::to_vec));
        self.run(adopt::retry_imports(self.inner.clone(), table, rows))
            .await
    }

    async fn sagas(&self, filter: &SagaFilter) -> Result<Vec<SagaRecord>, StoreError> {
        self.run(sagas::list(self.inner.clone(), filter.clone())).await
    }

    async fn saga(&self, name: &str, id: &str) -> Result<Option<SagaRecord>, StoreError> {
        let (name, id) = (name.to_owned(), id.to_owned());
        self.run(sagas::show(self.inner.clone(), name, id)).await
    }

    async fn saga_log(&self, name: &str, id: &str) -> Result<Vec<SagaLine>, StoreError> {
        let (name, id) = (name.to_owned(), id.to_owned());
        self.run(sagas::log(self.inner.clone(), name, id)).await
    }

    async fn ask_saga(&self, name: &str, id: &str, ask: Ask) -> Result<AskResult, StoreError> {
        let (name, id) = (name.to_owned(), id.to_owned());
        let asked = sagas::send_request(self.inner.clone(), self.outbox(), name, id, ask);
        self.run(asked).await
    }
}

async fn stats(inner: Arc<Inner>, scope: Scope) -> Result<Stats, StoreError> {
    let count = |row: &PgRow, column: &str| -> Result<u64, StoreError> {
        let count: i64 = row.try_get(column).map_err(store_error)?;
        Ok(count.unsigned_abs())
    };
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.stats.safe())
        .bind(scope.names())
        .bind(COUNTED)
        .persistent(false);
    let row = query.fetch_one(&mut *transaction).await.map_err(store_error)?;
    let mut stats = Stats {
        pending: count(&row, "pending")?,
        processing: count(&row, "processing")?,
        delivered: count(&row, "delivered")?,
        dead: count(&row, "dead")?,
        unknown: count(&row, "unknown")?,
        unrouted: count(&row, "unrouted")?,
        exact: row.try_get("exact").map_err(store_error)?,
        oldest_pending_seconds: row.try_get("oldest").map_err(store_error)?,
    };
    if !stats.exact {
        let query = sqlx::query(inner.sql.stats_large.safe())
            .bind(scope.names())
            .bind(COUNTED);
        let row = query
            .persistent(false)
            .fetch_one(&mut *transaction)
            .await
            .map_err(store_error)?;
        stats.pending = count(&row, "pending")?;
        stats.processing = count(&row, "processing")?;
        stats.dead = count(&row, "dead")?;
        stats.unknown = count(&row, "unknown")?;
        stats.unrouted = count(&row, "unrouted")?;
        stats.oldest_pending_seconds = row.try_get("oldest").map_err(store_error)?;
        let rest = stats.pending + stats.processing + stats.dead + stats.unknown;
        stats.delivered = count(&row, "total")?.saturating_sub(rest);
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(stats)
}

async fn delete(inner: Arc<Inner>, ids: Vec<Uuid>) -> Result<Vec<Uuid>, StoreError> {
    let mut transaction = inner.begin().await?;
    let observer = inner.operator_observer();
    let locked = observer.lock(&mut transaction, &ids).await?;
    let deleted: Vec<(Uuid, Uuid, bool)> = sqlx::query_as(inner.sql.delete.safe())
        .bind(ids)
        .persistent(false)
        .fetch_all(&mut *transaction)
        .await
        .map_err(store_error)?;
    let undelivered = deleted.iter().filter(|(_, _, delivered)| !delivered);
    let undelivered: Vec<Uuid> = undelivered.map(|(_, event, _)| *event).collect();
    let change = Change {
        deleted: &undelivered,
        ..Change::default()
    };
    observer.changed(&mut transaction, locked, change).await?;
    transaction.commit().await.map_err(store_error)?;
    Ok(deleted.into_iter().map(|(id, _, _)| id).collect())
}

async fn skip(inner: Arc<Inner>, ids: Vec<Uuid>) -> Result<Vec<Uuid>, StoreError> {
    let mut transaction = inner.begin().await?;
    let observer = inner.operator_observer();
    let locked = observer.lock(&mut transaction, &ids).await?;
    let query = sqlx::query_scalar(inner.sql.skip.safe())
        .bind(ids)
        .bind(SKIPPED)
        .persistent(false);
    let skipped = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    observer
        .changed(&mut transaction, locked, Change::default())
        .await?;
    transaction.commit().await.map_err(store_error)?;
    Ok(skipped)
}

async fn blocked(inner: Arc<Inner>, scope: Scope, limit: usize) -> Result<Vec<BlockedKey>, StoreError> {
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.blocked.safe())
        .bind(scope.names())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .bind(i64::try_from(MOST_BEHIND).unwrap_or(i64::MAX))
        .persistent(false);
    let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    let mut keys: Vec<BlockedKey> = rows
        .iter()
        .map(blocked_key)
        .collect::<Result<_, _>>()
        .map_err(store_error)?;
    let room = limit.saturating_sub(keys.len());
    if room > 0 {
        keys.extend(unserved_keys(&inner, &scope, room).await?);
    }
    Ok(keys)
}

/// Keys that no live worker serves.
async fn unserved_keys(inner: &Inner, scope: &Scope, limit: usize) -> Result<Vec<BlockedKey>, StoreError> {
    let live = workers::live_workers(inner).await?;
    if live.is_empty() {
        return Ok(Vec::new());
    }
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.keyed_backlogs.safe())
        .bind(scope.names())
        .persistent(false);
    let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    let backlogs: Vec<Backlog> = rows
        .iter()
        .map(workers::backlog)
        .collect::<Result<_, _>>()
        .map_err(store_error)?;
    let unserved = unserved(backlogs, &live);
    let mut keys = Vec::new();
    if !unserved.is_empty() {
        let (namespaces, destinations) = workers::names(&unserved.iter().collect::<Vec<_>>());
        let query = sqlx::query(inner.sql.unserved.safe())
            .bind(destinations)
            .bind(namespaces)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(i64::try_from(MOST_BEHIND).unwrap_or(i64::MAX))
            .persistent(false);
        let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
        for row in &rows {
            keys.push(blocked_key(row).map_err(store_error)?.unserved());
        }
        keys.sort_by_key(|key| key.seq);
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(keys)
}

fn blocked_key(row: &PgRow) -> Result<BlockedKey, sqlx::Error> {
    Ok(BlockedKey {
        namespace: row.try_get("namespace")?,
        destination: row.try_get("destination")?,
        ordering_key: row.try_get("ordering_key")?,
        head: row.try_get("head")?,
        seq: row.try_get("seq")?,
        status: row.try_get("status")?,
        attempts: row.try_get("attempts")?,
        reason: row.try_get("reason")?,
        age_seconds: row.try_get("age")?,
        next_attempt_at: decode::shown(row, "next_attempt_at")?,
        behind: row.try_get::<i64, _>("behind")?.unsigned_abs(),
    })
}

async fn destinations(
    inner: Arc<Inner>,
    scope: Scope,
    known: Vec<String>,
) -> Result<Vec<DestinationRecord>, StoreError> {
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.destinations.safe())
        .bind(scope.names())
        .bind(i64::try_from(MOST_WAITING).unwrap_or(i64::MAX))
        .bind(known)
        .bind(i32::try_from(MOST_NAMES).unwrap_or(i32::MAX))
        .persistent(false);
    let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    rows.iter()
        .map(destination)
        .collect::<Result<_, _>>()
        .map_err(store_error)
}

fn destination(row: &PgRow) -> Result<DestinationRecord, sqlx::Error> {
    let since: Option<time::OffsetDateTime> = row.try_get("paused_at")?;
    let reason: Option<String> = row.try_get("reason")?;
    let disabled = row.try_get::<Option<bool>, _>("disabled")?.unwrap_or_default();
    Ok(DestinationRecord {
        name: row.try_get("name")?,
        paused: since.zip(reason).map(|(since, reason)| Paused {
            since,
            reason,
            disabled,
        }),
        pending: row.try_get::<i64, _>("pending")?.unsigned_abs(),
        dead: row.try_get::<i64, _>("dead")?.unsigned_abs(),
    })
}
