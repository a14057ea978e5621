//! Lists sagas, and enqueues the requests of operators to them.

use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row, SqlitePool};
use time::OffsetDateTime;

use super::{audit, decode, row_limit};
use crate::actor::Actor;
use crate::audit::Line;
use crate::sagas::{MOST_LINES, SagaFilter, SagaLine, SagaRecord};
use crate::store::StoreError;
use pillarbox::Outbox;
use pillarbox::saga::{Ask, AskResult, Status, ask};

const RECORD: &str = include_str!("sql/saga_record.sql");

pub(super) async fn list(readers: SqlitePool, filter: SagaFilter) -> Result<Vec<SagaRecord>, sqlx::Error> {
    // The status is a literal. A partial index does not serve a bound value.
    let status = match filter.status {
        None => "",
        Some(Status::Running) => "and status = 'running'",
        Some(Status::Compensating) => "and status = 'compensating'",
        Some(Status::Completed) => "and status = 'completed'",
        Some(Status::Compensated) => "and status = 'compensated'",
    };
    // Conditions that are not needed are left out. An index does not serve a condition that may be null.
    let name = filter.name.as_ref().map_or("", |_| "and name = ?2");
    let id = filter.id.as_ref().map_or("", |_| "and id = ?3");
    let sql = format!("{RECORD} where seq < ?1 {status} {name} {id} order by seq desc limit ?4");
    let limit = if filter.limit == 0 { 50 } else { filter.limit };
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(filter.before.unwrap_or(i64::MAX))
        .bind(filter.name)
        .bind(filter.id)
        .bind(row_limit(limit))
        .fetch_all(&readers)
        .await?;
    rows.iter().map(record).collect()
}

pub(super) async fn show(
    readers: SqlitePool,
    name: String,
    id: String,
) -> Result<Option<SagaRecord>, sqlx::Error> {
    let sql = RECORD.replace("/*data*/null", "data") + " where id = ?2 and name = ?1";
    let query = sqlx::query(AssertSqlSafe(sql)).bind(name).bind(id);
    let row = query.fetch_optional(&readers).await?;
    row.as_ref().map(record).transpose()
}

pub(super) async fn log(readers: SqlitePool, name: String, id: String) -> Result<Vec<SagaLine>, sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/saga_log.sql"))
        .bind(name)
        .bind(id)
        .bind(MOST_LINES)
        .fetch_all(&readers)
        .await?;
    rows.iter().rev().map(line).collect()
}

/// What an actor asks of a saga.
pub(super) struct Request {
    pub(super) actor: Actor,
    pub(super) name: String,
    pub(super) id: String,
    pub(super) ask: Ask,
}

pub(super) async fn send_request(
    writer: SqlitePool,
    request: Request,
) -> Result<Result<AskResult, StoreError>, sqlx::Error> {
    let Request {
        actor,
        name,
        id,
        ask: what,
    } = request;
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
    match ask(&mut transaction, &Outbox::default(), &name, &id, what).await {
        Ok(asked) => {
            if let AskResult::Enqueued(event) = asked {
                let line = Line::asked(&actor, &name, &id, what, event);
                audit::write(&mut transaction, line).await?;
            }
            transaction.commit().await?;
            Ok(Ok(asked))
        }
        Err(refused) => {
            transaction.rollback().await?;
            Ok(Err(refused))
        }
    }
}

fn record(row: &SqliteRow) -> Result<SagaRecord, sqlx::Error> {
    let text = |column| decode::text(row, column).map(Option::unwrap_or_default);
    Ok(SagaRecord {
        name: text("name")?,
        id: text("id")?,
        seq: row.try_get("seq")?,
        namespace: text("namespace")?,
        topic: text("topic")?,
        status: text("status")?,
        step: decode::text(row, "step")?,
        attempt: row.try_get("attempt")?,
        path: serde_json::from_str(&text("path")?).unwrap_or_default(),
        last_error: decode::text(row, "last_error")?,
        timeout_at: decode::moment(row, "timeout_at")?,
        created_at: decode::moment(row, "created_at")?.unwrap_or(OffsetDateTime::UNIX_EPOCH),
        updated_at: decode::moment(row, "updated_at")?.unwrap_or(OffsetDateTime::UNIX_EPOCH),
        data: decode::text(row, "data")?.map(|text| decode::json(Some(text))),
    })
}

fn line(row: &SqliteRow) -> Result<SagaLine, sqlx::Error> {
    Ok(SagaLine {
        seq: row.try_get("seq")?,
        at: decode::moment(row, "at")?.unwrap_or(OffsetDateTime::UNIX_EPOCH),
        what: decode::text(row, "what")?.unwrap_or_default(),
        step: decode::text(row, "step")?,
        action: decode::text(row, "action")?,
        attempt: row.try_get("attempt")?,
        detail: decode::text(row, "detail")?,
    })
}
