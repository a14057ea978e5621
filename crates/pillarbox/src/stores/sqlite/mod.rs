//! The SQLite store: an outbox in a file, beside the tables of an application on the same machine.
//!
//! One connection writes, each time in one `BEGIN IMMEDIATE` transaction, so that it waits for its turn
//! instead of failing half-way; a few others read. Producers, in this process or another, open the same
//! file on their own and enqueue in their own transactions with an [`Outbox`].
//!
//! **The file is the user's.** A new one gets the WAL journal, in which readers and a writer do not stop
//! each other. One that exists keeps the journal it has; if that is not WAL, a warning says so once and
//! what to do. Nothing is written that a power cut could take back: `synchronous` is FULL.
//!
//! **The clock** is the machine's own. Put forwards, it ends leases early, and `claim_id` keeps the old
//! holder out. Put backwards, it makes leases and retries last longer by as much; what is new does not
//! wait, for a fresh row is due whatever the clock says; and a lease that ends further away than any can
//! be given ([`MAX_LEASE`]) is ended by the next sweep.
//!
//! **If we die here** SQLite rolls back what was not committed, and leases run out.

mod claim;
mod decode;
mod enqueue;
mod migrate;
mod open;
mod operate;
mod settle;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::SqlitePool;
use sqlx::error::DatabaseError;
use uuid::Uuid;

pub use self::enqueue::{Outbox, begin, begin_on};
pub use self::migrate::{migrations, script};
pub use self::open::{Options, connect_options};
use crate::event::Delivery;
use crate::store::{ClaimRequest, Scope, Settlement, Store, StoreError, Swept};

/// The longest lease that is given, whatever is asked for.
pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest wait that is written down; a date past the year 9999 is none to SQLite.
const MAX_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// An outbox in a SQLite file. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Sqlite {
    writer: SqlitePool,
    readers: SqlitePool,
    path: Arc<str>,
}

impl Sqlite {
    /// Runs to its end even if the caller goes away: a database future that is dropped half-way can
    /// leave its connection inside a transaction, and the pool hands it on.
    async fn apart<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, sqlx::Error>> + Send + 'static,
    {
        match tokio::spawn(work).await {
            Ok(done) => done.map_err(|error| self.error(error)),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(StoreError::Unavailable("the runtime is shutting down".into())),
            },
        }
    }

    fn error(&self, error: sqlx::Error) -> StoreError {
        store_error(error, &self.path)
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
        self.apart(claim::claim(self.writer.clone(), request.clone()))
            .await
    }

    async fn settle(&self, worker: Uuid, settlements: &[Settlement]) -> Result<Vec<Uuid>, StoreError> {
        let settlements = settlements.to_vec();
        self.apart(settle::settle(self.writer.clone(), worker, settlements))
            .await
    }

    async fn renew(
        &self,
        worker: Uuid,
        held: &[(Uuid, Uuid)],
        lease: Duration,
    ) -> Result<Vec<Uuid>, StoreError> {
        self.apart(settle::renew(self.writer.clone(), worker, held.to_vec(), lease))
            .await
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32, grace: Duration) -> Result<Swept, StoreError> {
        self.apart(sweep::sweep(
            self.writer.clone(),
            scope.clone(),
            max_attempts,
            grace,
        ))
        .await
    }

    async fn is_due(&self, scope: &Scope) -> Result<bool, StoreError> {
        self.apart(claim::is_due(self.readers.clone(), scope.clone()))
            .await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.check_version().await
    }
}

/// The primary result code, without what SQLite adds in the higher bits.
fn primary_code(error: &dyn DatabaseError) -> Option<i32> {
    let extended: i32 = error.code()?.parse().ok()?;
    Some(extended & 0xff)
}

/// What a failure means to a caller that can only wait, migrate or complain.
fn store_error(error: sqlx::Error, path: &str) -> StoreError {
    let sqlx::Error::Database(refused) = &error else {
        return match error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => {
                StoreError::Other(error.to_string())
            }
            _ => StoreError::Unavailable(error.to_string()), // the pool, its worker thread, the disk
        };
    };
    if refused.message().contains("no such table: outbox_events") {
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
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const IOERR: i32 = 10;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;

/// A wait as SQLite's date functions take it, rounded up to their milliseconds: due times hold.
fn later(wait: Duration) -> String {
    let wait = wait.min(MAX_WAIT);
    let millis = wait.as_nanos().div_ceil(1_000_000);
    format!("+{}.{:03} seconds", millis / 1_000, millis % 1_000)
}

/// The same into the past.
fn earlier(wait: Duration) -> String {
    later(wait).replacen('+', "-", 1)
}

/// A scope as a JSON array of namespaces, or null for all of them.
fn scope_json(scope: &Scope) -> Option<String> {
    scope.names().map(|names| serde_json::json!(names).to_string())
}

/// Ids as a JSON array.
fn ids_json(ids: &[Uuid]) -> String {
    serde_json::json!(ids).to_string()
}

/// A count as the column holds it; the largest stands for no limit.
fn column_limit(attempts: u32) -> i32 {
    i32::try_from(attempts).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_rounded_up_and_bounded() {
        assert_eq!(later(Duration::from_micros(1)), "+0.001 seconds");
        assert_eq!(later(Duration::from_millis(61_500)), "+61.500 seconds");
        assert_eq!(earlier(Duration::from_secs(30)), "-30.000 seconds");
        assert_eq!(later(Duration::MAX), later(MAX_WAIT));
    }
}
