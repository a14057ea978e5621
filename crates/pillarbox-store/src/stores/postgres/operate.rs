//! What operators see of the outbox, and what they change. Bounded: no statement here reads the whole of a large table.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Inner, Postgres, adopt, audit, by_hand, decode, list, sagas, store_error, workers};
use crate::actor::{Actor, OperateError, Permission};
use crate::archive::Restored;
use crate::audit::{AuditFilter, AuditRecord, Line};
use crate::operate::{
    AdoptedTableRecord, BlockedKey, Content, DestinationRecord, Filter, MOST_BEHIND, MOST_NAMES,
    MOST_WAITING, Operate, Paused, Record, Stats, WorkerRecord,
};
use crate::retention::{DeleteOld, Pruned};
use crate::sagas::{SagaFilter, SagaLine, SagaRecord};
use crate::store::{Backlog, Scope, StoreError};
use crate::stores::sharing::unserved;
use pillarbox::saga::{Ask, AskResult};

/// Up to this many rows, a table is counted exactly.
const COUNTED: i64 = 100_000;

#[async_trait]
impl Operate for Postgres {
    async fn stats(&self, actor: &Actor, scope: &Scope) -> Result<Stats, OperateError> {
        actor.may(Permission::Read)?;
        let counted = stats(self.inner.clone(), actor.tenant(), scope.clone());
        Ok(self.run(counted).await?)
    }

    async fn list(&self, actor: &Actor, filter: &Filter) -> Result<Vec<Record>, OperateError> {
        actor.may(Permission::Read)?;
        let listed = list::list(self.inner.clone(), actor.tenant(), filter.clone());
        Ok(self.run(listed).await?.seen_by(actor))
    }

    async fn show(&self, actor: &Actor, id: Uuid) -> Result<Option<Record>, OperateError> {
        actor.may(Permission::Read)?;
        let shown = list::show(self.inner.clone(), actor.tenant(), id);
        Ok(self.run(shown).await?.seen_by(actor))
    }

