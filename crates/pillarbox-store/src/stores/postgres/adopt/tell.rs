//! Tells an adopted table what became of its rows, in the transaction that writes it here.
//!
//! What is noted of the rows is locked first, in one order for all, by a statement of its own, and the family is read by a
//! later one: two siblings that end at the same time wait for each other here, and the second sees that both have. The
//! table's own rows are locked without waiting, by the statement that writes them: one that somebody else holds is told
//! later, by the importer.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use super::statements::Adoption;
use crate::store::StoreError;
use crate::stores::postgres::sql::Statement;
use crate::stores::postgres::{Inner, Transaction, store_error};

/// How many rows that are behind are told in one round.
const BEHIND: i64 = 1000;
/// How long a table that refused to be told is left to its importer.
const REFUSED: Duration = Duration::from_secs(60);

/// Events of one source that are about to change. What is noted of them nobody else changes until the end of the
/// transaction.
#[derive(Debug)]
pub(in crate::stores::postgres) struct Touched {
    source: String,
    events: Vec<Uuid>,
}

/// Locks what is noted of the rows of adopted tables that these native rows came from.
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
    lock_adopted(transaction, &inner.sql.lock_adopted, ids).await
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
    let touched = lock_adopted(transaction, &inner.sql.lock_adopted_at_once(), ids).await?;
    let all: i64 = sqlx::query_scalar(inner.sql.count_adopted.safe())
        .bind(ids)
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    let locked: usize = touched.iter().map(|one| one.events.len()).sum();
    if i64::try_from(locked).is_ok_and(|locked| locked < all) {
        return Ok(None);
    }
    Ok(Some(touched))
}

async fn lock_adopted(
    transaction: &mut Transaction,
    statement: &Statement,
    ids: &[Uuid],
) -> Result<Vec<Touched>, StoreError> {
    let rows: Vec<(String, Vec<Uuid>)> = sqlx::query_as(statement.safe())
        .bind(ids)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    let touched = |(source, events)| Touched { source, events };
    Ok(rows.into_iter().map(touched).collect())
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
        one.events.retain(|event| !unchanged.contains(event));
    }
    Ok(touched)
}

/// How an event ends that has no rows left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores::postgres) enum End {
    /// A person deleted it: its table says that it is given up on, and a reset there brings it back.
    GivenUp,
    /// No route leads anywhere: it is done.
    Unwanted,
}

/// Notes how those of these events ended that have no rows left, so that their table can be told also if it has to wait.
pub(in crate::stores::postgres) async fn note_end(
    inner: &Inner,
    transaction: &mut Transaction,
    events: &[Uuid],
    end: End,
) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    sqlx::query(inner.sql.note_end.safe())
        .bind(events)
        .bind(end == End::GivenUp)
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(())
}

/// Writes what became of the events. A table that only another worker knows is told by that one.
///
/// A table that refuses what it is told (by a trigger, a check, a right that was taken away) fails the transaction. For a
/// while after that its rows are noted as behind instead, and the importer finds out which can be told.
pub(in crate::stores::postgres) async fn tell(
    inner: &Inner,
    transaction: &mut Transaction,
    touched: Vec<Touched>,
) -> Result<(), StoreError> {
    for Touched { source, events } in touched {
        match inner.adoption(&source).filter(|adoption| !refuses(adoption)) {
            Some(adoption) => {
                let told = tell_rows(transaction, &adoption, &events).await;
                told.inspect_err(|error| heed_refusal(&adoption, error))?;
            }
            None => set_behind(inner, transaction, &events).await?,
        }
    }
    Ok(())
}

fn refuses(adoption: &Adoption) -> bool {
    let until = adoption.refuses_until.lock();
    let until = *until.unwrap_or_else(PoisonError::into_inner);
    until.is_some_and(|until| Instant::now() < until)
}

fn heed_refusal(adoption: &Adoption, error: &StoreError) {
    if is_refusal(error) {
        let source = adoption.source.as_str();
        tracing::warn!(source, %error, "the table refuses what it is told; its rows wait to be told");
        let until = adoption.refuses_until.lock();
        *until.unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + REFUSED);
    }
}

/// Will it be no better when it is tried again?
fn is_refusal(error: &StoreError) -> bool {
    matches!(error, StoreError::Other(_) | StoreError::Denied(_))
}

async fn tell_rows(
    connection: &mut PgConnection,
    adoption: &Adoption,
    events: &[Uuid],
) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    sqlx::query(AssertSqlSafe(adoption.tell.clone()))
        .bind(events)
        .persistent(false)
        .execute(connection)
        .await
        .map_err(store_error)?;
    Ok(())
}

/// Tells each event that can be told, and returns how many cannot. Halves those among which one is refused.
async fn tell_what_can_be_told(
    transaction: &mut Transaction,
    adoption: &Adoption,
    events: &[Uuid],
) -> Result<usize, StoreError> {
    let mut refused = 0;
    let mut groups = vec![events];
    while let Some(group) = groups.pop() {
        let mut attempt = transaction.begin().await.map_err(store_error)?;
        match tell_rows(&mut attempt, adoption, group).await {
            Ok(()) => attempt.commit().await.map_err(store_error)?,
            Err(error) if is_refusal(&error) => {
                attempt.rollback().await.map_err(store_error)?;
                if group.len() == 1 {
                    refused += 1;
                } else {
                    groups.extend(<[_; 2]>::from(group.split_at(group.len() / 2)));
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

async fn set_behind(inner: &Inner, transaction: &mut Transaction, events: &[Uuid]) -> Result<(), StoreError> {
    sqlx::query(inner.sql.set_behind.safe())
        .bind(events)
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(())
}

/// Tells what could not be told before, and returns how much of it still cannot.
pub(super) async fn catch_up(
    inner: &Inner,
    transaction: &mut Transaction,
    adoption: &Adoption,
) -> Result<usize, StoreError> {
    let behind: Vec<Uuid> = sqlx::query_scalar(inner.sql.are_behind.safe())
        .bind(&adoption.source)
        .bind(BEHIND)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    if behind.is_empty() {
        return Ok(0);
    }
    let refused = tell_what_can_be_told(transaction, adoption, &behind).await?;
    // Who is gone need not be told, and must not keep others from being told.
    sqlx::query(AssertSqlSafe(adoption.forgo.clone()))
        .bind(behind)
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(refused)
}
