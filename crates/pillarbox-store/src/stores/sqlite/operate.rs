//! What operators do with the outbox.

use std::sync::LazyLock;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Row, SqlitePool};
use uuid::Uuid;

use super::choose::{destination, with_key_steps};
use super::find::names_json;
use super::{Sqlite, decode, ids_json, row_limit, sagas, scope_json, workers};
use crate::operate::{
    BlockedKey, DestinationRecord, Filter, MOST_BEHIND, MOST_NAMES, MOST_WAITING, Operate, Record, SKIPPED,
    Stats, WorkerRecord,
};
use crate::sagas::{SagaFilter, SagaLine, SagaRecord};
use crate::state::Status;
use crate::store::{Backlog, Scope, StoreError};
use crate::stores::sharing::unserved;
use pillarbox::internal::envelope::with_columns;
use pillarbox::saga::{Ask, AskResult};
use pillarbox::text::error_text;

/// Up to how many rows are counted one by one.
const COUNTED: i64 = 20_000;

static RECORD: LazyLock<String> = LazyLock::new(|| with_columns(include_str!("sql/record.sql")));

static UNSERVED: LazyLock<String> = LazyLock::new(|| with_key_steps(include_str!("sql/unserved.sql")));

/// The rows of one event.
const EVENT: &str = "and rowno in (
  select rowno from outbox_events where id = ?6 and parent_id is null
  union all select rowno from outbox_events where parent_id = ?6
)";

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
        let query = sqlx::query(include_str!("sql/retry.sql")).bind(ids_json(ids));
        self.change(query).await
    }

    async fn delete(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let query = sqlx::query(include_str!("sql/delete.sql")).bind(ids_json(ids));
        self.change(query).await
    }

    async fn blocked(&self, scope: &Scope, limit: usize) -> Result<Vec<BlockedKey>, StoreError> {
        self.apart(blocked(self.readers.clone(), scope.clone(), limit))
            .await
    }

    async fn skip(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let query = sqlx::query(include_str!("sql/skip.sql"))
            .bind(ids_json(ids))
            .bind(SKIPPED);
        self.change(query).await
    }

    async fn destinations(
        &self,
        scope: &Scope,
        known: &[String],
    ) -> Result<Vec<DestinationRecord>, StoreError> {
        self.apart(destinations(self.readers.clone(), scope.clone(), known.to_vec()))
            .await
    }

    async fn pause(&self, destination: &str, reason: &str) -> Result<(), StoreError> {
        let (destination, reason) = (destination.to_owned(), error_text(reason));
        self.apart(workers::pause(self.writer.clone(), destination, reason, false))
            .await
    }

    async fn resume(&self, destination: &str) -> Result<bool, StoreError> {
        let query = sqlx::query(include_str!("sql/resume.sql")).bind(destination.to_owned());
        let writer = self.writer.clone();
        let ended = self.apart(async move { query.execute(&writer).await }).await?;
        Ok(ended.rows_affected() > 0)
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.apart(workers::workers(self.readers.clone())).await
    }

    async fn sagas(&self, filter: &SagaFilter) -> Result<Vec<SagaRecord>, StoreError> {
        self.apart(sagas::list(self.readers.clone(), filter.clone()))
            .await
    }

    async fn saga(&self, name: &str, id: &str) -> Result<Option<SagaRecord>, StoreError> {
        let (name, id) = (name.to_owned(), id.to_owned());
        self.apart(sagas::show(self.readers.clone(), name, id)).await
    }

    async fn saga_log(&self, name: &str, id: &str) -> Result<Vec<SagaLine>, StoreError> {
        let (name, id) = (name.to_owned(), id.to_owned());
        self.apart(sagas::log(self.readers.clone(), name, id)).await
    }

    async fn ask_saga(&self, name: &str, id: &str, ask: Ask) -> Result<AskResult, StoreError> {
        let (name, id) = (name.to_owned(), id.to_owned());
        self.apart(sagas::tell(self.writer.clone(), name, id, ask))
            .await?
    }
}

