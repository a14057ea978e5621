//! What operators see of the outbox, and what they change.

use async_trait::async_trait;
use sqlx::{Row, SqlitePool};
use uuid::Uuid;

use super::choose::destination;
use super::find::names_json;
use super::tenant::{Confined, FAMILY};
use super::{Sqlite, audit, by_hand, decode, row_limit, sagas, scope_json, workers};
use crate::actor::{Actor, OperateError, Permission};
use crate::archive::Restored;
use crate::audit::{AuditFilter, AuditRecord, Line};
use crate::operate::{
    BlockedKey, Content, DestinationRecord, Filter, MOST_BEHIND, MOST_NAMES, MOST_WAITING, Operate, Record,
    Stats, WorkerRecord,
};
use crate::retention::{DeleteOld, Pruned};
use crate::sagas::{SagaFilter, SagaLine, SagaRecord};
use crate::state::Status;
use crate::store::{Backlog, Scope};
use crate::stores::sharing::unserved;
use pillarbox::saga::{Ask, AskResult};
use pillarbox::text::error_text;

/// Up to how many rows are counted one by one.
const COUNTED: i64 = 20_000;

#[async_trait]
impl Operate for Sqlite {
    async fn stats(&self, actor: &Actor, scope: &Scope) -> Result<Stats, OperateError> {
        actor.may(Permission::Read)?;
        let counted = stats(self.readers.clone(), Confined(actor.tenant()), scope.clone());
        Ok(self.apart(counted).await?)
    }

    async fn list(&self, actor: &Actor, filter: &Filter) -> Result<Vec<Record>, OperateError> {
        actor.may(Permission::Read)?;
        let listed = list(self.readers.clone(), Confined(actor.tenant()), filter.clone());
        Ok(self.apart(listed).await?.seen_by(actor))
    }

    async fn show(&self, actor: &Actor, id: Uuid) -> Result<Option<Record>, OperateError> {
        actor.may(Permission::Read)?;
        let shown = show(self.readers.clone(), Confined(actor.tenant()), id);
        Ok(self.apart(shown).await?.seen_by(actor))
    }

