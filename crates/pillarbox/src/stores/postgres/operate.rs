//! What people ask of the outbox. Bounded: nothing here reads the whole of a large table.

use std::fmt::Write;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::{Inner, Postgres, store_error};
use crate::operate::{Filter, Operate, Record, Stats};
use crate::state::Status;
use crate::store::{Scope, StoreError};

/// Up to so many rows a table is counted exactly.
const COUNTED: i64 = 100_000;

#[async_trait]
impl Operate for Postgres {
    async fn stats(&self, scope: &Scope) -> Result<Stats, StoreError> {
        self.run(stats(self.inner.clone(), scope.clone())).await
    }

    async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError> {
        self.run(list(self.inner.clone(), filter.clone())).await
    }

    async fn show(&self, id: Uuid) -> Result<Option<Record>, StoreError> {
        self.run(show(self.inner.clone(), id)).await
    }

    async fn retry(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let statement = self.inner.sql.retry.safe();
        self.run(change(self.inner.clone(), statement, ids.to_vec()))
            .await
    }

    async fn delete(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let statement = self.inner.sql.delete.safe();
        self.run(change(self.inner.clone(), statement, ids.to_vec()))
            .await
    }
}

async fn change(
    inner: Arc<Inner>,
    statement: AssertSqlSafe<Arc<str>>,
    ids: Vec<Uuid>,
) -> Result<Vec<Uuid>, StoreError> {
    let mut transaction = inner.begin().await?;
    let query = sqlx::query_scalar(statement).bind(ids).persistent(false);
    let changed = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(changed)
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
        let rest = stats.pending + stats.processing + stats.dead + stats.unknown;
        stats.delivered = count(&row, "total")?.saturating_sub(rest);
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(stats)
}

async fn list(inner: Arc<Inner>, filter: Filter) -> Result<Vec<Record>, StoreError> {
    // The status is written into the statement, because only then does its partial index serve. Without
    // one the primary key gives the newest first, since ids grow with time.
    let (status, order) = match &filter.status {
        None => ("true", "id desc"),
        Some(Status::Pending) => ("status = 'pending'", "seq desc"),
        Some(Status::Processing) => ("status = 'processing'", "seq desc"),
        Some(Status::Delivered) => ("status = 'delivered'", "id desc"),
        Some(Status::Dead) => ("status = 'dead'", "seq desc"),
        Some(Status::Unknown(_)) => (
            "status not in ('pending', 'processing', 'delivered', 'dead')",
            "seq desc",
        ),
    };
    let mut text = record_sql(&inner, "null::jsonb");
    write!(
        text,
        "where {status} and ($1::text[] is null or namespace = any($1)) and ($2::text is null or topic = $2) \
         and ($3::bigint is null or seq < $3) order by {order} limit $4"
    )
    .map_err(|error| StoreError::Other(error.to_string()))?;
    let limit = if filter.limit == 0 { 50 } else { filter.limit };
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(AssertSqlSafe(text))
        .bind(filter.scope.names())
        .bind(filter.topic)
        .bind(filter.before)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .persistent(false);
    let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    let mut records = rows
        .iter()
        .map(record)
        .collect::<Result<Vec<_>, _>>()
        .map_err(store_error)?;
    records.sort_by_key(|record| std::cmp::Reverse(record.seq));
    Ok(records)
}

async fn show(inner: Arc<Inner>, id: Uuid) -> Result<Option<Record>, StoreError> {
    let text = record_sql(&inner, "payload") + "where id = $1";
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(AssertSqlSafe(text)).bind(id).persistent(false);
    let row = query
        .fetch_optional(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    row.as_ref().map(record).transpose().map_err(store_error)
}

fn record_sql(inner: &Inner, payload: &str) -> String {
    inner.sql.record.text().replace("/*payload*/", payload)
}

fn record(row: &PgRow) -> Result<Record, sqlx::Error> {
    Ok(Record {
        id: row.try_get("id")?,
        event_id: row.try_get("event_id")?,
        seq: row.try_get("seq")?,
        namespace: row.try_get("namespace")?,
        topic: row.try_get("topic")?,
        event_type: row.try_get("event_type")?,
        event_version: row.try_get("event_version")?,
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        tenant_id: row.try_get("tenant_id")?,
        dedupe_key: row.try_get("dedupe_key")?,
        ordering_key: row.try_get("ordering_key")?,
        severity: row.try_get("severity")?,
        destination: row.try_get("destination")?,
        status: row.try_get("status")?,
        attempts: row.try_get("attempts")?,
        max_attempts: row.try_get("max_attempts")?,
        next_attempt_at: row.try_get("next_attempt_at")?,
        locked_by: row.try_get("locked_by")?,
        locked_until: row.try_get("locked_until")?,
        last_error: row.try_get("last_error")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        delivered_at: row.try_get("delivered_at")?,
        content_type: row.try_get("content_type")?,
        content_encoding: row.try_get("content_encoding")?,
        headers: row.try_get("headers")?,
        payload: row.try_get("payload")?,
        body_bytes: row.try_get("body_bytes")?,
    })
}
