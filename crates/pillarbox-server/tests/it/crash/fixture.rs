//! The database, queue and daemons of one test, and the check at its end.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox_store::stores::postgres::{Options, Postgres};
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::fixture::Database;
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use tempfile::TempDir;
use uuid::Uuid;

use super::producer::Producer;
use super::queue::Queue;
use crate::daemon::Daemon;
use pillarbox_testkit::process::print_last_lines;
use pillarbox_testkit::wait::{Load, MachineLock, until, until_within};

/// The addresses of the services that a fixture uses.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    pub(crate) postgres: String,
    pub(crate) amqp: String,
}

impl Services {
    pub(crate) fn shared() -> Self {
        Self {
            postgres: variable("PILLARBOX_TEST_POSTGRES_URL"),
            amqp: variable("PILLARBOX_TEST_AMQP_URL"),
        }
    }
}

/// The settings of a daemon.
#[derive(Debug, Clone)]
pub(super) struct Tuning {
    pub(super) lease: Duration,
    pub(super) timeout: Duration,
    pub(super) batch: usize,
    pub(super) in_flight: usize,
    pub(super) concurrency: usize,
    pub(super) max_attempts: u32,
    /// The name of the destination.
    pub(super) destination: &'static str,
    /// Another address of the broker.
    pub(super) amqp: Option<String>,
    /// Another address of the database.
    pub(super) database: Option<String>,
    /// More configuration: destinations and routes.
    pub(super) more: String,
}

impl Tuning {
    /// Short leases: rows in flight in a daemon that died are claimed again within seconds.
    pub(super) fn short_leases() -> Self {
        Self {
            lease: Duration::from_secs(3),
            timeout: Duration::from_millis(1500),
            batch: 64,
            in_flight: 128,
            concurrency: 64,
            max_attempts: 25,
            destination: "broker",
            amqp: None,
            database: None,
            more: String::new(),
        }
    }

    /// Leases that never expire, even on a busy machine, for tests without duplicates.
    pub(super) fn long_leases() -> Self {
        Self {
            lease: Duration::from_secs(60),
            timeout: Duration::from_secs(20),
            ..Self::short_leases()
        }
    }
}

/// A database, a queue and a folder that no other test uses.
pub(super) struct Fixture {
    pub(super) pool: PgPool,
    pub(super) queue: Queue,
    pub(super) producer: Producer,
    pub(super) database: Database,
    services: Services,
    dir: TempDir,
    daemons: AtomicUsize,
    _lock: MachineLock,
}

impl Fixture {
    pub(super) async fn new(weight: Load) -> Self {
        let lock = MachineLock::acquire(weight).await;
        Self::on(Services::shared(), lock).await
    }

