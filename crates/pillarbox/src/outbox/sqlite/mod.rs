//! Transactions of sqlx on SQLite.
//!
//! [`begin`] takes the write lock at once. After a plain `BEGIN`, a later statement may fail because another connection
//! wrote first.

pub mod enqueue;
mod inbox;
pub mod row;
mod saga;

use sqlx::error::DatabaseError;
use uuid::Uuid;

pub use self::enqueue::{begin, begin_on, timestamp};
use crate::error::StoreError;

/// The primary result code, without what SQLite adds in the higher bits.
pub fn primary_code(error: &dyn DatabaseError) -> Option<i32> {
    let extended: i32 = error.code()?.parse().ok()?;
    Some(extended & 0xff)
}

/// The error of a statement, by SQLite's result code.
pub fn store_error(error: sqlx::Error, path: &str) -> StoreError {
    let sqlx::Error::Database(refused) = &error else {
        return match error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => {
                StoreError::Other(error.to_string())
            }
            _ => StoreError::Unavailable(error.to_string()), // the pool, its worker thread, the disk
        };
    };
    if ["outbox_events", "pillarbox_"]
        .iter()
        .any(|table| refused.message().contains(&format!("no such table: {table}")))
    {
        return StoreError::Missing(path.to_owned());
    }
    match primary_code(refused.as_ref()) {
        Some(BUSY | LOCKED | IOERR | FULL) => StoreError::Unavailable(refused.message().to_owned()),
        Some(CANTOPEN) => StoreError::Unavailable(format!(
            "{} ({path}); does it exist, and may this user read and write it and its directory?",
            refused.message()
        )),
        _ => StoreError::Other(refused.message().to_owned()),
    }
}

// https://www.sqlite.org/rescode.html
/// Another connection is writing.
pub const BUSY: i32 = 5;
const LOCKED: i32 = 6;
/// The disk failed.
pub const IOERR: i32 = 10;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;

/// Ids as a JSON array.
pub fn ids_json(ids: &[Uuid]) -> String {
    serde_json::json!(ids).to_string()
}
