//! A schema for every test.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox::Connection;
use pillarbox::inbox::Inbox;
use pillarbox::inbox::Key;
use pillarbox::{EnqueueError, Enqueued, Event, Outbox, Recorded, StoreError};
use pillarbox_store::stores::postgres::{Options, Postgres};
use pillarbox_store::{Operate, Store};
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::store_suite::{Capability, Corruption, Harness, Skipped, Tx};
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

pub(crate) struct PostgresHarness {
    pub(crate) store: Postgres,
    /// Past any pooler, for what the store must not see.
    pub(crate) pool: PgPool,
}

impl PostgresHarness {
    pub(crate) async fn direct() -> Self {
        Self::at(&variable("PILLARBOX_TEST_POSTGRES_URL")).await
    }

    pub(super) async fn behind_pgbouncer() -> Self {
        Self::at(&variable("PILLARBOX_TEST_PGBOUNCER_URL")).await
    }

    pub(super) async fn at(url: &str) -> Self {
        let store = unmigrated(url);
        store.migrate().await.expect("migrates");
        let options = variable("PILLARBOX_TEST_POSTGRES_URL").parse().expect("a URL");
        let pool = sqlx::postgres::PgPoolOptions::new()
            .max_connections(6)
            .connect_lazy_with(options);
        Self { store, pool }
    }

    /// Another program on the same outbox.
    pub(super) fn beside(&self) -> Postgres {
        let options = Options {
            schema: self.store.schema().to_owned(),
            ..Options::default()
        };
        Postgres::new(&variable("PILLARBOX_TEST_POSTGRES_URL"), options).expect("a sound URL")
    }

    /// The same with a store of its own, as in another program.
    pub(super) fn beside_harness(&self) -> Self {
        Self {
            store: self.beside(),
            pool: self.pool.clone(),
        }
    }

    pub(super) fn outbox(&self) -> Outbox {
        self.store.outbox()
    }

    /// Runs SQL that is written for the schema `pillarbox`.
    pub(crate) async fn execute(&self, sql: &str) -> u64 {
        let sql = self.sql(sql);
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.pool).await;
        done.expect("the statement runs").rows_affected()
    }

    /// Drops the table's constraints on values, as an operator might have.
    pub(super) async fn drop_constraints(&self) {
        self.execute(
            "alter table pillarbox.outbox_events drop constraint if exists attempts_are_counted,
               drop constraint if exists times_are_in_the_years_1_to_9999,
               drop constraint if exists names_have_at_most_1024_bytes,
               drop constraint if exists headers_have_at_most_64_kib,
               drop constraint if exists payload_is_within_max_payload",
        )
        .await;
    }

    pub(super) fn sql(&self, sql: &str) -> String {
        sql.replace("pillarbox.", &format!("{}.", self.store.schema()))
    }
}

/// A store on a schema that does not exist.
pub(super) fn unmigrated(url: &str) -> Postgres {
    let schema = format!("t_{}", Uuid::new_v4().simple());
    Postgres::new(
        url,
        Options {
            schema,
            max_connections: 6,
            // A machine that stands still for a while proves nothing.
            timeout: Duration::from_secs(120),
        },
    )
    .expect("a sound URL")
}

#[async_trait]
impl Harness for PostgresHarness {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn operate(&self) -> Arc<dyn Operate> {
        Arc::new(self.store.clone())
    }

    async fn begin(&self) -> Box<dyn Tx> {
        Box::new(Open {
            outbox: self.outbox(),
            session: self.pool.begin().await.expect("begins"),
        })
    }

    async fn age(&self, by: time::Duration) {
        let seconds = by.as_seconds_f64();
        self.execute(&format!(
            "update pillarbox.outbox_events set
               created_at = created_at - make_interval(secs => {seconds}),
               updated_at = updated_at - make_interval(secs => {seconds}),
               next_attempt_at = next_attempt_at - make_interval(secs => {seconds}),
               locked_until = locked_until - make_interval(secs => {seconds}),
               delivered_at = delivered_at - make_interval(secs => {seconds});
             update pillarbox.leases set
               until = until - make_interval(secs => {seconds}),
               updated_at = updated_at - make_interval(secs => {seconds});
             update pillarbox.lane_ranges set leased_until = leased_until - make_interval(secs => {seconds});
             update pillarbox.workers set
               started_at = started_at - make_interval(secs => {seconds}),
               seen_at = seen_at - make_interval(secs => {seconds}),
               alive_until = alive_until - make_interval(secs => {seconds});
             update pillarbox.inbox set handled_at = handled_at - make_interval(secs => {seconds});
             update pillarbox.destinations set paused_at = paused_at - make_interval(secs => {seconds})"
        ))
        .await;
    }

