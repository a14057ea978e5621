//! The statements of a saga in PostgreSQL, apart from the library that runs them.

use std::sync::Arc;

use time::format_description::well_known::Rfc3339;

use super::line::Line;
use super::row::{Log, Request, Response, Row};
use crate::error::StoreError;
use crate::outbox::Outbox;
use crate::outbox::postgres::{Driver, Value};
use crate::schema::in_schema;

/// The statements, with the schema's name in them.
#[derive(Debug)]
pub(crate) struct Statements {
    insert: Arc<str>,
    lock: Arc<str>,
    save: Arc<str>,
    note: Arc<str>,
}

impl Statements {
    pub(crate) fn in_schema(schema: &str) -> Self {
        let statement = |text| in_schema(text, schema).into();
        Self {
            insert: statement(include_str!("sql/saga_insert.sql")),
            lock: statement(include_str!("sql/saga_lock.sql")),
            save: statement(include_str!("sql/saga_save.sql")),
            note: statement(include_str!("sql/saga_note.sql")),
        }
    }
}

pub(crate) async fn answer<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    request: Request<'_>,
) -> Result<Response, StoreError> {
    let name = request.saga();
    match ask(driver, outbox, request).await {
        Err(StoreError::Denied(why)) => Err(StoreError::Denied(format!(
            "{why}; the saga needs `pillarbox grant orchestrator ROLE --saga {name}`, and its address must be in a namespace in \
             which the role may enqueue"
        ))),
        answered => answered,
    }
}

async fn ask<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    request: Request<'_>,
) -> Result<Response, StoreError> {
    let (sql, prepared) = outbox.saga_statements();
    match request {
        Request::Lock { name, id } => {
            let rows = driver.rows(&sql.lock, which(name, id), prepared).await?;
            match rows.first() {
                Some((_, json)) => Ok(Response::Found(Box::new(Row::read(name, id, json)?))),
                None => Ok(Response::Nothing),
            }
        }
        Request::Insert(row, log) => write(driver, &sql.insert, row, log, fixed(row), prepared).await,
        Request::Save(row, log) => write(driver, &sql.save, row, log, Vec::new(), prepared).await,
        Request::Note(row, log) => {
            let mut values = which(&row.name, &row.id);
            values.extend(lines(log));
            driver.rows(&sql.note, values, prepared).await?;
            Ok(Response::Written)
        }
    }
}

async fn write<D: Driver + ?Sized>(
    driver: &mut D,
    statement: &Arc<str>,
    row: &Row,
    log: Log<'_>,
    fixed: Vec<Value<'_>>,
    prepared: bool,
) -> Result<Response, StoreError> {
    let (path, timeout_at) = (row.path(), moment(row));
    let mut values = columns(row, &path, timeout_at.as_deref())?;
    values.extend(lines(log));
    values.extend(fixed);
    let written = driver.rows(statement, values, prepared).await?;
    Ok(if written.is_empty() {
        Response::Nothing
    } else {
        Response::Written
    })
}

fn which<'a>(name: &'a str, id: &'a str) -> Vec<Value<'a>> {
    vec![Value::Text(Some(name)), Value::Text(Some(id))]
}

fn moment(row: &Row) -> Option<String> {
    row.timeout_at?.format(&Rfc3339).ok()
}

fn columns<'a>(
    row: &'a Row,
    path: &'a str,
    timeout_at: Option<&'a str>,
) -> Result<Vec<Value<'a>>, StoreError> {
    Ok(vec![
        Value::Text(Some(&row.name)),
        Value::Text(Some(&row.id)),
        Value::Text(Some(row.state.status.as_str())),
        Value::Text(Some(path)),
        Value::Number(count(row.state.number)?),
        Value::Number(count(row.state.tries)?),
        Value::Number(i32::from(row.state.in_doubt)),
        Value::Text(Some(&row.data)),
        Value::Text(row.last_error.as_deref()),
        Value::Text(timeout_at),
    ])
}

/// What is written once.
fn fixed(row: &Row) -> Vec<Value<'_>> {
    vec![
        Value::Text(Some(&row.namespace)),
        Value::Text(Some(&row.topic)),
        Value::Text(Some(row.attempt_secret.as_str())),
        Value::Text(Some(row.own_token.as_str())),
    ]
}

fn lines(log: Log<'_>) -> [Value<'_>; 5] {
    let texts = |of: fn(&Line) -> Option<&str>| Value::Texts(log.0.iter().map(of).collect());
    let number = |line: &Line| line.about.as_ref().and_then(|attempt| count(attempt.number).ok());
    [
        texts(|line| Some(line.what.as_str())),
        texts(|line| Some(line.about.as_ref()?.step.as_str())),
        texts(|line| Some(line.about.as_ref()?.action.as_str())),
        // Zero stands for none: arrays of numbers hold no nulls here.
        Value::Numbers(log.0.iter().map(|line| number(line).unwrap_or(0)).collect()),
        texts(|line| line.detail.as_deref()),
    ]
}

fn count(number: u32) -> Result<i32, StoreError> {
    i32::try_from(number)
        .map_err(|_| StoreError::Other(format!("{number} attempts are more than can be counted")))
}
