//! Everything one test has for itself, and the reckoning at its end.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox_store::stores::postgres::{Options, Postgres};
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use tempfile::TempDir;
use uuid::Uuid;

use super::broker::Queue;
use super::daemon::{Daemon, print_ends};
use super::patience::{Turn, Weight, eventually};
use super::producer::Producer;
use super::services::{Services, create_database, drop_database};

/// How a daemon of the test is set up.
#[derive(Debug, Clone)]
pub(super) struct Tuning {
    pub(super) lease: Duration,
    pub(super) timeout: Duration,
    pub(super) batch: usize,
    pub(super) in_flight: usize,
    pub(super) concurrency: usize,
    pub(super) max_attempts: u32,
    /// Another way to the broker.
    pub(super) amqp: Option<String>,
    /// Another way to the database.
    pub(super) database: Option<String>,
    /// What else the configuration says: further destinations, and routes.
    pub(super) more: String,
}

impl Tuning {
    /// Short leases: what a dead daemon held comes back within seconds.
    pub(super) fn hasty() -> Self {
        Self {
            lease: Duration::from_secs(3),
            timeout: Duration::from_millis(1500),
            batch: 64,
            in_flight: 128,
            concurrency: 64,
            max_attempts: 25,
            amqp: None,
            database: None,
            more: String::new(),
        }
    }

    /// Leases that no busy machine lets run out, for tests in which nothing may be sent twice.
    pub(super) fn calm() -> Self {
        Self {
            lease: Duration::from_secs(60),
            timeout: Duration::from_secs(20),
            ..Self::hasty()
        }
    }
}

/// A database, a queue and a folder of the test's own.
pub(super) struct World {
    pub(super) pool: PgPool,
    pub(super) queue: Queue,
    pub(super) producer: Producer,
    pub(super) database: String,
    services: Services,
    dir: TempDir,
    daemons: AtomicUsize,
    _turn: Turn,
}

impl World {
    pub(super) async fn new(weight: Weight) -> Self {
        let turn = Turn::take(weight).await;
        Self::on(Services::shared(), turn).await
    }