async fn stats(readers: SqlitePool, scope: Scope) -> Result<Stats, sqlx::Error> {
    let row = sqlx::query(include_str!("sql/stats.sql"))
        .bind(scope_json(&scope))
        .bind(COUNTED)
        .fetch_one(&readers)
        .await?;
    let count = |column| decode::count(&row, column);
    Ok(Stats {
        pending: count("pending")?,
        processing: count("processing")?,
        delivered: count("delivered")?,
        dead: count("dead")?,
        unknown: count("unknown")?,
        unrouted: count("unrouted")?,
        exact: row.try_get("exact")?,
        oldest_pending_seconds: row.try_get("oldest")?,
    })
}

async fn list(readers: SqlitePool, filter: Filter) -> Result<Vec<Record>, sqlx::Error> {
    let limit = if filter.limit == 0 { 50 } else { filter.limit };
    // The status is a literal. A partial index does not serve a bound value.
    let status = match filter.status {
        None => "",
        Some(Status::Pending) => "and status = 'pending'",
        Some(Status::Processing) => "and status = 'processing'",
        Some(Status::Delivered) => "and status = 'delivered'",
        Some(Status::Dead) => "and status = 'dead'",
        Some(Status::Unknown(_)) => "and status not in ('pending', 'processing', 'delivered', 'dead')",
    };
    let event = filter.event.map_or("", |_| EVENT);
    let columns = RECORD.replace("/*payload*/", "null");
    let sql = format!(
        "{columns} where seq is not null and seq < ?1 {status} and (?2 is null or topic = ?2)
         and (?3 is null or namespace in (select value from json_each(?3)))
         and (?5 is null or destination = ?5) {event}
         order by seq desc, rowno desc limit ?4"
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(filter.before.unwrap_or(i64::MAX))
        .bind(filter.topic)
        .bind(scope_json(&filter.scope))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .bind(filter.destination)
        .bind(filter.event.map(|id| id.to_string()))
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

async fn blocked(readers: SqlitePool, scope: Scope, limit: usize) -> Result<Vec<BlockedKey>, sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/blocked.sql"))
        .bind(scope_json(&scope))
        .bind(row_limit(limit))
        .bind(most(MOST_BEHIND))
        .fetch_all(&readers)
        .await?;
    let mut keys: Vec<BlockedKey> = rows.iter().map(decode::blocked_key).collect::<Result<_, _>>()?;
    let room = limit.saturating_sub(keys.len());
    if room > 0 {
        keys.extend(unserved_keys(&readers, &scope, room).await?);
    }
    Ok(keys)
}

/// Keys that no live worker serves.
async fn unserved_keys(
    readers: &SqlitePool,
    scope: &Scope,
    limit: usize,
) -> Result<Vec<BlockedKey>, sqlx::Error> {
    let mut connection = readers.acquire().await?;
    let live = workers::live_workers(&mut connection).await?;
    let rows = sqlx::query(include_str!("sql/keyed_backlogs.sql"))
        .bind(scope_json(scope))
        .fetch_all(&mut *connection)
        .await?;
    let backlogs: Vec<Backlog> = rows.iter().map(decode::backlog).collect::<Result<_, _>>()?;
    let mut keys: Vec<BlockedKey> = Vec::new();
    for backlog in unserved(backlogs, &live) {
        let room = limit - keys.len();
        let rows = sqlx::query(UNSERVED.as_str())
            .bind(destination(&backlog).to_owned())
            .bind(backlog.namespace)
            .bind("")
            .bind(None::<String>)
            .bind(row_limit(room.saturating_mul(2)))
            .bind(row_limit(room))
            .bind(most(MOST_BEHIND))
            .fetch_all(&mut *connection)
            .await?;
        for row in &rows {
            keys.push(decode::blocked_key(row)?.unserved());
        }
        if keys.len() >= limit {
            break;
        }
    }
    keys.sort_by_key(|key| key.seq);
    Ok(keys)
}

async fn destinations(
    readers: SqlitePool,
    scope: Scope,
    known: Vec<String>,
) -> Result<Vec<DestinationRecord>, sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/destinations.sql"))
        .bind(scope_json(&scope))
        .bind(most(MOST_WAITING))
        .bind(names_json(known))
        .bind(i32::try_from(MOST_NAMES).unwrap_or(i32::MAX))
        .fetch_all(&readers)
        .await?;
    rows.iter().map(decode::destination).collect()
}

/// A cap as a LIMIT.
fn most(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
