//! A file for each case, and an application that writes to it with its own pool.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox::inbox::Inbox;
use pillarbox::inbox::Key;
use pillarbox::{EnqueueError, Enqueued, Event, Outbox, Recorded, StoreError};
use pillarbox_store::store::{ClaimRequest, Due, Share, Take};
use pillarbox_store::stores::sqlite::{Options, Sqlite, begin, connect_options};
use pillarbox_store::{Operate, Scope, Store};
use pillarbox_testkit::store_suite::{Capability, Corruption, Harness, Skipped, Tx};
use sqlx::{SqlitePool, Transaction};
use tempfile::TempDir;
use uuid::Uuid;

pub(crate) struct SqliteHarness {
    pub(super) store: Sqlite,
    pub(super) application: SqlitePool,
    directory: TempDir,
}

impl SqliteHarness {
    /// A migrated outbox in a new file.
    pub(crate) async fn fresh() -> Self {
        let harness = Self::empty().await;
        harness.store.migrate().await.expect("a migration");
        harness
    }

    /// A new file with nothing in it.
    pub(super) async fn empty() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("outbox.db");
        let options = Options {
            create_if_missing: true,
            ..long_timeout()
        };
        let store = Sqlite::open(&path.to_string_lossy(), options)
            .await
            .expect("a new file");
        Self {
            store,
            application: pool(&path).await,
            directory,
        }
    }

    /// What a worker could take that has no lane, from every backlog that it sees.
    pub(super) async fn free(&self, limit: usize) -> Take {
        let look = self
            .store
            .find(&Scope::All, None, None, 1_000)
            .await
            .expect("a look");
        let share = |due: Due| Share {
            backlog: due.backlog,
            limit,
            floor: 0,
            fair: false,
            resume: false,
        };
        Take::Free(look.due.into_iter().map(share).collect())
    }

    /// May anything be due?
    pub(super) async fn is_due(&self) -> bool {
        let look = self.store.find(&Scope::All, None, None, 1).await.expect("a look");
        !look.due.is_empty()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("outbox.db")
    }

    pub(super) async fn run(&self, sql: &'static str) {
        sqlx::raw_sql(sql)
            .execute(&self.application)
            .await
            .expect("it runs");
    }
}

/// A worker that asks for rows, with a lease of a minute.
pub(super) fn request(take: Take) -> ClaimRequest {
    ClaimRequest {
        worker: Uuid::new_v4(),
        claim: Uuid::new_v4(),
        lease: Duration::from_secs(60),
        take,
        excluded: Vec::new(),
        first_lane: 0,
        max_bytes: usize::MAX,
        scope: Scope::All,
        max_attempts: 5,
    }
}

/// Every time in every table.
const OLDER: &str = "begin immediate;
  update outbox_events set
    next_attempt_at = strftime('%Y-%m-%dT%H:%M:%f000Z', next_attempt_at, ?1),
    locked_until = strftime('%Y-%m-%dT%H:%M:%f000Z', locked_until, ?1),
    created_at = strftime('%Y-%m-%dT%H:%M:%f000Z', created_at, ?1),
    updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', updated_at, ?1),
    delivered_at = strftime('%Y-%m-%dT%H:%M:%f000Z', delivered_at, ?1);
  update pillarbox_lanes set leased_until = strftime('%Y-%m-%dT%H:%M:%f000Z', leased_until, ?1);
  update pillarbox_workers set
    started_at = strftime('%Y-%m-%dT%H:%M:%f000Z', started_at, ?1),
    seen_at = strftime('%Y-%m-%dT%H:%M:%f000Z', seen_at, ?1);
  update pillarbox_inbox set handled_at = strftime('%Y-%m-%dT%H:%M:%f000Z', handled_at, ?1);
  update pillarbox_paused set since = strftime('%Y-%m-%dT%H:%M:%f000Z', since, ?1);
  commit";

/// A machine that runs many tests at once may be slow to give everyone a turn.
pub(super) fn long_timeout() -> Options {
    Options {
        busy_timeout: Duration::from_secs(60),
        ..Options::default()
    }
}

/// An application's own connections to the file.
pub(crate) async fn pool(path: &std::path::Path) -> SqlitePool {
    let options = connect_options(&path.to_string_lossy(), &long_timeout()).expect("a path");
    SqlitePool::connect_with(options).await.expect("it opens")
}