    pub(super) async fn on(services: Services, lock: MachineLock) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok(); // another test may have been first
        let database = Database::create_on(&services.postgres, "crash").await;
        let store = Postgres::new(&database.url, Options::default()).expect("a URL");
        store.migrate().await.expect("migrates");
        let outbox = store.outbox();
        store.close().await;
        let options: PgConnectOptions = database.url.parse().expect("a URL");
        let pool = PgPoolOptions::new().connect_lazy_with(options.application_name("shop"));
        Self {
            producer: Producer::new(pool.clone(), outbox).await,
            queue: Queue::declare(&services.amqp, &database.name).await,
            pool,
            database,
            services,
            dir: tempfile::tempdir().expect("a folder"),
            daemons: AtomicUsize::new(0),
            _lock: lock,
        }
    }

    /// The address of the broker.
    pub(super) fn amqp(&self) -> &str {
        &self.services.amqp
    }

    pub(super) fn start(&self, tuning: &Tuning) -> Daemon {
        self.start_with(tuning, &[])
    }

    /// Starts a daemon with variables in its environment.
    pub(super) fn start_with(&self, tuning: &Tuning, variables: &[(&str, &str)]) -> Daemon {
        let number = self.daemons.fetch_add(1, Ordering::Relaxed);
        let config = self.path(number, "toml");
        std::fs::write(&config, self.config(tuning)).expect("the folder can be written to");
        Daemon::start_with_log(&config, &self.path(number, "log"), variables)
    }

    /// A folder that no other test uses.
    pub(super) fn folder(&self) -> &Path {
        self.dir.path()
    }

    fn path(&self, number: usize, extension: &str) -> PathBuf {
        self.dir.path().join(format!("daemon-{number}.{extension}"))
    }

    fn config(&self, tuning: &Tuning) -> String {
        // Sweeps often: rows of a daemon that died are found soon, however long other leases are.
        format!(
            r#"
            [database]
            url = "{database}"
            [dispatch]
            lease = "{lease}ms"
            timeout = "{timeout}ms"
            poll_interval = "100ms"
            sweep_interval = "500ms"
            batch = {batch}
            max_in_flight = {in_flight}
            max_bytes = "64MiB"
            [retry]
            base = "100ms"
            max = "1s"
            max_attempts = {max_attempts}
            [http]
            listen = "127.0.0.1:0"
            [[destination]]
            name = "{destination}"
            type = "rabbitmq"
            url = "{amqp}"
            exchange = "{exchange}"
            concurrency = {concurrency}
            {more}
            "#,
            database = tuning.database.as_ref().unwrap_or(&self.database.url),
            lease = tuning.lease.as_millis(),
            timeout = tuning.timeout.as_millis(),
            batch = tuning.batch,
            in_flight = tuning.in_flight,
            max_attempts = tuning.max_attempts,
            destination = tuning.destination,
            amqp = tuning.amqp.as_ref().unwrap_or(&self.services.amqp),
            exchange = self.queue.name,
            concurrency = tuning.concurrency,
            more = tuning.more,
        )
    }

    /// How many rows are in this state.
    pub(super) async fn count(&self, status: &str) -> i64 {
        sqlx::query_scalar("select count(*) from pillarbox.outbox_events where status = $1")
            .bind(status)
            .fetch_one(&self.pool)
            .await
            .expect("the database answers")
    }

    /// Which rows are in this state.
    pub(super) async fn ids(&self, status: &str) -> HashSet<Uuid> {
        let ids: Vec<Uuid> = sqlx::query_scalar("select id from pillarbox.outbox_events where status = $1")
            .bind(status)
            .fetch_all(&self.pool)
            .await
            .expect("the database answers");
        ids.into_iter().collect()
    }

    /// How many attempts the row with the most has had.
    pub(super) async fn most_attempts(&self) -> i32 {
        sqlx::query_scalar("select coalesce(max(attempts), 0) from pillarbox.outbox_events")
            .fetch_one(&self.pool)
            .await
            .expect("the database answers")
    }

    /// Waits until more than this many rows are in this state.
    pub(super) async fn until_more_than(&self, rows: i64, status: &str) {
        until(&format!("more than {rows} rows are {status}"), async || {
            self.count(status).await > rows
        })
        .await;
    }

    /// Are all rows delivered or dead?
    pub(super) async fn is_done(&self) -> bool {
        self.count("pending").await + self.count("processing").await == 0
    }

    /// Waits until all rows are delivered or dead.
    pub(super) async fn until_done(&self) {
        until_within(
            Duration::from_secs(120),
            "every row is delivered or dead",
            async || self.is_done().await,
        )
        .await;
    }

    /// Compares the messages in the queue with the committed orders, and removes the fixture. Every row is delivered, except
    /// for those in `dead`, which are dead and were never received.
    pub(super) async fn check_ledger(self, test: &str, dead: &[Uuid]) -> Report {
        let dead: HashSet<Uuid> = dead.iter().copied().collect();
        let orders = self.orders().await;
        self.check_rows(test, &orders, &dead).await;
        self.check_messages(test, &orders, &dead).await
    }

    /// The same where rows are deleted when they are delivered: none is left.
    pub(super) async fn check_ledger_of_deleted_rows(self, test: &str) -> Report {
        let orders = self.orders().await;
        let left = self.left().await;
        assert!(left.is_empty(), "{test}: {left:?} are left");
        self.check_messages(test, &orders, &HashSet::new()).await
    }

    /// Which rows are in the outbox.
    pub(super) async fn left(&self) -> HashSet<Uuid> {
        let ids: Vec<Uuid> = sqlx::query_scalar("select id from pillarbox.outbox_events")
            .fetch_all(&self.pool)
            .await
            .expect("the outbox can be read");
        ids.into_iter().collect()
    }

    /// The committed orders, by the id of their event.
    pub(super) async fn orders(&self) -> HashMap<Uuid, Value> {
        let orders: Vec<(Uuid, Value)> = sqlx::query_as("select id, payload from public.orders")
            .fetch_all(&self.pool)
            .await
            .expect("the orders can be read");
        orders.into_iter().collect()
    }

    async fn check_messages(self, test: &str, orders: &HashMap<Uuid, Value>, dead: &HashSet<Uuid>) -> Report {
        let messages = self.queue.read().await;
        let mut received = HashSet::new();
        let mut repeated = HashSet::new();
        for message in &messages {
            let order = orders.get(&message.id);
            assert!(
                order.is_some(),
                "{test}: {} was sent and never committed",
                message.id
            );
            assert_eq!(order, Some(&message.payload), "{test}: the payload has changed");
            if !received.insert(message.id) {
                repeated.insert(message.id);
            }
        }
        let missing = orders
            .keys()
            .filter(|id| !received.contains(*id) && !dead.contains(*id));
        assert_eq!(missing.count(), 0, "{test}: committed events were never received");
        assert!(received.is_disjoint(dead), "{test}: a dead event was received");
        self.check_connections(test).await;
        let report = Report {
            events: orders.len(),
            duplicates: messages.len() - received.len(),
            daemons: self.daemons.load(Ordering::Relaxed),
            attempts: self.most_attempts().await,
            repeated,
        };
        println!("{test}: {report}");
        self.remove().await;
        report
    }

    async fn check_rows(&self, test: &str, orders: &HashMap<Uuid, Value>, dead: &HashSet<Uuid>) {
        let rows: Vec<(Uuid, String)> = sqlx::query_as("select id, status from pillarbox.outbox_events")
            .fetch_all(&self.pool)
            .await
            .expect("the outbox can be read");
        assert_eq!(rows.len(), orders.len(), "{test}: every order has one row");
        for (id, status) in rows {
            let expected = if dead.contains(&id) { "dead" } else { "delivered" };
            assert_eq!(status, expected, "{test}: {id}");
        }
    }

    /// No transaction of a daemon stays open, whether it was stopped or killed.
    async fn check_connections(&self, test: &str) {
        until(&format!("{test}: no transaction is open"), async || {
            let open: i64 = sqlx::query_scalar(
                "select count(*) from pg_stat_activity
                 where datname = current_database() and pid <> pg_backend_pid()
                   and state like 'idle in transaction%'",
            )
            .fetch_one(&self.pool)
            .await
            .expect("the database answers");
            open == 0
        })
        .await;
    }

    /// Removes the queue and the database.
    pub(super) async fn remove(self) {
        self.queue.delete().await;
        self.pool.close().await;
        self.database.clone().drop().await;
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let daemons = 0..self.daemons.load(Ordering::Relaxed);
            print_last_lines(daemons.map(|number| self.path(number, "log")));
        }
    }
}

/// The numbers of a test.
pub(super) struct Report {
    pub(super) events: usize,
    pub(super) duplicates: usize,
    pub(super) daemons: usize,
    pub(super) attempts: i32,
    /// Events that were received more than once.
    pub(super) repeated: HashSet<Uuid>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            events,
            duplicates,
            daemons,
            attempts,
            ..
        } = self;
        write!(
            f,
            "{events} events, {duplicates} duplicates, {daemons} daemons, at most {attempts} attempts"
        )
    }
}

pub(super) async fn execute(connection: &mut PgConnection, sql: String) {
    let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
    done.expect("the statement runs");
}
