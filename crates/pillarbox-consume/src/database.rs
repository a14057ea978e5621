//! The database that handlers work in. Its transactions also hold the inbox.
//!
//! **If we die here** the transaction rolls back, and the broker delivers the event again.

use std::future::Future;
use std::time::Duration;

use pillarbox::Transaction;
#[cfg(feature = "postgres")]
use pillarbox::internal::root_cause;
use pillarbox::{EnqueueError, StoreError};
use pillarbox_store::stores::memory::{self, Memory};
#[cfg(feature = "postgres")]
use sqlx::AssertSqlSafe;

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
    /// The transaction that a handler gets.
    type Transaction: Transaction + 'static;

    /// Begins a transaction for a handler with this timeout. Statements in it should not take longer either: a statement
    /// outlives a cancelled handler and keeps its connection.
    fn begin(&self, timeout: Duration) -> impl Future<Output = Result<Self::Transaction, StoreError>> + Send;

    /// Checks that a commit would take effect.
    ///
    /// PostgreSQL rolls back when a transaction with a failed statement commits, and reports success. A handler that ignored
    /// such an error would lose its event.
    fn check(
        &self,
        transaction: &mut Self::Transaction,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl Database for Memory {
    type Transaction = memory::Transaction;

    async fn begin(&self, _: Duration) -> Result<Self::Transaction, StoreError> {
        Ok(Memory::begin(self))
    }

    async fn check(&self, _: &mut Self::Transaction) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The shortest time after which an idle transaction ends.
#[cfg(feature = "postgres")]
const IDLE: Duration = Duration::from_secs(300);

/// Begins a transaction that PostgreSQL ends after five idle minutes, and whose statements it cancels after three quarters
/// of `timeout`.
///
/// PostgreSQL does not notice that a consumer's host is gone until TCP times out after two hours. Until then the marks stay
/// locked and block the next consumer. Five minutes leave a handler time to wait for another service. A statement that
/// waits for a lock outlives its cancelled handler, and would keep its connection from the pool. So it is cancelled while the
/// handler still waits for it, if it is the first. A timeout that the role,
/// the database or the pool sets takes precedence.
#[cfg(feature = "postgres")]
fn begin(timeout: Duration) -> String {
    let millis = |time: Duration| time.as_millis().clamp(1, i32::MAX.unsigned_abs().into());
    format!(
        "begin; \
         select pg_catalog.set_config(name, value, true) from (values \
         ('idle_in_transaction_session_timeout', '{}'), ('statement_timeout', '{}')) as wanted (name, value) \
         where pg_catalog.current_setting(name) = '0'",
        millis(timeout.max(IDLE)),
        millis(timeout * 3 / 4)
    )
}

#[cfg(feature = "postgres")]
impl Database for sqlx::PgPool {
    type Transaction = sqlx::PgTransaction<'static>;

    async fn begin(&self, timeout: Duration) -> Result<Self::Transaction, StoreError> {
        // The only variables are two numbers.
        match self.begin_with(AssertSqlSafe(begin(timeout))).await {
            Ok(transaction) => Ok(transaction),
            Err(error @ sqlx::Error::PoolTimedOut) => Err(root_cause(self, &error).await),
            Err(error) => Err(store_error(error)),
        }
    }

    async fn check(&self, transaction: &mut Self::Transaction) -> Result<(), StoreError> {
        // The shortest statement. It fails in an aborted transaction like any other.
        let checked = sqlx::raw_sql("select").execute(&mut **transaction).await;
        checked.map(|_| ()).map_err(store_error)
    }
}

#[cfg(feature = "sqlite")]
impl Database for sqlx::SqlitePool {
    type Transaction = sqlx::SqliteTransaction<'static>;

    async fn begin(&self, _: Duration) -> Result<Self::Transaction, StoreError> {
        pillarbox::sqlite::begin(self).await.map_err(begin_error)
    }

    /// In SQLite a failed statement does not abort the transaction.
    async fn check(&self, _: &mut Self::Transaction) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A busy writer counts as an unavailable database.
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
    if is_unavailable(&error) {
        StoreError::Unavailable(error.to_string())
    } else {
        StoreError::Other(error.to_string())
    }
}

/// Does the error mean that the database is unreachable or temporarily unable to answer?
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn is_unavailable(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(answer) => answer.code().is_some_and(|code| is_transient(&code)),
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

/// Error codes that are about the server or other sessions, and not about the statement.
///
/// PostgreSQL: connections (08), credentials and databases that an operator is changing (28, 3D000), deadlocks and
/// serialisation failures (40), a lock timeout (55P03), a read-only server or a lost disk (25006, 58), resources (53), start
/// and stop (57). SQLite: busy and locked, with their variants.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn is_transient(code: &str) -> bool {
    let is_sqlite = |number: i32| matches!(number & 0xff, 5 | 6);
    match code.len() {
        // A cancelled statement may always be too slow.
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
    fn codes_tell_an_unavailable_server_from_a_wrong_statement() {
        let passing = [
            "08006", "28P01", "28000", "3D000", "40001", "40P01", "53300", "55P03", "25006", "57P01", "57P03",
        ];
        for code in passing.into_iter().chain(["5", "6", "261", "517"]) {
            assert!(is_transient(code), "{code}");
        }
        // 57014: a cancelled statement, for instance by a timeout. 55000: an object is in the wrong state for the statement.
        for code in ["23505", "57014", "55000", "25P02", "1", "19", "2067", ""] {
            assert!(!is_transient(code), "{code}");
        }
    }
}
