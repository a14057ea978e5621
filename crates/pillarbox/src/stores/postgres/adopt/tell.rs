//! Tells an adopted table what became of its rows, in the transaction that writes it here.
//!
//! The table's rows are locked first, by a statement of their own, and then the family is read: two siblings that end at
//! the same time wait for each other here, and the second sees that both have. A row that somebody else holds locked
//! is told later, by the importer: nobody waits for it.

use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::statements::Adoption;
use crate::schema::in_schema;
use crate::store::StoreError;
use crate::stores::postgres::{Inner, Transaction, store_error};

/// How many rows that are behind are told in one round.
const BEHIND: i64 = 1000;

const ADOPTED: &str = "select a.source, a.event_id from pillarbox.adopted a
where a.event_id in (
  select coalesce(e.parent_id, e.id) from pillarbox.outbox_events e where e.id = any($1)
)
order by a.source";

const SET_BEHIND: &str =
    "update pillarbox.adopted set behind = true where source = $1 and event_id = any($2) and not behind";

const ARE_BEHIND: &str = "select event_id from pillarbox.adopted where source = $1 and behind limit $2";

const UNCHANGED: &str =
    "select coalesce(e.parent_id, e.id) from pillarbox.outbox_events e where e.id = any($1)
except
select coalesce(e.parent_id, e.id) from pillarbox.outbox_events e where e.id = any($2) and e.id <> all($1)";

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
    let rows = sqlx::query(AssertSqlSafe(in_schema(ADOPTED, &inner.sql.schema)))
        .bind(ids)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    let mut touched: Vec<Touched> = Vec::new();
    for row in &rows {
        let source: String = row.try_get(0).map_err(store_error)?;
        let event: Uuid = row.try_get(1).map_err(store_error)?;
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
            one.others.retain(|event| !one.locked.contains(event));
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
    let unchanged: Vec<Uuid> = sqlx::query_scalar(AssertSqlSafe(in_schema(UNCHANGED, &inner.sql.schema)))
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
            sqlx::query(AssertSqlSafe(in_schema(SET_BEHIND, &inner.sql.schema)))
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
    let behind: Vec<Uuid> = sqlx::query_scalar(AssertSqlSafe(in_schema(ARE_BEHIND, &inner.sql.schema)))
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
    tell_rows(transaction, adoption, &locked).await
}
