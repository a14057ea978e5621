//! Lists sagas, and enqueues the requests of operators to them.

use std::sync::Arc;

use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Row};

use super::{Inner, audit, store_error};
use crate::actor::Actor;
use crate::audit::Line;
use crate::sagas::{MOST_LINES, SagaFilter, SagaLine, SagaRecord};
use crate::store::StoreError;
use pillarbox::Outbox;
use pillarbox::saga::{Ask, AskResult, Status, ask};

pub(super) async fn list(inner: Arc<Inner>, filter: SagaFilter) -> Result<Vec<SagaRecord>, StoreError> {
    // The status is a literal. A partial index does not serve a bound value.
    let status = match filter.status {
        None => "true",
        Some(Status::Running) => "s.status = 'running'",
        Some(Status::Compensating) => "s.status = 'compensating'",
        Some(Status::Completed) => "s.status = 'completed'",
        Some(Status::Compensated) => "s.status = 'compensated'",
    };
    let text = format!(
        "{} where {status} and ($1::text is null or s.name = $1) and ($2::text is null or s.id = $2) \
         and ($3::bigint is null or s.seq < $3) order by s.seq desc limit $4",
        inner.sql.saga_record.text()
    );
    let limit = if filter.limit == 0 { 50 } else { filter.limit };
    let query = sqlx::query(AssertSqlSafe(text))
        .bind(filter.name)
        .bind(filter.id)
        .bind(filter.before)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .persistent(false);
    let mut transaction = inner.begin().await?;
    let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    let records = rows.iter().map(record).collect::<Result<_, _>>();
    records.map_err(store_error)
}

pub(super) async fn show(
    inner: Arc<Inner>,
    name: String,
    id: String,
) -> Result<Option<SagaRecord>, StoreError> {
    let text = inner
        .sql
        .saga_record
        .text()
        .replace("/*data*/null::jsonb", "s.data");
    let query = sqlx::query(AssertSqlSafe(text + " where s.id = $2 and s.name = $1"))
        .bind(name)
        .bind(id)
        .persistent(false);
    let mut transaction = inner.begin().await?;
    let row = query
        .fetch_optional(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    row.as_ref().map(record).transpose().map_err(store_error)
}

pub(super) async fn log(inner: Arc<Inner>, name: String, id: String) -> Result<Vec<SagaLine>, StoreError> {
    let query = sqlx::query(inner.sql.saga_log.safe())
        .bind(name)
        .bind(id)
        .bind(i64::from(MOST_LINES))
        .persistent(false);
    let mut transaction = inner.begin().await?;
    let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    let lines = rows.iter().rev().map(line).collect::<Result<_, _>>();
    lines.map_err(store_error)
}

/// What an actor asks of a saga.
pub(super) struct Request {
    pub(super) actor: Actor,
    pub(super) name: String,
    pub(super) id: String,
    pub(super) ask: Ask,
}

pub(super) async fn send_request(
    inner: Arc<Inner>,
    outbox: Outbox,
    request: Request,
) -> Result<AskResult, StoreError> {
    let Request {
        actor,
        name,
        id,
        ask: what,
    } = request;
    let mut transaction = inner.begin().await?;
    let asked = ask(&mut transaction, &outbox, &name, &id, what).await?;
    if let AskResult::Enqueued(event) = asked {
        let line = Line::asked(&actor, &name, &id, what, event);
        audit::write(&inner, &mut transaction, line).await?;
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(asked)
}

fn record(row: &PgRow) -> Result<SagaRecord, sqlx::Error> {
    Ok(SagaRecord {
        name: row.try_get("name")?,
        id: row.try_get("id")?,
        seq: row.try_get("seq")?,
        namespace: row.try_get("namespace")?,
        topic: row.try_get("topic")?,
        status: row.try_get("status")?,
        step: row.try_get("step")?,
        attempt: i64::from(row.try_get::<i32, _>("attempt")?),
        path: row.try_get::<Json<Vec<String>>, _>("path")?.0,
        last_error: row.try_get("last_error")?,
        timeout_at: row.try_get("timeout_at")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        data: row.try_get("data")?,
    })
}

fn line(row: &PgRow) -> Result<SagaLine, sqlx::Error> {
    Ok(SagaLine {
        seq: row.try_get("seq")?,
        at: row.try_get("at")?,
        what: row.try_get("what")?,
        step: row.try_get("step")?,
        action: row.try_get("action")?,
        attempt: row.try_get::<Option<i32>, _>("attempt")?.map(i64::from),
        detail: row.try_get("detail")?,
    })
}
