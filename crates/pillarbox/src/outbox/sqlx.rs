//! Transactions of sqlx on PostgreSQL.

use std::borrow::Cow;
use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row, Transaction};

use super::postgres::{Driver, Refused, Value, write};
use super::{Connection, Outbox, sealed};
use crate::enqueue::{EnqueueError, Enqueued};
use crate::event::Event;
use crate::store::StoreError;

impl Driver for PgConnection {
    async fn rows(
        &mut self,
        statement: &Arc<str>,
        values: Vec<Value<'_>>,
        prepared: bool,
    ) -> Result<Vec<(i64, String)>, Refused> {
        let mut query = sqlx::query(AssertSqlSafe(statement.clone())).persistent(prepared);
        for value in values {
            query = match value {
                Value::Id(id) => query.bind(id),
                Value::Text(text) => query.bind(text),
                Value::Number(number) => query.bind(number),
                Value::Bytes(bytes) => query.bind(bytes),
                Value::Ids(ids) => query.bind(ids),
                Value::Texts(texts) => query.bind(texts),
                Value::Numbers(numbers) => query.bind(numbers),
                Value::Bodies(bodies) => query.bind(bodies),
            };
        }
        let rows = query.fetch_all(self).await.map_err(|error| refused(&error))?;
        rows.iter()
            .map(|row| Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?)))
            .collect::<Result<_, _>>()
            .map_err(|error| refused(&error))
    }
}

impl sealed::Sealed for PgConnection {}
impl Connection for PgConnection {
    async fn write(
        &mut self,
        outbox: &Outbox,
        events: &[Cow<'_, Event>],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        write(self, outbox, events).await
    }
}

impl sealed::Sealed for Transaction<'_, Postgres> {}
impl Connection for Transaction<'_, Postgres> {
    async fn write(
        &mut self,
        outbox: &Outbox,
        events: &[Cow<'_, Event>],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        write(&mut **self, outbox, events).await
    }
}

impl super::Transaction for Transaction<'_, Postgres> {
    async fn commit(self) -> Result<(), StoreError> {
        Ok(self.commit().await.map_err(|error| refused(&error))?)
    }
}

impl sealed::Sealed for PoolConnection<Postgres> {}
impl Connection for PoolConnection<Postgres> {
    async fn write(
        &mut self,
        outbox: &Outbox,
        events: &[Cow<'_, Event>],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        write(&mut **self, outbox, events).await
    }
}

pub(super) fn refused(error: &sqlx::Error) -> Refused {
    match error {
        sqlx::Error::Database(answer) => Refused::Answer {
            code: answer.code().unwrap_or_default().into_owned(),
            message: answer.message().to_owned(),
            detail: answer
                .try_downcast_ref::<sqlx::postgres::PgDatabaseError>()
                .and_then(|answer| answer.detail().map(str::to_owned)),
        },
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => Refused::Lost(error.to_string()),
        _ => Refused::Other(error.to_string()),
    }
}
