//! Watches the sequence of events: a wait that naps inside the server, on a connection of its own.
//!
//! One call in two seconds while nothing happens, instead of a poll every few milliseconds. The procedure looks at the
//! sequence every 3 ms, which costs about 1 % of a core per worker. It reads neither table nor index. It commits between its
//! naps, so that it holds no snapshot for longer than 0.1 s.
//!
//! The sequence moves before the commit. So a watch that is asked to also waits until all transactions have ended that had
//! written something when it was asked. A transaction has its id a moment after it moved the sequence, and that is why the
//! question comes with the next call.
//!
//! **If we die here** the server ends the wait within two seconds.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, Row};

use super::pool::{is_about_options, timeouts};
use super::{Inner, store_error};
use crate::store::{Change, StoreError, Watch};

/// How long one call waits, if the timeout of a statement is longer. It bounds how long the server goes on after its client
/// has gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module.
struct Sequence {
    inner: Arc<Inner>,
    connection: PgConnection,
    /// The last value that was seen.
    seen: i64,
}

/// Connects. `None` behind a pooler: one that shares connections by transaction would lend one to the wait for good.
pub(super) async fn watch(inner: Arc<Inner>) -> Result<Option<Box<dyn Watch>>, StoreError> {
    let limit = inner.options.timeout;
    let begun = tokio::time::timeout(limit, begin(inner)).await;
    let begun =
        begun.unwrap_or_else(|_| Err(StoreError::Unavailable(format!("no answer within {limit:?}"))))?;
    if begun.is_none() {
        tracing::info!("connected through a pooler, where no connection can wait for new events; polling");
    }
    Ok(begun)
}

async fn begin(inner: Arc<Inner>) -> Result<Option<Box<dyn Watch>>, StoreError> {
    drop(inner.connection().await?); // finds out whether a pooler rejects or ignores our options
    if inner.seen.is_pooled() {
        return Ok(None);
    }
    let options = inner
        .url
        .options()
        .clone()
        .options(timeouts(inner.options.timeout));
    let mut connection = match options.connect().await.map_err(store_error) {
        Err(StoreError::Unavailable(why) | StoreError::Other(why)) if is_about_options(&why) => {
            return Ok(None);
        }
        connected => connected?,
    };
    if is_shared(&inner, &mut connection).await? {
        return Ok(None);
    }
    let mut sequence = Sequence {
        inner,
        connection,
        seen: 0,
    };
    sequence.wait(false, Duration::ZERO).await?;
    Ok(Some(Box::new(sequence)))
}

/// Does a pooler share the connection by transaction? Then it lends it to another transaction of ours, or lends us another
/// one while that transaction is open.
async fn is_shared(inner: &Inner, connection: &mut PgConnection) -> Result<bool, StoreError> {
    let before = backend(connection).await?;
    let mut other = inner.begin().await?;
    let others = backend(&mut other).await?;
    let after = backend(connection).await?;
    other.commit().await.map_err(store_error)?;
    Ok(before != after || before == others)
}

async fn backend(connection: &mut PgConnection) -> Result<i32, StoreError> {
    let row = sqlx::raw_sql("select pg_backend_pid()")
        .fetch_one(connection)
        .await
        .map_err(store_error)?;
    row.try_get(0).map_err(store_error)
}

impl Sequence {
    /// Returns how far the sequence moved, and whether the transactions have ended.
    async fn wait(&mut self, until_ended: bool, patience: Duration) -> Result<(u64, bool), StoreError> {
        let call = self
            .inner
            .sql
            .wait(self.seen, until_ended, patience.as_secs_f64());
        let row = sqlx::raw_sql(AssertSqlSafe(call.text()))
            .fetch_one(&mut self.connection)
            .await
            .map_err(store_error)?;
        let last: i64 = row.try_get("last").map_err(store_error)?;
        let moved = last.abs_diff(self.seen);
        self.seen = last;
        Ok((moved, row.try_get("ended").map_err(store_error)?))
    }
}

#[async_trait]
impl Watch for Sequence {
    async fn next(&mut self, until_ended: bool) -> Result<Change, StoreError> {
        let third = self.inner.options.timeout / 3;
        let patience = PATIENCE.min(third);
        // TCP may not report for minutes that the server has gone.
        let limit = patience + third;
        let waited = tokio::time::timeout(limit, self.wait(until_ended, patience)).await;
        match waited {
            Ok(waited) => Ok(match waited? {
                (0, true) => Change::Ended,
                (0, false) => Change::Nothing,
                (moved, _) => Change::Begun(moved),
            }),
            Err(_) => Err(StoreError::Unavailable(format!("no answer within {limit:?}"))),
        }
    }
}
