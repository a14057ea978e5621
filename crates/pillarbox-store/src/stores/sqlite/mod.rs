//! The SQLite store: an outbox in a file, beside the tables of an application on the same machine.
//!
//! One connection writes, each time in one `BEGIN IMMEDIATE` transaction. So it waits for the write lock first, instead of
//! failing half-way. A few other connections read. Producers, in this process or another, open the same file and enqueue in
//! their own transactions with an [`Outbox`](pillarbox::Outbox).
//!
//! **The file belongs to the user.** A new file gets the WAL journal, in which readers and the writer do not block each other.
//! An existing file keeps its journal mode. If that is not WAL, one warning says what to do. A power cut loses no commit:
//! `synchronous` is FULL.
//!
//! **The clock** is the machine's own. If it is set forward, leases expire early, and `claim_id` keeps the old holder out. If
//! it is set back, leases and retries last that much longer. Fresh rows are due without a clock, so they do not wait. The
//! next sweep shortens a lease that is longer than any lease can be ([`MAX_LEASE`]).
//!
//! **If we die here** SQLite rolls back uncommitted changes, and leases expire.

mod audit;
mod by_hand;
mod choose;
mod claim;
mod decode;
mod expired;
mod families;
mod find;
mod migrate;
mod open;
mod operate;
mod prune;
mod route;
mod sagas;
mod sample;
mod settle;
mod sweep;
mod tenant;
mod watch;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::SqlitePool;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use uuid::Uuid;

use self::choose::Turns;
pub use self::migrate::{migrations, script};
pub use self::open::{Options, connect_options};
use self::tenant::Confined;
use crate::audit::Line;
use crate::retention::{PruneRequest, Pruned};
use crate::sample::{SampleRequest, Sampled};
use crate::store::{
    Backlog, ClaimRequest, Family, Found, Heartbeat, LaneRequest, Parked, Range, Routed, Routing, Scope,
    Settlement, Store, StoreError, Stub, SweepRequest, Swept, Watch,
};
use pillarbox::Delivery;
use pillarbox::internal::sqlite::{ids_json, store_error};
pub use pillarbox::sqlite::{begin, begin_on};
use pillarbox::text::error_text;

/// The longest lease.
pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest wait. SQLite knows no date after the year 9999.
const MAX_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// An outbox in a SQLite file. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Sqlite {
    writer: SqlitePool,
    readers: SqlitePool,
    path: Arc<str>,
    turns: Turns,
}

impl Sqlite {
    /// Runs an operation to its end even if the caller is dropped. A database future that is dropped half-way can leave its
    /// connection inside a transaction, and the pool would reuse it.
    #[expect(
        clippy::disallowed_methods,
        reason = "a statement ends even if its caller is dropped"
    )]
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

    /// Runs a statement that returns the ids of the rows that it changed.
    async fn change(
        &self,
        query: Query<'static, sqlx::Sqlite, SqliteArguments>,
    ) -> Result<Vec<Uuid>, StoreError> {
        let writer = self.writer.clone();
        self.apart(async move {
            let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
            let rows = query.fetch_all(&mut *tx).await?;
            tx.commit().await?;
            let mut changed = Vec::new();
            for row in &rows {
                changed.extend(decode::uuid(row, "id")?);
            }
            Ok(changed)
        })
        .await
    }

    fn error(&self, error: sqlx::Error) -> StoreError {
        store_error(error, &self.path)
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn find(
        &self,
        scope: &Scope,
        served: Option<&[String]>,
        after: Option<&Backlog>,
        limit: usize,
    ) -> Result<Found, StoreError> {
        let (readers, scope, after) = (self.readers.clone(), scope.clone(), after.cloned());
        let served = served.map(<[String]>::to_vec);
        self.apart(find::find(readers, scope, served, after, limit)).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
        let turns = self.turns.clone();
        self.apart(claim::claim(self.writer.clone(), request.clone(), turns))
            .await
    }

    async fn route(&self, worker: Uuid, routings: &[Routing]) -> Result<Routed, StoreError> {
        self.apart(route::route(self.writer.clone(), worker, routings.to_vec()))
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

    async fn sweep(&self, request: &SweepRequest) -> Result<Swept, StoreError> {
        self.apart(sweep::sweep(self.writer.clone(), request.clone()))
            .await
    }

    async fn lease_lanes(&self, request: &LaneRequest) -> Result<Vec<Range>, StoreError> {
        self.apart(workers::lease_lanes(self.writer.clone(), request.clone()))
            .await
    }

    async fn prune_lanes(&self) -> Result<usize, StoreError> {
        self.apart(workers::prune_lanes(self.writer.clone())).await
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        self.apart(workers::heartbeat(self.writer.clone(), heartbeat.clone()))
            .await
    }

    async fn deregister(&self, worker: Uuid) -> Result<(), StoreError> {
        self.apart(workers::deregister(self.writer.clone(), worker)).await
    }

    async fn disable(&self, worker: Uuid, destination: &str, reason: &str) -> Result<(), StoreError> {
        let line = Line::disabled(worker, destination);
        let (destination, reason) = (destination.to_owned(), error_text(reason));
        self.apart(workers::pause(
            self.writer.clone(),
            destination,
            reason,
            true,
            line,
        ))
        .await
    }

    async fn parked(
        &self,
        what: Parked,
        scope: &Scope,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Stub>, StoreError> {
        let (readers, scope) = (self.readers.clone(), scope.clone());
        self.apart(find::parked(readers, what, scope, after, limit)).await
    }

    async fn unpark(&self, what: Parked, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        self.change(sqlx::query(find::unpark(what)).bind(ids_json(ids)))
            .await
    }

    async fn sample(&self, request: &SampleRequest) -> Result<Option<Sampled>, StoreError> {
        let sampled = sample::sample(self.readers.clone(), request.clone());
        Ok(Some(self.apart(sampled).await?))
    }

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, StoreError> {
        self.apart(prune::prune(self.writer.clone(), request.clone()))
            .await?
    }

    async fn families(&self, events: &[Uuid]) -> Result<Vec<Family>, StoreError> {
        self.apart(families::families(self.readers.clone(), ids_json(events)))
            .await
    }

    async fn pending(&self, scope: &Scope) -> Result<Option<u64>, StoreError> {
        let counted = operate::stats(self.readers.clone(), Confined(None), scope.clone());
        Ok(Some(self.apart(counted).await?.pending))
    }

    async fn watch(&self) -> Result<Option<Box<dyn Watch>>, StoreError> {
        let begun = watch::watch(&self.readers, &self.path).await;
        Ok(Some(begun.map_err(|error| self.error(error))?))
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.check_version().await
    }
}

/// A wait for SQLite's date functions, rounded up to milliseconds, so that no row is due too early.
fn later(wait: Duration) -> String {
    let wait = wait.min(MAX_WAIT);
    let millis = wait.as_nanos().div_ceil(1_000_000);
    format!("+{}.{:03} seconds", millis / 1_000, millis % 1_000)
}

/// A time in the past, in the same form.
fn earlier(wait: Duration) -> String {
    later(wait).replacen('+', "-", 1)
}

/// A scope as a JSON array of namespaces, or null for all of them.
fn scope_json(scope: &Scope) -> Option<String> {
    scope.names().map(|names| serde_json::json!(names).to_string())
}

/// A number of rows as a LIMIT, small enough for sums.
fn row_limit(rows: usize) -> i32 {
    i32::try_from(rows).unwrap_or(i32::MAX)
}

/// A count for its column; the largest means no limit.
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
