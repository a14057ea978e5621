//! Where handlers work: a database whose transactions can hold the inbox.
//!
//! **If we die here** the transaction rolls back, and the event comes again.

use std::future::Future;

use pillarbox::outbox::Transaction;
use pillarbox::{EnqueueError, StoreError};
use pillarbox_store::stores::memory::{self, Memory};

/// Begins the transactions in which events are handled.
///
/// | type | feature | a handler gets |
/// |---|---|---|
/// | `sqlx::PgPool` | `postgres` | `&mut sqlx::PgTransaction<'static>` |
/// | `sqlx::SqlitePool` | `sqlite` | `&mut sqlx::SqliteTransaction<'static>`, begun so that it may write |
/// | [`Memory`] | – | `&mut pillarbox_store::stores::memory::Transaction` |
///
/// A pool needs as many connections as the consumer handles events at once, and one more.
pub trait Database: Send + Sync + 'static {
    /// What a handler works in.
    type Transaction: Transaction + 'static;

    /// Begins one.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, StoreError>> + Send;

    /// Makes sure that a commit would be one.
    ///
    /// PostgreSQL answers the commit of a transaction in which a statement has failed by rolling back, and calls that
    /// a success. A handler that swallowed such an error would lose its event.
    fn check(
        &self,
        transaction: &mut Self::Transaction,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl Database for Memory {
    type Transaction = memory::Transaction;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        Ok(Memory::begin(self))
    }

    async fn check(&self, _: &mut Self::Transaction) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Begins a transaction that PostgreSQL ends when nobody says anything in it for five minutes.
///
/// Of a process whose host vanished PostgreSQL hears nothing, and would keep its marks locked until TCP gives up, after two
/// hours: whoever takes over waits for them. Five minutes, because a handler may be silent in its transaction while it
/// waits for somebody else. What the role, the database or the pool's own options say counts instead, be it more or less.
#[cfg(feature = "postgres")]
const BEGIN: &str = "begin; \
    select pg_catalog.set_config('idle_in_transaction_session_timeout', '5min', true) \
    where pg_catalog.current_setting('idle_in_transaction_session_timeout') = '0'";

#[cfg(feature = "postgres")]
impl Database for sqlx::PgPool {
    type Transaction = sqlx::PgTransaction<'static>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        self.begin_with(BEGIN).await.map_err(store_error)
    }

    async fn check(&self, transaction: &mut Self::Transaction) -> Result<(), StoreError> {
        // The shortest statement there is. In an aborted transaction it fails as every other does.
        let asked = sqlx::raw_sql("select").execute(&mut **transaction).await;
        asked.map(|_| ()).map_err(store_error)
    }
}

#[cfg(feature = "sqlite")]
impl Database for sqlx::SqlitePool {
    type Transaction = sqlx::SqliteTransaction<'static>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        pillarbox::sqlite::begin(self).await.map_err(begin_error)
    }

    /// A statement that fails takes nothing else with it here.
    async fn check(&self, _: &mut Self::Transaction) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Waiting for one's turn to write is waiting for the database.
#[cfg_attr(
    not(feature = "sqlite"),
    allow(dead_code, reason = "only SQLite has one writer at a time")
)]
fn begin_error(error: EnqueueError) -> StoreError {
    match error {
        EnqueueError::Store(error) => error,
        other => StoreError::Unavailable(other.to_string()),
    }
}

#[cfg(feature = "postgres")]
fn store_error(error: sqlx::Error) -> StoreError {
    if is_away(&error) {
        StoreError::Unavailable(error.to_string())
    } else {
        StoreError::Other(error.to_string())
    }
}

/// Does the error say that the database cannot be reached, or not now?
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn is_away(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(answer) => answer.code().is_some_and(|code| is_later(&code)),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        _ => false,
    }
}

/// The classes and codes of PostgreSQL that are about the server, or about others, and not about what was asked:
/// connections (08), credentials and databases that a person is changing (28, 3D000), deadlocks and serialisation failures
/// (40), a lock that took too long (55P03), a server that only reads or lost its disk (25006, 58), resources (53), starting
/// and stopping (57). And of SQLite: busy and locked, with their variants.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn is_later(code: &str) -> bool {
    let is_sqlite = |number: i32| matches!(number & 0xff, 5 | 6);
    match code.len() {
        // A statement that was cancelled may be too slow for ever.
        5 if code == "57014" => false,
        5 => {
            matches!(code, "3D000" | "55P03" | "25006")
                || ["08", "28", "40", "53", "57", "58"]
                    .iter()
                    .any(|class| code.starts_with(class))
        }
        _ => code.parse().is_ok_and(is_sqlite),
    }
}

#[cfg(all(test, any(feature = "postgres", feature = "sqlite")))]
mod tests {
    use super::*;

    #[test]
    fn codes_tell_a_server_that_is_away_from_a_statement_that_is_wrong() {
        let passing = [
            "08006", "28P01", "28000", "3D000", "40001", "40P01", "53300", "55P03", "25006", "57P01", "57P03",
        ];
        for code in passing.into_iter().chain(["5", "6", "261", "517"]) {
            assert!(is_later(code), "{code}");
        }
        // 57014 is a statement that was cancelled, for instance because it took too long. 55000 is what a handler asked of
        // something that is not ready for it.
        for code in ["23505", "57014", "55000", "25P02", "1", "19", "2067", ""] {
            assert!(!is_later(code), "{code}");
        }
    }
}
