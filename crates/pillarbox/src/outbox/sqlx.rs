//! Transactions of sqlx on PostgreSQL.

use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row, Transaction};

use super::postgres::{Driver, DriverError, Value, connection};
use crate::error::StoreError;

impl Driver for PgConnection {
    async fn rows(
        &mut self,
        statement: &Arc<str>,
        values: Vec<Value<'_>>,
        prepared: bool,
    ) -> Result<Vec<(i64, String)>, DriverError> {
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
        let rows = query
            .fetch_all(self)
            .await
            .map_err(|error| driver_error(&error))?;
        rows.iter()
            .map(|row| Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?)))
            .collect::<Result<_, _>>()
            .map_err(|error| driver_error(&error))
    }
}

connection!(PgConnection);
connection!(Transaction<'_, Postgres>, PgConnection, transaction => &mut **transaction);
connection!(PoolConnection<Postgres>, PgConnection, connection => &mut **connection);

impl super::Transaction for Transaction<'_, Postgres> {
    async fn commit(self) -> Result<(), StoreError> {
        Ok(self.commit().await.map_err(|error| driver_error(&error))?)
    }
}

pub(super) fn driver_error(error: &sqlx::Error) -> DriverError {
    match error {
        sqlx::Error::Database(answer) => DriverError::Answer {
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
        | sqlx::Error::BeginFailed => DriverError::Lost(error.to_string()),
        _ => DriverError::Other(error.to_string()),
    }
}
