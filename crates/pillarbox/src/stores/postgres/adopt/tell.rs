//! Tells an adopted table what became of its rows, in the transaction that writes it here.
//!
//! What is noted of the rows is locked first, in one order for all, by a statement of its own, and the family is read by a
//! later one: two siblings that end at the same time wait for each other here, and the second sees that both have. The
//! table's own rows are locked without waiting, by the statement that writes them: one that somebody else holds is told
//! later, by the importer.

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::statements::Adoption;
use crate::store::StoreError;
use crate::stores::postgres::sql::Statement;
use crate::stores::postgres::{Inner, Transaction, store_error};

/// How many rows that are behind are told in one round.
const BEHIND: i64 = 1000;

/// Events of one source that are about to change, and what is noted of them. Nobody else changes that until the end of the
/// transaction.
#[derive(Debug)]
pub(in crate::stores::postgres) struct Touched {
    source: String,
    notes: Vec<Note>,
}

/// What is noted of one event: its row in the table, and what that said when we last read or wrote it.
#[derive(Debug)]
struct Note {
    event_id: Uuid,
    source_id: String,
    mark: String,
}

impl Note {
    fn new((event_id, source_id, mark): (Uuid, String, String)) -> Self {
        Self {
            event_id,
            source_id,
            mark,
        }
    }
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
    let noted = lock_adopted(transaction, &inner.sql.lock_adopted, ids).await?;
    Ok(by_source(noted))
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
    let noted = lock_adopted(transaction, &inner.sql.lock_adopted_at_once(), ids).await?;
    let all: i64 = sqlx::query_scalar(inner.sql.count_adopted.safe())
        .bind(ids)
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    if i64::try_from(noted.len()).is_ok_and(|locked| locked < all) {
        return Ok(None);
    }
    Ok(Some(by_source(noted)))
}

/// A source, and a note of it.
type Noted = (String, Note);

async fn lock_adopted(
    transaction: &mut Transaction,
    statement: &Statement,
    ids: &[Uuid],
) -> Result<Vec<Noted>, StoreError> {
    let rows: Vec<(String, Uuid, String, String)> = sqlx::query_as(statement.safe())
        .bind(ids)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    let noted = |(source, event_id, source_id, mark)| (source, Note::new((event_id, source_id, mark)));
    Ok(rows.into_iter().map(noted).collect())
}

/// They come sorted by source.
fn by_source(noted: Vec<Noted>) -> Vec<Touched> {
    let mut touched: Vec<Touched> = Vec::new();
    for (source, note) in noted {
        match touched.last_mut().filter(|last| last.source == source) {
            Some(last) => last.notes.push(note),
            None => touched.push(Touched {
                source,
                notes: vec![note],
            }),
        }
    }
    touched
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
        one.notes.retain(|note| !unchanged.contains(&note.event_id));
    }
    Ok(touched)
}

/// Writes what became of the events. A table that only another worker knows is told by that one.
pub(in crate::stores::postgres) async fn tell(
    inner: &Inner,
    transaction: &mut Transaction,
    touched: Vec<Touched>,
) -> Result<(), StoreError> {
    for Touched { source, notes } in touched {
        match inner.adoption(&source) {
            Some(adoption) => tell_rows(transaction, &adoption, notes).await?,
            None => set_behind(inner, transaction, notes).await?,
        }
    }
    Ok(())
}

async fn tell_rows(
    transaction: &mut Transaction,
    adoption: &Adoption,
    notes: Vec<Note>,
) -> Result<(), StoreError> {
    if notes.is_empty() {
        return Ok(());
    }
    let (mut events, mut rows, mut marks) = (Vec::new(), Vec::new(), Vec::new());
    for note in notes {
        events.push(note.event_id);
        rows.push(note.source_id);
        marks.push(note.mark);
    }
    sqlx::query(AssertSqlSafe(adoption.tell.clone()))
        .bind(events)
        .bind(rows)
        .bind(marks)
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(())
}

async fn set_behind(
    inner: &Inner,
    transaction: &mut Transaction,
    notes: Vec<Note>,
) -> Result<(), StoreError> {
    let events: Vec<Uuid> = notes.into_iter().map(|note| note.event_id).collect();
    sqlx::query(inner.sql.set_behind.safe())
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
    let behind: Vec<(Uuid, String, String)> = sqlx::query_as(inner.sql.are_behind.safe())
        .bind(&adoption.source)
        .bind(BEHIND)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    if behind.is_empty() {
        return Ok(());
    }
    let behind: Vec<Note> = behind.into_iter().map(Note::new).collect();
    let events: Vec<Uuid> = behind.iter().map(|note| note.event_id).collect();
    tell_rows(transaction, adoption, behind).await?;
    // Who is gone need not be told, and must not keep others from being told.
    sqlx::query(AssertSqlSafe(adoption.forgo.clone()))
        .bind(events)
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(())
}