    fn can(&self, what: Capability) -> Result<(), Skipped> {
        match what {
            Capability::ConcurrentTransactions
            | Capability::EnqueueWaitsForRivals
            | Capability::Savepoints
            | Capability::Outbox
            | Capability::ManyRanges
            | Capability::Field(_)
            | Capability::Checks
            | Capability::OwnTable
            | Capability::OpenLimit
            | Capability::Archive
            | Capability::Corrupt(_) => Ok(()),
            Capability::ExactFind => Err(Skipped(
                "PostgreSQL also finds keys whose lane another worker holds",
            )),
        }
    }

    async fn corrupt(&self, id: Uuid, corruption: Corruption) {
        self.drop_constraints().await;
        let set = match corruption {
            Corruption::Status(status) => format!("status = '{status}'"),
            Corruption::NegativeAttempts => "attempts = -3".to_owned(),
            Corruption::LeaseWithoutEnd => {
                "locked_by = null, locked_until = null, claim_id = null".to_owned()
            }
            Corruption::ForeignHeaders => {
                r#"headers = '{"text": "a", "number": 1, "flag": true, "list": [1], "nothing": null}'"#
                    .to_owned()
            }
            Corruption::ImpossibleTime => "created_at = 'infinity'".to_owned(),
        };
        let changed = self
            .execute(&format!(
                "update pillarbox.outbox_events set {set} where id = '{id}'"
            ))
            .await;
        assert_eq!(changed, 1, "the row is there");
    }

    async fn clean_up(&self) {
        let drop = format!("drop schema {} cascade", self.store.schema());
        sqlx::raw_sql(AssertSqlSafe(drop))
            .execute(&self.pool)
            .await
            .expect("drops");
        self.store.close().await;
    }
}

/// A transaction of some library.
#[async_trait]
pub(super) trait Session: Connection + Sized + 'static {
    /// Runs a statement in it.
    async fn say(&mut self, sql: &'static str);

    async fn commit(mut self) {
        self.say("commit").await;
    }

    async fn rollback(mut self) {
        self.say("rollback").await;
    }
}

#[async_trait]
impl Session for sqlx::Transaction<'static, sqlx::Postgres> {
    async fn say(&mut self, sql: &'static str) {
        let done = sqlx::raw_sql(sql).execute(&mut **self).await;
        done.expect("the statement runs");
    }

    async fn commit(self) {
        sqlx::Transaction::commit(self).await.expect("commits");
    }

    async fn rollback(self) {
        sqlx::Transaction::rollback(self).await.expect("rolls back");
    }
}

/// An application's transaction, whatever library it is from.
pub(super) struct Open<S> {
    pub(super) outbox: Outbox,
    pub(super) session: S,
}

impl<S> Open<S> {
    fn inbox(&self) -> Inbox {
        Inbox::in_schema(self.outbox.schema()).expect("a sound name")
    }
}

#[async_trait]
impl<S: Session> Tx for Open<S> {
    async fn enqueue(&mut self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        match events {
            [event] => Ok(vec![self.outbox.enqueue(&mut self.session, event).await?]),
            events => self.outbox.enqueue_all(&mut self.session, events).await,
        }
    }

    async fn enqueued(&mut self) -> Vec<Event> {
        let seen = self.outbox.enqueued(&mut self.session).await;
        seen.expect("it reads")
    }

    async fn enqueue_recorded(&mut self, recorded: &mut Recorded) -> Result<Vec<Enqueued>, EnqueueError> {
        self.outbox
            .enqueue_recorded(&mut self.session, &mut [recorded])
            .await
    }

    async fn mark(&mut self, consumer: &str, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        self.inbox().mark_all(&mut self.session, consumer, keys).await
    }

    async fn unmark(&mut self, consumer: &str, keys: &[Key]) -> Result<(), StoreError> {
        self.inbox().unmark(&mut self.session, consumer, keys).await
    }

    async fn prune(&mut self, consumer: &str, keep: Duration) -> Result<u64, StoreError> {
        self.inbox().keep(keep).prune(&mut self.session, consumer).await
    }

    async fn savepoint(&mut self) {
        self.session.say("savepoint mark").await;
    }

    async fn rollback_to_savepoint(&mut self) {
        self.session.say("rollback to mark").await;
    }

    async fn commit(self: Box<Self>) {
        self.session.commit().await;
    }

    async fn rollback(self: Box<Self>) {
        self.session.rollback().await;
    }
}