    pub(super) async fn on(services: Services, turn: Turn) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok(); // another test may have been first
        let name = format!("crash_{}", Uuid::new_v4().simple());
        create_database(&services.postgres, &name).await;
        let database = on_database(&services.postgres, &name);
        let store = Postgres::new(&database, Options::default()).expect("a URL");
        store.migrate().await.expect("migrates");
        let outbox = store.outbox();
        store.close().await;
        let options: PgConnectOptions = database.parse().expect("a URL");
        let pool = PgPoolOptions::new().connect_lazy_with(options.application_name("shop"));
        Self {
            producer: Producer::new(pool.clone(), outbox).await,
            queue: Queue::declare(&services.amqp, &name).await,
            pool,
            database,
            services,
            dir: tempfile::tempdir().expect("a folder"),
            daemons: AtomicUsize::new(0),
            _turn: turn,
        }
    }

    /// The database of this world on another server.
    pub(super) fn database_at(&self, server: &str) -> String {
        on_database(server, &self.queue.name)
    }

    /// The broker as everybody else reaches it.
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
        Daemon::start(&config, self.path(number, "log"), variables)
    }

    /// A folder of the test's own.
    pub(super) fn folder(&self) -> &Path {
        self.dir.path()
    }

    fn path(&self, number: usize, extension: &str) -> PathBuf {
        self.dir.path().join(format!("daemon-{number}.{extension}"))
    }

    fn config(&self, tuning: &Tuning) -> String {
        // Swept often: what a dead daemon held is found soon, however long the leases of the living are.
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
            name = "broker"
            type = "rabbitmq"
            url = "{amqp}"
            exchange = "{exchange}"
            concurrency = {concurrency}
            {more}
            "#,
            database = tuning.database.as_ref().unwrap_or(&self.database),
            lease = tuning.lease.as_millis(),
            timeout = tuning.timeout.as_millis(),
            batch = tuning.batch,
            in_flight = tuning.in_flight,
            max_attempts = tuning.max_attempts,
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

    /// Waits until more than so many rows are in this state.
    pub(super) async fn more_than(&self, rows: i64, status: &str) {
        let look = || async { (self.count(status).await > rows).then_some(()) };
        eventually(
            &format!("more than {rows} rows are {status}"),
            Duration::from_secs(60),
            look,
        )
        .await;
    }

    /// Are all rows delivered or dead?
    pub(super) async fn is_done(&self) -> bool {
        self.count("pending").await + self.count("processing").await == 0
    }

    /// Waits until all rows are delivered or dead.
    pub(super) async fn done(&self) {
        let look = || async { self.is_done().await.then_some(()) };
        eventually("every row is delivered or dead", Duration::from_secs(120), look).await;
    }

    /// Holds what the consumer got against what was committed, and leaves nothing behind. Everything is
    /// delivered except these rows, which are dead and never arrived.
    pub(super) async fn reckon(self, test: &str, dead: &[Uuid]) -> Report {
        let orders: Vec<(Uuid, Value)> = sqlx::query_as("select id, payload from public.orders")
            .fetch_all(&self.pool)
            .await
            .expect("the orders are there");
        let orders: HashMap<Uuid, Value> = orders.into_iter().collect();
        let dead: HashSet<Uuid> = dead.iter().copied().collect();
        let messages = self.queue.read().await;
        let mut arrived = HashSet::new();
        let mut repeated = HashSet::new();
        for message in &messages {
            let order = orders.get(&message.id);
            assert!(
                order.is_some(),
                "{test}: {} was sent and never committed",
                message.id
            );
            assert_eq!(order, Some(&message.payload), "{test}: the payload has changed");
            if !arrived.insert(message.id) {
                repeated.insert(message.id);
            }
        }
        let missing = orders
            .keys()
            .filter(|id| !arrived.contains(*id) && !dead.contains(*id));
        assert_eq!(missing.count(), 0, "{test}: committed events never arrived");
        assert!(arrived.is_disjoint(&dead), "{test}: what is dead has arrived");
        self.check_rows(test, &orders, &dead).await;
        self.check_connections(test).await;
        let report = Report {
            events: orders.len(),
            duplicates: messages.len() - arrived.len(),
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
            .expect("the outbox is there");
        assert_eq!(rows.len(), orders.len(), "{test}: one row for every order");
        for (id, status) in rows {
            let expected = if dead.contains(&id) { "dead" } else { "delivered" };
            assert_eq!(status, expected, "{test}: {id}");
        }
    }

    /// No transaction of a daemon is left open, whether it said goodbye or not.
    async fn check_connections(&self, test: &str) {
        let look = || async {
            let open: i64 = sqlx::query_scalar(
                "select count(*) from pg_stat_activity
                 where datname = current_database() and pid <> pg_backend_pid()
                   and state like 'idle in transaction%'",
            )
            .fetch_one(&self.pool)
            .await
            .expect("the database answers");
            (open == 0).then_some(())
        };
        eventually(
            &format!("{test}: no transaction is left open"),
            Duration::from_secs(60),
            look,
        )
        .await;
    }

    /// Leaves nothing behind.
    pub(super) async fn remove(self) {
        self.queue.delete().await;
        self.pool.close().await;
        drop_database(&self.services.postgres, &self.queue.name).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let daemons = 0..self.daemons.load(Ordering::Relaxed);
            print_ends(daemons.map(|number| self.path(number, "log")));
        }
    }
}

/// What came of a test, in numbers.
pub(super) struct Report {
    pub(super) events: usize,
    pub(super) duplicates: usize,
    pub(super) daemons: usize,
    pub(super) attempts: i32,
    /// What arrived more than once.
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

fn on_database(server: &str, name: &str) -> String {
    let (server, _) = server.rsplit_once('/').expect("the URL names a database");
    format!("{server}/{name}")
}

pub(super) async fn execute(connection: &mut PgConnection, sql: String) {
    let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
    done.expect("the statement runs");
}
