//! Transactions of SeaORM on PostgreSQL.

use std::borrow::Cow;
use std::sync::Arc;

use ::sea_orm::sea_query::ArrayType;
use ::sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr,
    Statement, Value as Bound,
};

use super::postgres::{Driver, Refused, Value, write};
use super::{Connection, Outbox, sealed};
use crate::enqueue::{EnqueueError, Enqueued};
use crate::event::Event;
use crate::store::StoreError;

async fn rows<C: ConnectionTrait>(
    connection: &C,
    statement: &str,
    values: Vec<Value<'_>>,
) -> Result<Vec<(i64, String)>, Refused> {
    let backend = connection.get_database_backend();
    if backend != DbBackend::Postgres {
        let why = format!("{backend:?} holds no outbox through SeaORM; PostgreSQL does");
        return Err(Refused::Other(why));
    }
    let values = values.into_iter().map(bound);
    let statement = Statement::from_sql_and_values(backend, statement, values);
    let rows = connection.query_all_raw(statement).await.map_err(refused)?;
    let read = |row: &QueryResult| Ok((row.try_get_by_index(0)?, row.try_get_by_index(1)?));
    rows.iter().map(read).collect::<Result<_, _>>().map_err(refused)
}

fn bound(value: Value<'_>) -> Bound {
    fn array<T>(kind: ArrayType, values: Vec<T>, bound: impl Fn(T) -> Bound) -> Bound {
        Bound::Array(kind, Some(Box::new(values.into_iter().map(bound).collect())))
    }
    fn text(text: Option<&str>) -> Bound {
        Bound::String(text.map(str::to_owned))
    }
    fn bytes(bytes: Option<&[u8]>) -> Bound {
        Bound::Bytes(bytes.map(<[u8]>::to_vec))
    }
    match value {
        Value::Id(id) => Bound::Uuid(id),
        Value::Text(value) => text(value),
        Value::Number(number) => Bound::Int(Some(number)),
        Value::Bytes(value) => bytes(value),
        Value::Ids(ids) => array(ArrayType::Uuid, ids, Bound::Uuid),
        Value::Texts(texts) => array(ArrayType::String, texts, text),
        Value::Numbers(numbers) => array(ArrayType::Int, numbers, |number| Bound::Int(Some(number))),
        Value::Bodies(bodies) => array(ArrayType::Bytes, bodies, bytes),
    }
}

fn refused(error: DbErr) -> Refused {
    match &error {
        DbErr::Exec(RuntimeErr::SqlxError(cause))
        | DbErr::Query(RuntimeErr::SqlxError(cause))
        | DbErr::Conn(RuntimeErr::SqlxError(cause)) => super::sqlx::refused(cause),
        DbErr::ConnectionAcquire(_) => Refused::Lost(error.to_string()),
        _ => Refused::Other(error.to_string()),
    }
}

macro_rules! connection {
    ($type:ty, $connection:ident => $lent:expr) => {
        impl Driver for $type {
            async fn rows(
                &mut self,
                statement: &Arc<str>,
                values: Vec<Value<'_>>,
                _: bool,
            ) -> Result<Vec<(i64, String)>, Refused> {
                let $connection = self;
                rows($lent, statement, values).await
            }
        }

        impl sealed::Sealed for $type {}
        impl Connection for $type {
            async fn write(
                &mut self,
                outbox: &Outbox,
                events: &[Cow<'_, Event>],
            ) -> Result<Vec<Enqueued>, EnqueueError> {
                write(self, outbox, events).await
            }
        }
    };
}

connection!(DatabaseTransaction, connection => connection);
connection!(DatabaseConnection, connection => connection);
// What `DatabaseConnection::transaction` lends to its closure.
connection!(&DatabaseTransaction, connection => *connection);

impl super::Transaction for DatabaseTransaction {
    async fn commit(self) -> Result<(), StoreError> {
        Ok(self.commit().await.map_err(refused)?)
    }
}
