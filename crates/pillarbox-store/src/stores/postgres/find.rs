//! Finds backlogs that may have due rows, and parked rows.
//!
//! An idle worker runs one query by the simple protocol.

use std::sync::Arc;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::decode::{Cells, stub};
use super::sql::Statement;
use super::unreadable::ReadError;
use super::{Inner, store_error};
use crate::store::{Backlog, Due, Found, Parked, Scope, StoreError, Stub};

pub(super) async fn find(
    inner: Arc<Inner>,
    scope: Scope,
    served: Option<Vec<String>>,
    after: Option<Backlog>,
    limit: usize,
) -> Result<Found, StoreError> {
    let statement = inner.sql.find(&scope, served.as_deref(), after.as_ref(), limit);
    let mut connection = inner.connection().await?;
    let rows = sqlx::raw_sql(inner.bounded(&statement))
        .fetch_all(&mut *connection)
        .await
        .map_err(store_error)?;
    let mut found = Found::default();
    for row in &rows {
        if let Some(name) = row.try_get("paused").map_err(store_error)? {
            found.paused.push(name);
            continue;
        }
        found.more |= row.try_get::<bool, _>("cut").map_err(store_error)?;
        found.due.push(due(row).map_err(store_error)?);
    }
    found.due.sort_by(|a, b| a.backlog.cmp(&b.backlog));
    found.paused.sort();
    found.more |= found.due.len() > limit;
    found.due.truncate(limit);
    Ok(found)
}

fn due(row: &PgRow) -> Result<Due, sqlx::Error> {
    let destination: String = row.try_get("destination")?;
    Ok(Due {
        backlog: Backlog {
            destination: Some(destination).filter(|name| !name.is_empty()),
            namespace: row.try_get("namespace")?,
        },
        lowest: row.try_get("lowest")?,
        waited: row.try_get("waited")?,
        keyed: row.try_get("keyed")?,
    })
}

pub(super) async fn parked(
    inner: Arc<Inner>,
    what: Parked,
    scope: Scope,
    after: Option<i64>,
    limit: usize,
) -> Result<Vec<Stub>, StoreError> {
    // Exactly the predicate of the partial index that serves.
    let statement = inner.sql.parked(match what {
        Parked::Unrouted => "e.open < 2 and e.destination = 'unrouted' and e.status = 'pending'",
        Parked::Blocking => "e.open >= 2 and e.open = 2 and e.lane is not null",
    });
    let read = async |statement: &Statement| -> Result<Vec<Stub>, ReadError> {
        let mut transaction = inner.begin().await?;
        let query = sqlx::query(statement.safe())
            .bind(scope.names())
            .bind(after.unwrap_or(i64::MIN))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .persistent(false);
        let rows = query.fetch_all(&mut *transaction).await?;
        transaction.commit().await?;
        let stubs = rows.iter().map(|row| stub(&mut Cells::of(row)));
        Ok(stubs.collect::<Result<_, _>>()?)
    };
    match read(&statement).await {
        Err(ReadError::Unreadable(_)) => Ok(read(&statement.without_headers()).await?),
        read => Ok(read?),
    }
}

pub(super) async fn unpark(inner: Arc<Inner>, what: Parked, ids: Vec<Uuid>) -> Result<Vec<Uuid>, StoreError> {
    let statement = match what {
        Parked::Unrouted => inner.sql.unpark_unrouted.safe(),
        Parked::Blocking => inner.sql.unpark_blocking.safe(),
    };
    inner.change(statement, ids).await
}
