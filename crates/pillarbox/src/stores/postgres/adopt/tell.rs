//! Tells an adopted table what became of its rows, in the transaction that writes it here.
//!
//! What is noted of the rows is locked first, in one order for all, by a statement of its own; then the table's rows, and
//! then the family is read: two siblings that end at the same time wait for each other here, and the second sees that
//! both have. A row of the table that somebody else holds locked is told later, by the importer: nobody waits for it.

use std::collections::HashSet;

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::statements::Adoption;
use crate::store::StoreError;
use crate::stores::postgres::sql::Statement;
use crate::stores::postgres::{Inner, Transaction, store_error};

/// How many rows that are behind are told in one round.
const BEHIND: i64 = 1000;

/// Events of one source that are about to change.
#[derive(Debug)]
pub(in crate::stores::postgres) struct Touched {
    source: String,
    /// Their rows are ours until the end of the transaction.
    locked: Vec<Uuid>,
    /// Their rows are somebody else's, or gone.
    others: Vec<Uuid>,
}

/// Locks the rows of the tables that these native rows came from.
pub(in crate::stores::postgres) async fn lock(
    inner: &Inner,
    transaction: &mut Transaction,
    ids: &[Uuid],
) -> Result<Vec<Touched>, StoreError> {
    if !inner.adopts() {
        return Ok(Vec::new());
    }
    lock_for_a_person(inner, transaction, ids).await
}

/// The same for whoever knows no layout, such as a command: the importer of the table tells it then.
pub(in crate::stores::postgres) async fn lock_for_a_person(
    inner: &Inner,
    transaction: &mut Transaction,
    ids: &[Uuid],
) -> Result<Vec<Touched>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let adopted = lock_adopted(transaction, &inner.sql.lock_adopted, ids).await?;
    lock_sources(inner, transaction, adopted).await
}

/// The same for whoever holds the native rows already: `None` if somebody is at one of them, who may be waiting for us.
pub(in crate::stores::postgres) async fn try_lock(
    inner: &Inner,
    transaction: &mut Transaction,
    ids: &[Uuid],
) -> Result<Option<Vec<Touched>>, StoreError> {
    if !inner.adopts() || ids.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let adopted = lock_adopted(transaction, &inner.sql.lock_adopted_at_once(), ids).await?;
    let all: i64 = sqlx::query_scalar(inner.sql.count_adopted.safe())
        .bind(ids)
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    if i64::try_from(adopted.len()).is_ok_and(|locked| locked < all) {
        return Ok(None);
    }
    lock_sources(inner, transaction, adopted).await.map(Some)
}

async fn lock_adopted(
    transaction: &mut Transaction,
    statement: &Statement,
    ids: &[Uuid],
) -> Result<Vec<(String, Uuid)>, StoreError> {
    sqlx::query_as(statement.safe())
        .bind(ids)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)
}

/// `adopted` is sorted by source.
async fn lock_sources(
    inner: &Inner,
    transaction: &mut Transaction,
    adopted: Vec<(String, Uuid)>,
) -> Result<Vec<Touched>, StoreError> {
    let mut touched: Vec<Touched> = Vec::new();
    for (source, event) in adopted {
        match touched.last_mut().filter(|last| last.source == source) {
            Some(last) => last.others.push(event),
            None => touched.push(Touched {
                source,
                locked: Vec::new(),
                others: vec![event],
            }),
        }
    }
    for one in &mut touched {
        // A table that only another worker knows is told by that one.
        if let Some(adoption) = inner.adoption(&one.source) {
            one.locked = lock_rows(transaction, &adoption, &one.others).await?;
            let locked: HashSet<&Uuid> = one.locked.iter().collect();
            one.others.retain(|event| !locked.contains(event));
        }
    }
    Ok(touched)
}

async fn lock_rows(
    transaction: &mut Transaction,
    adoption: &Adoption,
    events: &[Uuid],
) -> Result<Vec<Uuid>, StoreError> {
    sqlx::query_scalar(AssertSqlSafe(adoption.lock.clone()))
        .bind(&adoption.source)
        .bind(events)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)
}

/// Leaves out those of which nothing was written, because their rows were no longer ours: what a table was told by
/// whoever has them now, or what a person has done to it since, is not ours to write over.
pub(in crate::stores::postgres) async fn settled(
    inner: &Inner,
    transaction: &mut Transaction,
    mut touched: Vec<Touched>,
    ids: &[Uuid],
    lost: &[Uuid],
) -> Result<Vec<Touched>, StoreError> {
    if touched.is_empty() || lost.is_empty() {
        return Ok(touched);
    }
    let unchanged: Vec<Uuid> = sqlx::query_scalar(inner.sql.unchanged.safe())
        .bind(lost)
        .bind(ids)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    for one in &mut touched {
        one.locked.retain(|event| !unchanged.contains(event));
        one.others.retain(|event| !unchanged.contains(event));
    }
    Ok(touched)
}

/// Writes what became of the events whose rows are locked.
pub(in crate::stores::postgres) async fn tell(
    inner: &Inner,
    transaction: &mut Transaction,
    touched: Vec<Touched>,
) -> Result<(), StoreError> {
    for one in touched {
        if let Some(adoption) = inner.adoption(&one.source).filter(|_| !one.locked.is_empty()) {
            tell_rows(transaction, &adoption, &one.locked).await?;
        }
        if !one.others.is_empty() {
            sqlx::query(inner.sql.set_behind.safe())
                .bind(&one.source)
                .bind(one.others)
                .persistent(false)
                .execute(&mut **transaction)
                .await
                .map_err(store_error)?;
        }
    }
    Ok(())
}

async fn tell_rows(
    transaction: &mut Transaction,
    adoption: &Adoption,
    events: &[Uuid],
) -> Result<(), StoreError> {
    sqlx::query(AssertSqlSafe(adoption.tell.clone()))
        .bind(&adoption.source)
        .bind(events)
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(())
}

/// Tells what could not be told before.
pub(super) async fn catch_up(
    inner: &Inner,
    transaction: &mut Transaction,
    adoption: &Adoption,
) -> Result<(), StoreError> {
    let behind: Vec<Uuid> = sqlx::query_scalar(inner.sql.are_behind.safe())
        .bind(&adoption.source)
        .bind(BEHIND)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    if behind.is_empty() {
        return Ok(());
    }
    let locked = lock_rows(transaction, adoption, &behind).await?;
    tell_rows(transaction, adoption, &locked).await?;
    // Who is gone need not be told, and must not keep others from being told.
    sqlx::query(AssertSqlSafe(adoption.forgo.clone()))
        .bind(&adoption.source)
        .bind(behind)
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(())
}
