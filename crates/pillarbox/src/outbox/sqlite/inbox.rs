//! What consumers have handled, on the caller's own transaction.
//!
//! **If we die here** the caller's transaction rolls back: neither the mark nor what it stands for is there.

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::{ids_json, row as decode, store_error};
use crate::error::StoreError;
use crate::inbox::Inbox;

pub(super) async fn mark(
    connection: &mut SqliteConnection,
    consumer: &str,
    ids: &[Uuid],
) -> Result<Vec<Uuid>, StoreError> {
    let rows = sqlx::query(include_str!("sql/mark.sql"))
        .bind(consumer)
        .bind(ids_json(ids))
        .fetch_all(connection)
        .await;
    let id = |row: &SqliteRow| decode::uuid(row, "event_id").map(Option::unwrap_or_default);
    rows.and_then(|rows| rows.iter().map(id).collect())
        .map_err(|error| store_error(error, "this file"))
}

pub(super) async fn unmark(
    connection: &mut SqliteConnection,
    consumer: &str,
    ids: &[Uuid],
) -> Result<(), StoreError> {
    let done = sqlx::query(include_str!("sql/unmark.sql"))
        .bind(consumer)
        .bind(ids_json(ids))
        .execute(connection)
        .await;
    done.map_err(|error| store_error(error, "this file"))?;
    Ok(())
}

pub(super) async fn prune(
    connection: &mut SqliteConnection,
    inbox: &Inbox,
    consumer: &str,
    limit: i32,
) -> Result<u64, StoreError> {
    let done = sqlx::query(include_str!("sql/prune_inbox.sql"))
        .bind(consumer)
        .bind(format!("-{} seconds", inbox.kept().as_secs()))
        .bind(limit)
        .execute(connection)
        .await;
    let done = done.map_err(|error| store_error(error, "this file"))?;
    Ok(done.rows_affected())
}
