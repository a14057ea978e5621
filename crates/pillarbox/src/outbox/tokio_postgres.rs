//! Transactions of tokio-postgres.
//!
//! Statements are sent with their types, unnamed: one round trip, and no prepared statement stays on a connection that a
//! pooler gives to another client.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use ::tokio_postgres::types::{ToSql, Type};
use ::tokio_postgres::{Client, Error, Row, Transaction};

use super::postgres::{Driver, DriverError, Value, connection};
use crate::error::StoreError;

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

fn parameters<'a>(values: &'a [Value<'_>]) -> Vec<Parameter<'a>> {
    let parameter = |value: &'a Value<'_>| -> Parameter<'a> {
        match value {
            Value::Id(id) => (id, Type::UUID),
            Value::Text(text) => (text, Type::TEXT),
            Value::Number(number) => (number, Type::INT4),
            Value::Bytes(bytes) => (bytes, Type::BYTEA),
            Value::Ids(ids) => (ids, Type::UUID_ARRAY),
            Value::Texts(texts) => (texts, Type::TEXT_ARRAY),
            Value::Numbers(numbers) => (numbers, Type::INT4_ARRAY),
            Value::Bodies(bodies) => (bodies, Type::BYTEA_ARRAY),
        }
    };
    values.iter().map(parameter).collect()
}

fn read(rows: Result<Vec<Row>, Error>) -> Result<Vec<(i64, String)>, DriverError> {
    let rows = rows.map_err(driver_error)?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect::<Result<_, _>>()
        .map_err(driver_error)
}

fn driver_error(error: Error) -> DriverError {
    if let Some(answer) = error.as_db_error() {
        return DriverError::Answer {
            code: answer.code().code().to_owned(),
            message: answer.message().to_owned(),
            detail: answer.detail().map(str::to_owned),
        };
    }
    let source = error.source();
    let text = source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
    if error.is_closed() || source.is_some_and(|source| source.is::<io::Error>()) {
        DriverError::Lost(text)
    } else {
        DriverError::Other(text)
    }
}

/// Both have the same methods, and no public trait in common.
macro_rules! driver {
    ($type:ty) => {
        impl Driver for $type {
            async fn rows(
                &mut self,
                statement: &Arc<str>,
                values: Vec<Value<'_>>,
                _: bool,
            ) -> Result<Vec<(i64, String)>, DriverError> {
                read(self.query_typed(statement, &parameters(&values)).await)
            }
        }

        connection!($type);
    };
}

driver!(Transaction<'_>);
driver!(Client);

impl super::Transaction for Transaction<'_> {
    async fn commit(self) -> Result<(), StoreError> {
        Ok(self.commit().await.map_err(driver_error)?)
    }
}
