//! Watches for new events: reads the counter of inserted rows every 5 ms, on a connection of its own.
//!
//! SQLite cannot notify another process. The read is one page that is in memory. A write by another
//! process is visible with its commit, so each change is a [`Change::Ended`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox::internal::sqlite::store_error;
use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions, SqlitePool};

use crate::store::{Change, StoreError, Watch};

const NAP: Duration = Duration::from_millis(5);
/// How many naps make [`Change::Nothing`].
const NAPS: u32 = 400;

/// See the module.
struct Counter {
    connection: SqliteConnection,
    path: Arc<str>,
    /// The last value that was seen.
    seen: i64,
}

pub(super) async fn watch(readers: &SqlitePool, path: &Arc<str>) -> Result<Box<dyn Watch>, sqlx::Error> {
    let mut counter = Counter {
        connection: readers.connect_options().connect().await?,
        path: Arc::clone(path),
        seen: 0,
    };
    counter.seen = counter.read().await?;
    Ok(Box::new(counter))
}

impl Counter {
    async fn read(&mut self) -> Result<i64, sqlx::Error> {
        sqlx::query_scalar(include_str!("sql/watch.sql"))
            .fetch_one(&mut self.connection)
            .await
    }
}

#[async_trait]
impl Watch for Counter {
    #[expect(clippy::disallowed_methods, reason = "the wait between two reads")]
    async fn next(&mut self, until_ended: bool) -> Result<Change, StoreError> {
        if until_ended {
            return Ok(Change::Ended); // what is not committed yet moves the counter when it is
        }
        for _ in 0..NAPS {
            let last = self
                .read()
                .await
                .map_err(|error| store_error(error, &self.path))?;
            if std::mem::replace(&mut self.seen, last) != last {
                return Ok(Change::Ended);
            }
            tokio::time::sleep(NAP).await;
        }
        Ok(Change::Nothing)
    }
}
