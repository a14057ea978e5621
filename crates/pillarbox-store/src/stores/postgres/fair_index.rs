//! Creates the index for fair shares, beside producers and dispatchers at work.
//!
//! `create index concurrently` blocks no INSERT and no UPDATE. It waits for all open transactions, for as long as they last.
//! If it is interrupted, an invalid index stays behind, which is dropped and created again. A fair claim works without fair
//! shares until the index is there.
//!
//! **If we die here** PostgreSQL ends the work or leaves an invalid index.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};

use super::{Inner, Postgres, store_error};
use crate::store::StoreError;

/// How long between two looks at an index that another session creates.
const INTERVAL: Duration = Duration::from_millis(500);

/// The state of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Index {
    Valid,
    Missing,
    /// Its creation was interrupted.
    Invalid,
    /// Another session creates it, or does what excludes that, such as a vacuum.
    Busy,
}

impl Postgres {
    /// Is the index for fair shares there? If not, fair shares are claimed like others until
    /// [`ensure_fair_index`](Self::ensure_fair_index) has created it.
    ///
    /// # Errors
    /// When the database is unavailable.
    pub async fn has_fair_index(&self) -> Result<bool, StoreError> {
        let inner = self.inner.clone();
        let index = self.run(async move { index(&inner).await }).await?;
        Ok(index == Index::Valid)
    }

    /// Creates the index for fair shares if it does not exist. It may take as long as other transactions are open, and delays
    /// none of them.
    ///
    /// # Errors
    /// When the role lacks the permission; the error has the statement to run. When the database is unavailable.
    pub async fn ensure_fair_index(&self) -> Result<(), StoreError> {
        self.run_long(ensure(self.inner.clone())).await
    }
}

impl Inner {
    pub(super) fn is_fair(&self) -> bool {
        self.is_fair.load(Ordering::Relaxed)
    }
}

async fn ensure(inner: Arc<Inner>) -> Result<(), StoreError> {
    loop {
        let done = match index(&inner).await? {
            Index::Valid => return Ok(()),
            Index::Busy => {
                pause().await;
                Ok(())
            }
            Index::Missing => create(&inner).await,
            Index::Invalid => {
                let drop = format!(
                    "drop index concurrently if exists \"{}\".outbox_events_fair",
                    inner.sql.schema
                );
                run_alone(&inner, AssertSqlSafe(drop)).await
            }
        };
        match done {
            // Two sessions that create it wait for each other, and PostgreSQL ends one of them.
            Err(StoreError::Unavailable(why)) if why.ends_with("(40P01)") => pause().await,
            done => done?,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the wait between two looks")]
async fn pause() {
    tokio::time::sleep(INTERVAL.mul_f64(0.5 + fastrand::f64())).await;
}

/// Looks at the index, and lets claims be fair if it is valid.
async fn index(inner: &Inner) -> Result<Index, StoreError> {
    let mut connection = inner.connection().await?;
    let row = sqlx::raw_sql(inner.bounded(&inner.sql.is_fair))
        .fetch_one(&mut *connection)
        .await
        .map_err(store_error)?;
    let is = |column| row.try_get::<bool, _>(column).map_err(store_error);
    let index = if is("valid")? {
        Index::Valid
    } else if is("busy")? {
        Index::Busy
    } else if is("present")? {
        Index::Invalid
    } else {
        Index::Missing
    };
    inner.is_fair.store(index == Index::Valid, Ordering::Relaxed);
    Ok(index)
}

async fn create(inner: &Inner) -> Result<(), StoreError> {
    match run_alone(inner, inner.sql.fair_index.safe()).await {
        Err(StoreError::Denied(why)) => Err(StoreError::Denied(format!(
            "{why}; let the owner of the schema run:\n{}\n",
            inner.sql.fair_index.text()
        ))),
        // Another session was faster: its index has the name.
        Err(StoreError::Other(why)) if why.ends_with("(23505)") || why.ends_with("(42P07)") => Ok(()),
        created => created,
    }
}

/// Runs a statement that cannot run inside a transaction and takes as long as it takes. Behind a pooler, nothing can be set
/// for it, and it has the timeouts of the role.
async fn run_alone(inner: &Inner, statement: impl sqlx::SqlSafeStr) -> Result<(), StoreError> {
    let mut connection = inner.connection().await?;
    let is_direct = !inner.seen.is_pooled();
    if is_direct {
        let unbounded = "set statement_timeout = 0; set lock_timeout = 0";
        let set = sqlx::raw_sql(unbounded).execute(&mut *connection).await;
        set.map_err(store_error)?;
    }
    let done = sqlx::raw_sql(statement).execute(&mut *connection).await;
    if is_direct {
        let reset = "reset statement_timeout; reset lock_timeout";
        let reset = sqlx::raw_sql(reset).execute(&mut *connection).await;
        reset.map_err(store_error)?;
    }
    done.map_err(store_error)?;
    Ok(())
}
