//! What people ask of the outbox.

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Row, SqlitePool};
use uuid::Uuid;

use super::{Sqlite, decode, ids_json, scope_json};
use crate::operate::{Filter, Operate, Record, Stats};
use crate::state::Status;
use crate::store::{Scope, StoreError};

/// Up to how many rows are counted one by one.
const COUNTED: i64 = 20_000;

const RECORD: &str = include_str!("sql/record.sql");

#[async_trait]
impl Operate for Sqlite {
    async fn stats(&self, scope: &Scope) -> Result<Stats, StoreError> {
        self.apart(stats(self.readers.clone(), scope.clone())).await
    }

    async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError> {
        self.apart(list(self.readers.clone(), filter.clone())).await
    }

    async fn show(&self, id: Uuid) -> Result<Option<Record>, StoreError> {
        self.apart(show(self.readers.clone(), id)).await
    }

    async fn retry(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let sql = include_str!("sql/retry.sql");
        self.apart(change(self.writer.clone(), sql, ids_json(ids))).await
    }

    async fn delete(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let sql = include_str!("sql/delete.sql");
        self.apart(change(self.writer.clone(), sql, ids_json(ids))).await
    }
}

async fn stats(readers: SqlitePool, scope: Scope) -> Result<Stats, sqlx::Error> {
    let row = sqlx::query(include_str!("sql/stats.sql"))
        .bind(scope_json(&scope))
        .bind(COUNTED)
        .fetch_one(&readers)
        .await?;
    let count = |column| -> Result<u64, sqlx::Error> {
        Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0)) // a count is never negative
    };
    Ok(Stats {
        pending: count("pending")?,
        processing: count("processing")?,
        delivered: count("delivered")?,
        dead: count("dead")?,
        unknown: count("unknown")?,
        exact: row.try_get("exact")?,
        oldest_pending_seconds: row.try_get("oldest")?,
    })
}

async fn list(readers: SqlitePool, filter: Filter) -> Result<Vec<Record>, sqlx::Error> {
    let limit = if filter.limit == 0 { 50 } else { filter.limit };
    // A status is written out, not bound: a partial index serves only what the statement itself says.
    let status = match filter.status {
        None => "",
        Some(Status::Pending) => "and status = 'pending'",
        Some(Status::Processing) => "and status = 'processing'",
        Some(Status::Delivered) => "and status = 'delivered'",
        Some(Status::Dead) => "and status = 'dead'",
        Some(Status::Unknown(_)) => "and status not in ('pending', 'processing', 'delivered', 'dead')",
    };
    let columns = RECORD.replace("/*payload*/", "null");
    let sql = format!(
        "{columns} where seq is not null and seq < ?1 {status} and (?2 is null or topic = ?2)
         and (?3 is null or namespace in (select value from json_each(?3))) order by seq desc, rowno desc limit ?4"
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(filter.before.unwrap_or(i64::MAX))
        .bind(filter.topic)
        .bind(scope_json(&filter.scope))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(&readers)
        .await?;
    rows.iter().map(decode::record).collect()
}

async fn show(readers: SqlitePool, id: Uuid) -> Result<Option<Record>, sqlx::Error> {
    let columns = RECORD.replace("/*payload*/", "payload");
    let row = sqlx::query(AssertSqlSafe(format!("{columns} where id = ?1")))
        .bind(id.to_string())
        .fetch_optional(&readers)
        .await?;
    row.as_ref().map(decode::record).transpose()
}

/// Runs a statement that takes ids and returns those that it changed.
async fn change(writer: SqlitePool, sql: &'static str, ids: String) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    let rows = sqlx::query(sql).bind(ids).fetch_all(&mut *tx).await?;
    tx.commit().await?;
    let mut changed = Vec::new();
    for row in &rows {
        changed.extend(decode::uuid(row, "id")?);
    }
    Ok(changed)
}
