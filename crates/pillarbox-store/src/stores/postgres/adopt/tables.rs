//! What an operator sees of the adopted tables, and does with them. Every count is bounded.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlx::Row;
use uuid::Uuid;

use super::maintain::count_unknown;
use crate::actor::Actor;
use crate::audit::{Action, Line};
use crate::operate::{AdoptedTableRecord, MOST_RETRIED, MOST_WAITING};
use crate::store::StoreError;
use crate::stores::postgres::{Inner, Transaction, audit, store_error};

/// The tables that a worker imports or has imported, and those in this process's configuration.
pub(in crate::stores::postgres) async fn tables(
    inner: Arc<Inner>,
) -> Result<Vec<AdoptedTableRecord>, StoreError> {
    let mut transaction = inner.begin().await?;
    let imported: Vec<String> = sqlx::query_scalar(inner.sql.adopted_tables.safe())
        .persistent(false)
        .fetch_all(&mut *transaction)
        .await
        .map_err(store_error)?;
    let known = inner.adoptions.get().into_iter().flatten();
    let known = known.map(|adoption| adoption.name().to_owned());
    let names: BTreeSet<String> = imported.into_iter().chain(known).collect();
    let mut tables = Vec::new();
    for name in names {
        tables.push(table(&inner, &mut transaction, name).await?);
    }
    transaction.commit().await.map_err(store_error)?;
    for record in &mut tables {
        if let Some(adoption) = inner.adoption(&record.name) {
            // A count that takes too long is left out.
            let unknown = count_unknown(&inner, &adoption).await.unwrap_or_default();
            record.unknown = unknown.and_then(|rows| u64::try_from(rows).ok());
        }
    }
    Ok(tables)
}

/// One table, without the count of unknown statuses.
pub(in crate::stores::postgres) async fn table(
    inner: &Inner,
    transaction: &mut Transaction,
    name: String,
) -> Result<AdoptedTableRecord, StoreError> {
    let row = sqlx::query(inner.sql.adopted_table.safe())
        .bind(&name)
        .bind(i64::try_from(MOST_WAITING).unwrap_or(i64::MAX))
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    let count = |column: usize| -> Result<u64, StoreError> {
        let count: i64 = row.try_get(column).map_err(store_error)?;
        Ok(count.unsigned_abs())
    };
    Ok(AdoptedTableRecord {
        in_progress: count(0)?,
        pending_write_backs: count(1)?,
        rejected_write_backs: count(2)?,
        not_imported: count(3)?,
        unknown: None,
        importer: row.try_get::<Option<Uuid>, _>(4).map_err(store_error)?,
        name,
    })
}

/// Makes rows of a table due that cannot be imported, and returns their ids.
pub(in crate::stores::postgres) async fn retry_imports(
    inner: Arc<Inner>,
    actor: Actor,
    table: String,
    rows: Option<Vec<String>>,
) -> Result<Vec<String>, StoreError> {
    let mut transaction = inner.begin().await?;
    let retried: Vec<String> = sqlx::query_scalar(inner.sql.retry_imports.safe())
        .bind(table)
        .bind(rows)
        .bind(i64::try_from(MOST_RETRIED).unwrap_or(i64::MAX))
        .persistent(false)
        .fetch_all(&mut *transaction)
        .await
        .map_err(store_error)?;
    if !retried.is_empty() {
        let line = Line::of(&actor, Action::RetryImports, &retried);
        audit::write(&inner, &mut transaction, line).await?;
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(retried)
}