    async fn retry(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError> {
        actor.may(Permission::Write)?;
        let retried = by_hand::retry(self.inner.clone(), actor.clone(), ids.to_vec());
        Ok(self.run(retried).await?)
    }

    async fn delete(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError> {
        actor.may(Permission::Delete)?;
        let deleted = by_hand::delete(self.inner.clone(), actor.clone(), ids.to_vec());
        Ok(self.run(deleted).await?)
    }

    async fn delete_old(&self, actor: &Actor, request: &DeleteOld) -> Result<Pruned, OperateError> {
        actor.may_in_system(Permission::Delete)?;
        let deleted = by_hand::delete_old(self.inner.clone(), actor.clone(), request.clone());
        Ok(self.run(deleted).await?)
    }

    async fn restore(&self, actor: &Actor, rows: &[String], dry_run: bool) -> Result<Restored, OperateError> {
        actor.may_in_system(Permission::Write)?;
        let restored = by_hand::restore(self.inner.clone(), actor.clone(), rows.to_vec(), dry_run);
        Ok(self.run(restored).await?)
    }

    async fn blocked(
        &self,
        actor: &Actor,
        scope: &Scope,
        limit: usize,
    ) -> Result<Vec<BlockedKey>, OperateError> {
        actor.may(Permission::Read)?;
        let blocked = blocked(self.inner.clone(), actor.tenant(), scope.clone(), limit);
        Ok(self.run(blocked).await?.seen_by(actor))
    }

    async fn skip(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError> {
        actor.may(Permission::Write)?;
        let skipped = by_hand::skip(self.inner.clone(), actor.clone(), ids.to_vec());
        Ok(self.run(skipped).await?)
    }

    async fn destinations(
        &self,
        actor: &Actor,
        scope: &Scope,
        known: &[String],
    ) -> Result<Vec<DestinationRecord>, OperateError> {
        actor.may(Permission::Read)?;
        let (inner, scope, known) = (self.inner.clone(), scope.clone(), known.to_vec());
        let found = destinations(inner, actor.tenant(), scope, known);
        let found = self.run(found).await?.into_iter();
        Ok(found.map(|record| record.seen_by(actor)).collect())
    }

    async fn pause(&self, actor: &Actor, destination: &str, reason: &str) -> Result<(), OperateError> {
        actor.may_in_system(Permission::Write)?;
        let line = Line::paused(actor, destination, reason);
        let (destination, reason) = (destination.to_owned(), reason.to_owned());
        let pause = workers::pause(self.inner.clone(), destination, reason, false, line);
        Ok(self.run(pause).await?)
    }

    async fn resume(&self, actor: &Actor, destination: &str) -> Result<bool, OperateError> {
        actor.may_in_system(Permission::Write)?;
        let resume = workers::resume(self.inner.clone(), actor.clone(), destination.to_owned());
        Ok(self.run(resume).await?)
    }

    async fn workers(&self, actor: &Actor) -> Result<Vec<WorkerRecord>, OperateError> {
        actor.may_in_system(Permission::Read)?;
        let workers = self.run(workers::workers(self.inner.clone())).await?;
        Ok(workers.seen_by(actor))
    }

    async fn adopted_tables(&self, actor: &Actor) -> Result<Vec<AdoptedTableRecord>, OperateError> {
        actor.may_in_system(Permission::Read)?;
        Ok(self.run(adopt::tables(self.inner.clone())).await?)
    }

    async fn retry_imports(
        &self,
        actor: &Actor,
        table: &str,
        rows: Option<&[String]>,
    ) -> Result<Vec<String>, OperateError> {
        actor.may_in_system(Permission::Write)?;
        let (table, rows) = (table.to_owned(), rows.map(<[String]>::to_vec));
        let retried = adopt::retry_imports(self.inner.clone(), actor.clone(), table, rows);
        Ok(self.run(retried).await?)
    }

    async fn sagas(&self, actor: &Actor, filter: &SagaFilter) -> Result<Vec<SagaRecord>, OperateError> {
        actor.may(Permission::Read)?;
        if actor.tenant().is_some() {
            return Ok(Vec::new()); // a saga has no tenant
        }
        let listed = self.run(sagas::list(self.inner.clone(), filter.clone()));
        Ok(listed.await?.seen_by(actor))
    }

    async fn saga(&self, actor: &Actor, name: &str, id: &str) -> Result<Option<SagaRecord>, OperateError> {
        actor.may(Permission::Read)?;
        if actor.tenant().is_some() {
            return Ok(None);
        }
        let (name, id) = (name.to_owned(), id.to_owned());
        let shown = self.run(sagas::show(self.inner.clone(), name, id));
        Ok(shown.await?.seen_by(actor))
    }

    async fn saga_log(&self, actor: &Actor, name: &str, id: &str) -> Result<Vec<SagaLine>, OperateError> {
        actor.may(Permission::Read)?;
        if actor.tenant().is_some() {
            return Ok(Vec::new());
        }
        let (name, id) = (name.to_owned(), id.to_owned());
        let lines = self.run(sagas::log(self.inner.clone(), name, id));
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
        let asked = sagas::send_request(self.inner.clone(), self.outbox(), request);
        Ok(self.run(asked).await?)
    }

    async fn audit(&self, actor: &Actor, filter: &AuditFilter) -> Result<Vec<AuditRecord>, OperateError> {
        actor.may(Permission::Audit)?;
        let lines = audit::list(self.inner.clone(), actor.tenant(), filter.clone());
        Ok(self.run(lines).await?)
    }
}

pub(super) async fn stats(
    inner: Arc<Inner>,
    tenant: Option<Uuid>,
    scope: Scope,
) -> Result<Stats, StoreError> {
    let count = |row: &PgRow, column: &str| -> Result<u64, StoreError> {
        let count: i64 = row.try_get(column).map_err(store_error)?;
        Ok(count.unsigned_abs())
    };
    let mut transaction = inner.begin_for(tenant).await?;
    let query = sqlx::query(inner.sql.stats.safe())
        .bind(scope.names())
        .bind(COUNTED)
        .bind(tenant)
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
        let statement = match tenant {
            Some(_) => &inner.sql.stats_large_of_tenant,
            None => &inner.sql.stats_large,
        };
        let query = sqlx::query(statement.safe())
            .bind(scope.names())
            .bind(COUNTED)
            .bind(tenant);
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
        let total = count(&row, "total")?;
        stats.delivered = match (tenant, &scope) {
            // Of the rows that were read. The size of the table is that of all tenants.
            (Some(_), _) => stats.delivered,
            (None, Scope::All) => {
                let rest = stats.pending + stats.processing + stats.dead + stats.unknown;
                total.saturating_sub(rest)
            }
            // The sample has as many of them as the table, in proportion.
            (None, _) => stats.delivered.saturating_mul(total) / COUNTED.unsigned_abs(),
        };
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(stats)
}

async fn blocked(
    inner: Arc<Inner>,
    tenant: Option<Uuid>,
    scope: Scope,
    limit: usize,
) -> Result<Vec<BlockedKey>, StoreError> {
    let mut transaction = inner.begin_for(tenant).await?;
    let statement = match tenant {
        Some(_) => &inner.sql.blocked_of_tenant,
        None => &inner.sql.blocked,
    };
    let query = sqlx::query(statement.safe())
        .bind(scope.names())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .bind(i64::try_from(MOST_BEHIND).unwrap_or(i64::MAX))
        .bind(tenant)
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
        keys.extend(unserved_keys(&inner, tenant, &scope, room).await?);
    }
    Ok(keys)
}

/// Keys that no live worker serves.
async fn unserved_keys(
    inner: &Inner,
    tenant: Option<Uuid>,
    scope: &Scope,
    limit: usize,
) -> Result<Vec<BlockedKey>, StoreError> {
    let live = workers::live_workers(inner).await?;
    if live.is_empty() {
        return Ok(Vec::new());
    }
    let mut transaction = inner.begin_for(tenant).await?;
    let (backlogs, unserved_keys) = match tenant {
        Some(_) => (&inner.sql.keyed_backlogs_of_tenant, &inner.sql.unserved_of_tenant),
        None => (&inner.sql.keyed_backlogs, &inner.sql.unserved),
    };
    let mut query = sqlx::query(backlogs.safe()).bind(scope.names());
    if tenant.is_some() {
        query = query.bind(tenant);
    }
    let query = query.persistent(false);
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
        let query = sqlx::query(unserved_keys.safe())
            .bind(destinations)
            .bind(namespaces)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(i64::try_from(MOST_BEHIND).unwrap_or(i64::MAX))
            .bind(tenant)
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
    tenant: Option<Uuid>,
    scope: Scope,
    known: Vec<String>,
) -> Result<Vec<DestinationRecord>, StoreError> {
    let mut transaction = inner.begin_for(tenant).await?;
    let statement = match tenant {
        Some(_) => &inner.sql.destinations_of_tenant,
        None => &inner.sql.destinations,
    };
    let query = sqlx::query(statement.safe())
        .bind(scope.names())
        .bind(i64::try_from(MOST_WAITING).unwrap_or(i64::MAX))
        .bind(known)
        .bind(i32::try_from(MOST_NAMES).unwrap_or(i32::MAX))
        .bind(tenant)
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
