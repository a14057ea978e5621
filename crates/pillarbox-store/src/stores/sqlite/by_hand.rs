//! What operators change: retry, skip, delete. The actor's tenant is a condition of each statement.
//!
//! **If we die here** the transaction rolls back, with its line of the audit.

use std::collections::HashMap;

use sqlx::SqlitePool;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use uuid::Uuid;

use super::tenant::Confined;
use super::{audit, decode, ids_json, row_limit};
use crate::actor::Actor;
use crate::audit::{Action, Changed, Line};
use crate::operate::SKIPPED;
use crate::state::Status;

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
