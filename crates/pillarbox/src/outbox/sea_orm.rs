//! Transactions of SeaORM on PostgreSQL.

use std::fmt::{self, Write};
use std::sync::Arc;

use ::sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr,
    Statement, Value as Bound,
};

use super::postgres::{Driver, DriverError, Value, connection};
use crate::error::StoreError;

async fn rows<C: ConnectionTrait>(
    connection: &C,
    statement: &str,
    values: Vec<Value<'_>>,
) -> Result<Vec<(i64, String)>, DriverError> {
    let backend = connection.get_database_backend();
    if backend != DbBackend::Postgres {
        let why = format!("{backend:?} holds no outbox through SeaORM; PostgreSQL does");
        return Err(DriverError::Other(why));
    }
    let values = values.into_iter().map(bound);
    let statement = Statement::from_sql_and_values(backend, statement, values);
    let rows = connection.query_all_raw(statement).await.map_err(driver_error)?;
    let read = |row: &QueryResult| Ok((row.try_get_by_index(0)?, row.try_get_by_index(1)?));
    rows.iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map_err(driver_error)
}

fn bound(value: Value<'_>) -> Bound {
    match value {
        Value::Id(id) => Bound::Uuid(id),
        Value::Text(text) => Bound::String(text.map(str::to_owned)),
        Value::Number(number) => Bound::Int(Some(number)),
        Value::Bytes(bytes) => Bound::Bytes(bytes.map(<[u8]>::to_vec)),
        Value::Ids(ids) => array(&ids, |id, out| write!(out, "{id}")),
        Value::Texts(texts) => array(&texts, |text, out| escaped(text, out)),
        Value::Numbers(numbers) => {
            let numbers: Vec<_> = numbers.into_iter().map(Some).collect();
            array(&numbers, |number, out| write!(out, "{number}"))
        }
        // In PostgreSQL's hexadecimal form; its backslash is escaped once for the array.
        Value::Bodies(bodies) => array(&bodies, |body, out| {
            out.push_str("\\\\x");
            body.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
        }),
    }
}

/// An array in PostgreSQL's own notation, which the statement casts: SeaORM's arrays cannot hold nulls.
fn array<T>(values: &[Option<T>], item: impl Fn(&T, &mut String) -> fmt::Result) -> Bound {
    let mut text = String::from("{");
    for value in values {
        if text.len() > 1 {
            text.push(',');
        }
        match value {
            None => text.push_str("NULL"),
            Some(value) => {
                text.push('"');
                item(value, &mut text).expect("a text takes what is written");
                text.push('"');
            }
        }
    }
    text.push('}');
    Bound::String(Some(text))
}

fn escaped(text: &str, out: &mut String) -> fmt::Result {
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    Ok(())
}

fn driver_error(error: DbErr) -> DriverError {
    match &error {
        DbErr::Exec(RuntimeErr::SqlxError(cause))
        | DbErr::Query(RuntimeErr::SqlxError(cause))
        | DbErr::Conn(RuntimeErr::SqlxError(cause)) => super::sqlx::driver_error(cause),
        DbErr::ConnectionAcquire(_) => DriverError::Lost(error.to_string()),
        _ => DriverError::Other(error.to_string()),
    }
}

macro_rules! driver {
    ($type:ty, $connection:ident => $lent:expr) => {
        impl Driver for $type {
            async fn rows(
                &mut self,
                statement: &Arc<str>,
                values: Vec<Value<'_>>,
                _: bool,
            ) -> Result<Vec<(i64, String)>, DriverError> {
                let $connection = self;
                rows($lent, statement, values).await
            }
        }

        connection!($type);
    };
}

driver!(DatabaseTransaction, connection => connection);
driver!(DatabaseConnection, connection => connection);
// What `DatabaseConnection::transaction` lends to its closure.
driver!(&DatabaseTransaction, connection => *connection);

impl super::Transaction for DatabaseTransaction {
    async fn commit(self) -> Result<(), StoreError> {
        Ok(self.commit().await.map_err(driver_error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_array_holds_stays_what_it_is() {
        let texts = vec![None, Some(""), Some("NULL"), Some(r#"a"b\c,{}"#)];
        let bodies: Vec<Option<&[u8]>> = vec![Some(&[0, 255]), None];
        for (value, text) in [
            (Value::Texts(texts), r#"{NULL,"","NULL","a\"b\\c,{}"}"#),
            (Value::Bodies(bodies), r#"{"\\x00ff",NULL}"#),
            (Value::Numbers(vec![1, -2]), r#"{"1","-2"}"#),
            (Value::Ids(Vec::new()), "{}"),
        ] {
            assert_eq!(bound(value), Bound::String(Some(text.to_owned())));
        }
    }
}
