//! What becomes of the tables that were adopted, for people. Bounded.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlx::Row;
use uuid::Uuid;

use super::import::strangers;
use crate::operate::{MOST_WAITING, SourceRecord};
use crate::store::StoreError;
use crate::stores::postgres::{Inner, Transaction, store_error};

/// Those that somebody imports from or did so once, and those that this process knows.
pub(in crate::stores::postgres) async fn sources(inner: Arc<Inner>) -> Result<Vec<SourceRecord>, StoreError> {
    let mut transaction = inner.begin().await?;
    let imported: Vec<String> = sqlx::query_scalar(inner.sql.sources.safe())
        .persistent(false)
        .fetch_all(&mut *transaction)
        .await
        .map_err(store_error)?;
    let known = inner.adoptions.get().into_iter().flatten();
    let known = known.map(|adoption| adoption.source.clone());
    let names: BTreeSet<String> = imported.into_iter().chain(known).collect();
    let mut sources = Vec::new();
    for name in names {
        sources.push(source(&inner, &mut transaction, name).await?);
    }
    transaction.commit().await.map_err(store_error)?;
    for record in &mut sources {
        if let Some(adoption) = inner.adoption(&record.name) {
            // Where it takes too long to count them, nobody knows.
            let unknown = strangers(&inner, &adoption).await.unwrap_or_default();
            record.unknown = unknown.and_then(|rows| u64::try_from(rows).ok());
        }
    }
    Ok(sources)
}

async fn source(
    inner: &Inner,
    transaction: &mut Transaction,
    name: String,
) -> Result<SourceRecord, StoreError> {
    let row = sqlx::query(inner.sql.source.safe())
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
    Ok(SourceRecord {
        on_their_way: count(0)?,
        behind: count(1)?,
        unknown: None,
        importer: row.try_get::<Option<Uuid>, _>(2).map_err(store_error)?,
        name,
    })
}
