//! Connections: two pools, timeouts, and how every transaction begins.
//!
//! **If we die here** PostgreSQL ends our transactions after the timeout, even if the network does not report it.

use std::future::Future;
use std::pin::pin;
use std::sync::PoisonError;
use std::time::Duration;

use pillarbox::internal::acquire;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::{Connection, Inner, Options, Postgres, Transaction, nodelay, store_error};
use crate::store::StoreError;

impl Postgres {
    /// Runs an operation within the timeout. After a timeout the pool is replaced, because a dead connection would keep its
    /// place in the pool until TCP gives up.
    pub(super) async fn run<T, F>(&self, operation: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let limit = self.inner.options.timeout;
        let result = tokio::time::timeout(limit, run_to_end(operation)).await;
        let result = result.unwrap_or_else(|_| Err(self.timed_out(limit)));
        if result.as_ref().is_err_and(is_read_only) {
            // It was the primary once. The pool would keep these connections for half an hour.
            self.inner.replace_pool();
        }
        result
    }

    /// Runs an operation that may take longer, such as creating an index, for as long as the database answers on another
    /// connection.
    pub(super) async fn run_long<T, F>(&self, operation: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let limit = self.inner.options.timeout;
        let mut operation = pin!(run_to_end(operation));
        loop {
            if let Ok(result) = tokio::time::timeout(limit, &mut operation).await {
                return result;
            }
            if tokio::time::timeout(limit, self.inner.answers()).await.is_err() {
                return Err(self.timed_out(limit));
            }
        }
    }

    fn timed_out(&self, limit: Duration) -> StoreError {
        self.inner.replace_pool();
        StoreError::Unavailable(format!("no answer within {limit:?}"))
    }
}

impl Inner {
    pub(super) fn pool(&self) -> PgPool {
        self.pool.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn apart(&self) -> PgPool {
        self.apart.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the database answers.
    #[expect(clippy::disallowed_methods, reason = "the wait between two probes")]
    async fn answers(&self) {
        while sqlx::raw_sql("select 1").execute(&self.apart()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn replace_pool(&self) {
        *self.pool.write().unwrap_or_else(PoisonError::into_inner) = open(&self.connect, &self.options);
        *self.apart.write().unwrap_or_else(PoisonError::into_inner) =
            open_apart(&self.connect, &self.options);
    }

    pub(super) async fn begin(&self) -> Result<Transaction, StoreError> {
        self.begin_on(self.pool()).await
    }

    /// Begins a transaction on the separate connection.
    pub(super) async fn begin_apart(&self) -> Result<Transaction, StoreError> {
        self.begin_on(self.apart()).await
    }

    async fn begin_on(&self, pool: PgPool) -> Result<Transaction, StoreError> {
        let begin = AssertSqlSafe(self.begin.clone());
        self.begin_with(pool, begin).await
    }

    pub(super) async fn begin_with(
        &self,
        pool: PgPool,
        begin: impl SqlSafeStr,
    ) -> Result<Transaction, StoreError> {
        let connection = acquire(&pool).await?;
        let begun = Transaction::begin(connection, Some(begin.into_sql_str())).await;
        begun.map_err(store_error)
    }

    /// A connection for a single statement.
    pub(super) async fn connection(&self) -> Result<Connection, StoreError> {
        acquire(&self.pool()).await
    }
}

/// Runs an operation to its end even if the caller is dropped. Otherwise the connection could go back to the pool inside a
/// transaction.
#[expect(
    clippy::disallowed_methods,
    reason = "a statement ends even if its caller is dropped"
)]
async fn run_to_end<T, F>(operation: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    match tokio::spawn(operation).await {
        Ok(result) => result,
        Err(panic) => Err(StoreError::Other(panic.to_string())),
    }
}

pub(super) fn open(connect: &PgConnectOptions, options: &Options) -> PgPool {
    open_with(options.max_connections.max(1), connect, options)
}

pub(super) fn open_apart(connect: &PgConnectOptions, options: &Options) -> PgPool {
    open_with(1, connect, options)
}

fn open_with(connections: u32, connect: &PgConnectOptions, options: &Options) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(options.timeout / 3)
        .after_connect(nodelay::to_port(connect.get_port()))
        .connect_lazy_with(connect.clone())
}

/// The statement that begins a transaction. Its settings make plans independent of statistics, so that a table that was empty
/// when it was analysed is not scanned.
///
/// The timeouts make the server release the rows of a dead or suspended worker. Its connection may look alive for hours.
pub(super) fn begin(timeout: Duration) -> String {
    let silence = silence(timeout);
    let lock = (timeout / 3).as_millis().max(1);
    // One statement for all settings, because an idle worker should send few queries.
    format!(
        "begin isolation level read committed; \
         select set_config(name, value, true) from (values \
         ('statement_timeout', '{silence}ms'), ('idle_in_transaction_session_timeout', '{silence}ms'), \
         ('lock_timeout', '{lock}ms'), ('jit', 'off'), ('enable_seqscan', 'off'), \
         ('enable_bitmapscan', 'off'), ('enable_mergejoin', 'off')) as setting (name, value)"
    )
}

/// The server's timeout for a statement, and for a silent client inside a transaction, in milliseconds.
pub(super) fn silence(timeout: Duration) -> u128 {
    (timeout * 5 / 6).as_millis().max(1)
}

/// Did a read-only server answer, such as a primary that was replaced?
fn is_read_only(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(reason) if reason.ends_with("(25006)"))
}
