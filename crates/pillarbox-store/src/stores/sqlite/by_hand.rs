//! What operators change: retry, skip, delete. The actor's tenant is a condition of each statement.
//!
//! **If we die here** the transaction rolls back, with its line of the audit.

use std::collections::HashMap;

use sqlx::SqlitePool;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use uuid::Uuid;

use super::tenant::Confined;
use super::{audit, decode, ids_json, prune, row_limit};
use crate::actor::Actor;
use crate::archive::{Restored, refusal};
use crate::audit::{Action, Changed, Line};
use crate::operate::SKIPPED;
use crate::retention::{DeleteOld, Pruned};
use crate::state::Status;
use crate::store::StoreError;

type ChangingQuery = Query<'static, sqlx::Sqlite, SqliteArguments>;

pub(super) async fn retry(
    writer: SqlitePool,
    actor: Actor,
    ids: Vec<Uuid>,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let query = sqlx::query(Confined(actor.tenant()).retry()).bind(ids_json(&ids));
    let line = |rows: &[Changed]| Line::of_rows(&actor, Action::RetryEvents, rows, Some(&Status::Pending));
    change(&writer, &actor, &ids, query, line).await
}

pub(super) async fn skip(writer: SqlitePool, actor: Actor, ids: Vec<Uuid>) -> Result<Vec<Uuid>, sqlx::Error> {
    let query = sqlx::query(Confined(actor.tenant()).skip())
        .bind(ids_json(&ids))
        .bind(SKIPPED);
    let line = |rows: &[Changed]| Line::of_rows(&actor, Action::SkipEvents, rows, Some(&Status::Dead));
    change(&writer, &actor, &ids, query, line).await
}

pub(super) async fn delete(
    writer: SqlitePool,
    actor: Actor,
    ids: Vec<Uuid>,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let query = sqlx::query(Confined(actor.tenant()).delete()).bind(ids_json(&ids));
    let line = |rows: &[Changed]| Line::of_rows(&actor, Action::DeleteEvents, rows, None);
    change(&writer, &actor, &ids, query, line).await
}

/// Changes rows and writes the line, in one transaction. It has the write lock, so no status changes in between.
async fn change(
    writer: &SqlitePool,
    actor: &Actor,
    ids: &[Uuid],
    query: ChangingQuery,
    line: impl Fn(&[Changed]) -> Line,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    let rows = sqlx::query(Confined(actor.tenant()).statuses())
        .bind(ids_json(ids))
        .fetch_all(&mut *tx)
        .await?;
    let mut statuses: HashMap<Uuid, String> = HashMap::new();
    for row in &rows {
        let status = decode::text(row, "status")?.unwrap_or_default();
        statuses.extend(decode::uuid(row, "id")?.map(|id| (id, status)));
    }
    let mut changed: Vec<Changed> = Vec::new();
    for row in &query.fetch_all(&mut *tx).await? {
        let id = decode::uuid(row, "id")?;
        changed.extend(id.map(|id| (id, statuses.remove(&id).unwrap_or_default())));
    }
    if !changed.is_empty() {
        let line = line(&changed);
        if line.action == Action::RetryEvents {
            sqlx::query(include_str!("sql/count_total.sql"))
                .bind("manual_retries")
                .bind(row_limit(changed.len()))
                .execute(&mut *tx)
                .await?;
        }
        audit::write(&mut tx, line).await?;
    }
    tx.commit().await?;
    Ok(changed.into_iter().map(|(id, _)| id).collect())
}

/// The line of the audit comes first: an operator who misses events finds it, also if we die here.
pub(super) async fn delete_old(
    writer: SqlitePool,
    actor: Actor,
    request: DeleteOld,
) -> Result<Result<Pruned, StoreError>, sqlx::Error> {
    if let Some(line) = request.line(&actor) {
        let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
        audit::write(&mut tx, line).await?;
        tx.commit().await?;
    }
    prune::prune(writer, request.as_prune()).await
}

pub(super) async fn restore(
    writer: SqlitePool,
    actor: Actor,
    rows: Vec<String>,
    dry_run: bool,
) -> Result<Result<Restored, StoreError>, sqlx::Error> {
    if let Some(why) = rows.iter().find_map(|row| refusal(row)) {
        return Ok(Err(StoreError::Other(format!(
            "an archived row was refused: {why}"
        ))));
    }
    if rows.is_empty() {
        return Ok(Ok(Restored::default()));
    }
    let given = rows.len() as u64;
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    let inserted = sqlx::query(include_str!("sql/restore.sql"))
        .bind(format!("[{}]", rows.join(",")))
        .fetch_all(&mut *tx)
        .await?;
    let mut restored = Vec::new();
    for row in &inserted {
        restored.extend(decode::uuid(row, "id")?);
    }
    let count = restored.len() as u64;
    if dry_run {
        tx.rollback().await?;
    } else {
        if count > 0 {
            audit::write(&mut tx, Line::restored(&actor, &restored)).await?;
        }
        tx.commit().await?;
    }
    Ok(Ok(Restored {
        restored: count,
        known: given - count,
    }))
}
