//! Reads and writes a saga on the caller's own transaction.
//!
//! The row needs no lock: a transaction that was begun as it should (`begin`) is the only one that writes.
//!
//! **If we die here** the caller's transaction rolls back, and nothing happened.

use serde_json::{Value, json};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection};

use super::enqueue::timestamp;
use super::{row as decode, store_error};
use crate::error::StoreError;
use crate::saga::{Line, Log, Request, Response, Row};

pub(super) async fn answer(
    connection: &mut SqliteConnection,
    request: Request<'_>,
) -> Result<Response, StoreError> {
    match request {
        Request::Lock { name, id } => lock(connection, name, id).await,
        Request::Insert(row, log) => {
            let insert = bound(sqlx::query(include_str!("sql/saga_insert.sql")), row);
            write(connection, fixed(insert, row), row, log).await
        }
        Request::Save(row, log) => {
            let save = bound(sqlx::query(include_str!("sql/saga_save.sql")), row);
            write(connection, save, row, log).await
        }
        Request::Note(row, log) => note(connection, row, log).await,
    }
    .map_err(|failed| match failed {
        Failed::Database(error) => store_error(error, "this file"),
        Failed::Row(error) => error,
    })
}

/// Why there is no answer.
enum Failed {
    Database(sqlx::Error),
    Row(StoreError),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

async fn lock(connection: &mut SqliteConnection, name: &str, id: &str) -> Result<Response, Failed> {
    let found = sqlx::query(include_str!("sql/saga_lock.sql"))
        .bind(name)
        .bind(id)
        .fetch_optional(connection)
        .await?;
    let Some(found) = found else {
        return Ok(Response::Nothing);
    };
    let json = decode::text(&found, "saga")?.unwrap_or_default();
    let row = Row::read(name, id, &json).map_err(Failed::Row)?;
    Ok(Response::Found(Box::new(row)))
}

async fn write(
    connection: &mut SqliteConnection,
    statement: Query<'_, Sqlite, SqliteArguments>,
    row: &Row,
    log: Log<'_>,
) -> Result<Response, Failed> {
    let written = statement.fetch_optional(&mut *connection).await?;
    match written {
        Some(_) => note(connection, row, log).await,
        None => Ok(Response::Nothing),
    }
}

fn bound<'a>(query: Query<'a, Sqlite, SqliteArguments>, row: &'a Row) -> Query<'a, Sqlite, SqliteArguments> {
    query
        .bind(&row.name)
        .bind(&row.id)
        .bind(row.state.status.as_str())
        .bind(row.path())
        .bind(row.state.number)
        .bind(row.state.tries)
        .bind(row.state.in_doubt)
        .bind(&row.data)
        .bind(&row.last_error)
        .bind(row.timeout_at.map(timestamp))
}

/// What is written once.
fn fixed<'a>(query: Query<'a, Sqlite, SqliteArguments>, row: &'a Row) -> Query<'a, Sqlite, SqliteArguments> {
    query
        .bind(&row.namespace)
        .bind(&row.topic)
        .bind(row.attempt_secret.as_str())
        .bind(row.own_token.as_str())
}

async fn note(connection: &mut SqliteConnection, row: &Row, log: Log<'_>) -> Result<Response, Failed> {
    let lines: Vec<Value> = log.0.iter().map(line).collect();
    sqlx::query(include_str!("sql/saga_note.sql"))
        .bind(&row.name)
        .bind(&row.id)
        .bind(json!(lines).to_string())
        .execute(connection)
        .await?;
    Ok(Response::Written)
}

fn line(line: &Line) -> Value {
    let about = line.about.as_ref();
    json!([
        line.what.as_str(),
        about.map(|attempt| &attempt.step),
        about.map(|attempt| attempt.action.as_str()),
        about.map(|attempt| attempt.number),
        line.detail,
    ])
}
