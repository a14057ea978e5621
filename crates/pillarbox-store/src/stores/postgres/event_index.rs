//! Creates an index of events that only some features need, beside producers and dispatchers at work.
//!
//! `create index concurrently` blocks no INSERT and no UPDATE. It waits for all open transactions, for as long as they last.
//! If it is interrupted, an invalid index stays behind, which is dropped and created again.
//!
//! **If we die here** PostgreSQL ends the work or leaves an invalid index.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};

use super::sql::Statement;
use super::{Inner, store_error};
use crate::store::StoreError;

/// How long between two looks at an index that another session creates.
const INTERVAL: Duration = Duration::from_millis(500);

/// The state of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Valid,
    Missing,
    /// Its creation was interrupted.
    Invalid,
    /// Another session creates it, or does what excludes that, such as a vacuum.
    Busy,
}

/// Looks at an index.
pub(super) async fn look(inner: &Inner, name: &str) -> Result<State, StoreError> {
    let statement = inner.sql.index_state(name);
    let mut connection = inner.connection().await?;
    let row = sqlx::raw_sql(inner.bounded(&statement))
        .fetch_one(&mut *connection)
        .await
        .map_err(store_error)?;
    let is = |column| row.try_get::<bool, _>(column).map_err(store_error);
    Ok(if is("valid")? {
        State::Valid
    } else if is("busy")? {
        State::Busy
    } else if is("present")? {
        State::Invalid
    } else {
        State::Missing
    })
}

/// Creates an index by this statement if it does not exist.
pub(super) async fn ensure(inner: &Inner, name: &str, statement: &Statement) -> Result<(), StoreError> {
    loop {
        let done = match look(inner, name).await? {
            State::Valid => return Ok(()),
            State::Busy => {
                pause().await;
                Ok(())
            }
            State::Missing => create(inner, statement).await,
            State::Invalid => {
                let drop = format!(
                    "drop index concurrently if exists \"{}\".{name}",
                    inner.sql.schema
                );
                run_alone(inner, AssertSqlSafe(drop)).await
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

async fn create(inner: &Inner, statement: &Statement) -> Result<(), StoreError> {
    match run_alone(inner, statement.safe()).await {
        Err(StoreError::Denied(why)) => Err(StoreError::Denied(format!(
            "{why}; let the owner of the schema run:\n{}\n",
            statement.text()
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