    async fn retry(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError> {
        actor.may(Permission::Write)?;
        let retried = by_hand::retry(self.writer.clone(), actor.clone(), ids.to_vec());
        Ok(self.apart(retried).await?)
    }

    async fn delete(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError> {
        actor.may(Permission::Delete)?;
        let deleted = by_hand::delete(self.writer.clone(), actor.clone(), ids.to_vec());
        Ok(self.apart(deleted).await?)
    }

    async fn delete_old(&self, actor: &Actor, request: &DeleteOld) -> Result<Pruned, OperateError> {
        actor.may_in_system(Permission::Delete)?;
        let deleted = by_hand::delete_old(self.writer.clone(), actor.clone(), request.clone());
        Ok(self.apart(deleted).await??)
    }

    async fn restore(&self, actor: &Actor, rows: &[String], dry_run: bool) -> Result<Restored, OperateError> {
        actor.may_in_system(Permission::Write)?;
        let restored = by_hand::restore(self.writer.clone(), actor.clone(), rows.to_vec(), dry_run);
        Ok(self.apart(restored).await??)
    }

    async fn blocked(
        &self,
        actor: &Actor,
        scope: &Scope,
        limit: usize,
    ) -> Result<Vec<BlockedKey>, OperateError> {
        actor.may(Permission::Read)?;
        let blocked = blocked(
            self.readers.clone(),
            Confined(actor.tenant()),
            scope.clone(),
            limit,
        );
        Ok(self.apart(blocked).await?.seen_by(actor))
    }

    async fn skip(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError> {
        actor.may(Permission::Write)?;
        let skipped = by_hand::skip(self.writer.clone(), actor.clone(), ids.to_vec());
        Ok(self.apart(skipped).await?)
    }

    async fn destinations(
        &self,
        actor: &Actor,
        scope: &Scope,
        known: &[String],
    ) -> Result<Vec<DestinationRecord>, OperateError> {
        actor.may(Permission::Read)?;
        let (readers, confined) = (self.readers.clone(), Confined(actor.tenant()));
        let found = destinations(readers, confined, scope.clone(), known.to_vec());
        let found = self.apart(found).await?.into_iter();
        Ok(found.map(|record| record.seen_by(actor)).collect())
    }

    async fn pause(&self, actor: &Actor, destination: &str, reason: &str) -> Result<(), OperateError> {
        actor.may_in_system(Permission::Write)?;
        let line = Line::paused(actor, destination, reason);
        let (destination, reason) = (destination.to_owned(), error_text(reason));
        let pause = workers::pause(self.writer.clone(), destination, reason, false, line);
        Ok(self.apart(pause).await?)
    }

    async fn resume(&self, actor: &Actor, destination: &str) -> Result<bool, OperateError> {
        actor.may_in_system(Permission::Write)?;
        let resume = workers::resume(self.writer.clone(), actor.clone(), destination.to_owned());
        Ok(self.apart(resume).await?)
    }

    async fn workers(&self, actor: &Actor) -> Result<Vec<WorkerRecord>, OperateError> {
        actor.may_in_system(Permission::Read)?;
        let workers = self.apart(workers::workers(self.readers.clone())).await?;
        Ok(workers.seen_by(actor))
    }

    async fn sagas(&self, actor: &Actor, filter: &SagaFilter) -> Result<Vec<SagaRecord>, OperateError> {
        actor.may(Permission::Read)?;
        if actor.tenant().is_some() {
            return Ok(Vec::new()); // a saga has no tenant
        }
        let listed = self.apart(sagas::list(self.readers.clone(), filter.clone()));
        Ok(listed.await?.seen_by(actor))
    }

    async fn saga(&self, actor: &Actor, name: &str, id: &str) -> Result<Option<SagaRecord>, OperateError> {
        actor.may(Permission::Read)?;
        if actor.tenant().is_some() {
            return Ok(None);
        }
        let (name, id) = (name.to_owned(), id.to_owned());
        let shown = self.apart(sagas::show(self.readers.clone(), name, id));
        Ok(shown.await?.seen_by(actor))
    }

    async fn saga_log(&self, actor: &Actor, name: &str, id: &str) -> Result<Vec<SagaLine>, OperateError> {
        actor.may(Permission::Read)?;
        if actor.tenant().is_some() {
            return Ok(Vec::new());
        }
        let (name, id) = (name.to_owned(), id.to_owned());
        let lines = self.apart(sagas::log(self.readers.clone(), name, id));
        Ok(lines.await?.seen_by(actor))
    }

    async fn ask_saga(
        &self,
        actor: &Actor,
        name: &str,
        id: &str,
        ask: Ask,
    ) -> Result<AskResult, OperateError> {
        actor.may(Permission::Write)?;
        if actor.tenant().is_some() {
            return Ok(AskResult::NotFound);
        }
        let request = sagas::Request {
            actor: actor.clone(),
            name: name.to_owned(),
            id: id.to_owned(),
            ask,
        };
        let asked = sagas::send_request(self.writer.clone(), request);
        Ok(self.apart(asked).await??)
    }

    async fn audit(&self, actor: &Actor, filter: &AuditFilter) -> Result<Vec<AuditRecord>, OperateError> {
        actor.may(Permission::Audit)?;
        let lines = audit::list(self.readers.clone(), Confined(actor.tenant()), filter.clone());
        Ok(self.apart(lines).await?)
    }
}

pub(super) async fn stats(
    readers: SqlitePool,
    confined: Confined,
    scope: Scope,
) -> Result<Stats, sqlx::Error> {
    let row = sqlx::query(confined.stats())
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

async fn list(readers: SqlitePool, confined: Confined, filter: Filter) -> Result<Vec<Record>, sqlx::Error> {
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
    let event = filter.event.map_or("", |_| FAMILY);
    let condition = format!(
        "seq is not null and seq < ?1 {status} and (?2 is null or topic = ?2)
         and (?3 is null or namespace in (select value from json_each(?3)))
         and (?5 is null or destination = ?5) {event}"
    );
    let sql = confined.records("null", &condition, "order by seq desc, rowno desc limit ?4");
    let rows = sqlx::query(sql)
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

async fn show(readers: SqlitePool, confined: Confined, id: Uuid) -> Result<Option<Record>, sqlx::Error> {
    let row = sqlx::query(confined.records("payload", "id = ?1", ""))
        .bind(id.to_string())
        .fetch_optional(&readers)
        .await?;
    row.as_ref().map(decode::record).transpose()
}

async fn blocked(
    readers: SqlitePool,
    confined: Confined,
    scope: Scope,
    limit: usize,
) -> Result<Vec<BlockedKey>, sqlx::Error> {
    let rows = sqlx::query(confined.blocked())
        .bind(scope_json(&scope))
        .bind(row_limit(limit))
        .bind(most(MOST_BEHIND))
        .fetch_all(&readers)
        .await?;
    let mut keys: Vec<BlockedKey> = rows.iter().map(decode::blocked_key).collect::<Result<_, _>>()?;
    let room = limit.saturating_sub(keys.len());
    if room > 0 {
        keys.extend(unserved_keys(&readers, confined, &scope, room).await?);
    }
    Ok(keys)
}

/// Keys that no live worker serves.
async fn unserved_keys(
    readers: &SqlitePool,
    confined: Confined,
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
        let rows = sqlx::query(confined.unserved())
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
    confined: Confined,
    scope: Scope,
    known: Vec<String>,
) -> Result<Vec<DestinationRecord>, sqlx::Error> {
    let rows = sqlx::query(confined.destinations())
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