#[async_trait]
impl Harness for SqliteHarness {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn operate(&self) -> Arc<dyn Operate> {
        Arc::new(self.store.clone())
    }

    async fn begin(&self) -> Box<dyn Tx> {
        Box::new(SqliteTx(begin(&self.application).await.expect("its turn comes")))
    }

    async fn age(&self, by: time::Duration) {
        let by = format!("{:+.3} seconds", -by.as_seconds_f64());
        sqlx::raw_sql(sqlx::AssertSqlSafe(OLDER.replace("?1", &format!("'{by}'"))))
            .execute(&self.application)
            .await
            .expect("older rows");
    }

    fn can(&self, what: Capability) -> Result<(), Skipped> {
        match what {
            Capability::ConcurrentTransactions => {
                Err(Skipped("SQLite has one writer at a time: nothing commits late"))
            }
            Capability::ManyRanges => Err(Skipped(
                "SQLite has one lane a namespace: one worker takes care of it",
            )),
            Capability::EnqueueWaitsForRivals
            | Capability::Savepoints
            | Capability::Outbox
            | Capability::Field(_)
            | Capability::Checks
            | Capability::OwnTable
            | Capability::OpenLimit
            | Capability::Archive
            | Capability::ExactFind
            | Capability::Corrupt(_) => Ok(()),
        }
    }

    async fn corrupt(&self, id: Uuid, corruption: Corruption) {
        let (sql, value) = match corruption {
            Corruption::Status(status) => ("update outbox_events set status = ?2 where id = ?1", status),
            Corruption::NegativeAttempts => (
                "update outbox_events set attempts = -3 where id = ?1 and ?2 = ''",
                "",
            ),
            Corruption::LeaseWithoutEnd => (
                "update outbox_events set locked_by = null, locked_until = null, claim_id = null
                 where id = ?1 and ?2 = ''",
                "",
            ),
            Corruption::ForeignHeaders => (
                "update outbox_events set headers = ?2 where id = ?1",
                r#"{"text": "a", "number": 1, "flag": true, "list": [1], "nothing": null}"#,
            ),
            Corruption::ImpossibleTime => (
                "update outbox_events set created_at = ?2 where id = ?1",
                "2025-19-39T29:59:59.000000Z",
            ),
        };
        let query = sqlx::query(sql).bind(id.to_string()).bind(value);
        let changed = query.execute(&self.application).await.expect("it can be written");
        assert_eq!(changed.rows_affected(), 1);
    }

    async fn clean_up(&self) {
        self.application.close().await;
        self.store.close().await;
    }
}

struct SqliteTx(Transaction<'static, sqlx::Sqlite>);

#[async_trait]
impl Tx for SqliteTx {
    async fn enqueue(&mut self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        Outbox::default().enqueue_all(&mut self.0, events).await
    }

    async fn enqueued(&mut self) -> Vec<Event> {
        Outbox::default().enqueued(&mut self.0).await.expect("it reads")
    }

    async fn enqueue_recorded(&mut self, recorded: &mut Recorded) -> Result<Vec<Enqueued>, EnqueueError> {
        Outbox::default()
            .enqueue_recorded(&mut self.0, &mut [recorded])
            .await
    }

    async fn mark(&mut self, consumer: &str, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        Inbox::default().mark_all(&mut self.0, consumer, keys).await
    }

    async fn unmark(&mut self, consumer: &str, keys: &[Key]) -> Result<(), StoreError> {
        Inbox::default().unmark(&mut self.0, consumer, keys).await
    }

    async fn prune(&mut self, consumer: &str, keep: Duration) -> Result<u64, StoreError> {
        Inbox::default().keep(keep).prune(&mut self.0, consumer).await
    }

    async fn savepoint(&mut self) {
        let mark = sqlx::query("savepoint mark").execute(&mut *self.0).await;
        mark.expect("a savepoint");
    }

    async fn rollback_to_savepoint(&mut self) {
        let back = sqlx::query("rollback to mark").execute(&mut *self.0).await;
        back.expect("a way back");
    }

    async fn commit(self: Box<Self>) {
        self.0.commit().await.expect("a commit");
    }

    async fn rollback(self: Box<Self>) {
        self.0.rollback().await.expect("a rollback");
    }
}
