//! A database with the tables of one or more systems, their producers and the daemons that serve them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox_store::stores::postgres::{Options, Postgres};
use serde_json::Value;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::seeds::Seed;
use crate::command::{Finished, run};
use crate::daemon::Daemon;
use pillarbox_testkit::fixture::Database;
use pillarbox_testkit::process::print_last_lines;
use pillarbox_testkit::wait::{Load as MachineLoad, MachineLock, until, until_some};

/// One in this many transactions is rolled back.
const ROLLED_BACK: usize = 5;
/// At most this many rows are in flight.
pub(super) const IN_FLIGHT: usize = 64;

/// See the module.
pub(super) struct System {
    /// The name of the database and of the queue.
    pub(super) name: String,
    pub(super) pool: PgPool,
    database: Database,
    /// The lease of rows and of the import. Long enough for any busy machine, unless the test changes it.
    pub(super) lease: Duration,
    /// When the test began, by the database's clock.
    began: OffsetDateTime,
    dir: TempDir,
    daemons: AtomicUsize,
    _lock: MachineLock,
}

impl System {
    /// A database with these tables, under their own names.
    pub(super) async fn new(load: MachineLoad, seeds: &[Seed]) -> Self {
        let lock = MachineLock::acquire(load).await;
        rustls::crypto::ring::default_provider().install_default().ok(); // another test may have been first
        let database = Database::create("adopt").await;
        // Code that takes the zone of the session for that of the columns is hours off.
        let zone = format!(
            "alter database {} set timezone to 'America/New_York'",
            database.name
        );
        database.administer(&zone).await;
        let store = Postgres::new(&database.url, Options::default()).expect("a URL");
        store.migrate().await.expect("migrates");
        store.close().await;
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .connect_lazy(&database.url)
            .expect("a URL");
        let began = sqlx::query_scalar("select now()").fetch_one(&pool).await;
        let system = Self {
            name: database.name.clone(),
            pool,
            database,
            lease: Duration::from_secs(60),
            began: began.expect("the database answers"),
            dir: tempfile::tempdir().expect("a folder"),
            daemons: AtomicUsize::new(0),
            _lock: lock,
        };
        let tables = seeds.iter().map(|seed| {
            let schema = schema(seed);
            format!(
                "create schema if not exists {schema}; {};",
                seed.table.replace("{schema}", schema)
            )
        });
        let tables: String = tables.collect();
        system
            .psql(&format!(
                "create table public.changes (id uuid primary key); {tables}"
            ))
            .await;
        system
    }

    /// Runs SQL in another process.
    pub(super) async fn psql(&self, sql: &str) {
        psql(&self.database.url, sql).await;
    }

    /// Commits this many rows as the system's own code does, and returns their ids.
    pub(super) async fn produce(&self, seed: Seed, rows: usize) -> Vec<Uuid> {
        self.produce_like(seed, rows, &[]).await
    }

    /// The same with other values.
    pub(super) async fn produce_like(&self, seed: Seed, rows: usize, instead: &[(&str, &str)]) -> Vec<Uuid> {
        produce(&self.database.url, seed, rows, instead).await
    }

    /// Commits rows in the background.
    pub(super) fn start_load(&self, seed: Seed) -> Load {
        let stop = CancellationToken::new();
        let (url, stopped) = (self.database.url.clone(), stop.clone());
        let task = tokio::spawn(async move {
            while !stopped.is_cancelled() {
                produce(&url, seed, fastrand::usize(1..=20), &[]).await;
            }
        });
        Load { task, stop }
    }

    /// Starts a daemon with a configuration of destinations and tables.
    pub(super) fn start(&self, config: &str) -> Daemon {
        self.start_with(config, &[])
    }

    /// The same with variables in its environment.
    pub(super) fn start_with(&self, config: &str, variables: &[(&str, &str)]) -> Daemon {
        let number = self.daemons.fetch_add(1, Ordering::Relaxed);
        let file = self.dir.path().join("pillarbox.toml");
        // Sweeps often: rows of a daemon that died are found soon, however long other leases are.
        let general = format!(
            "[database]\nurl = \"{}\"\n[dispatch]\nlease = \"{}ms\"\ntimeout = \"{}ms\"\npoll_interval = \"100ms\"\n\
             sweep_interval = \"500ms\"\nmax_in_flight = {IN_FLIGHT}\nbatch = {IN_FLIGHT}\n[http]\nlisten = \"127.0.0.1:0\"\n",
            self.database.url,
            self.lease.as_millis(),
            self.lease.as_millis() / 3,
        );
        std::fs::write(&file, format!("{general}{config}")).expect("the folder can be written to");
        let log = self.dir.path().join(format!("daemon-{number}.log"));
        Daemon::start_with_log(&file, &log, variables)
    }

    /// Runs a command with the configuration of the last daemon.
    pub(super) fn command(&self, arguments: &[&str]) -> Finished {
        run(self.dir.path(), arguments)
    }

    /// The ids that the system's transactions committed.
    pub(super) async fn committed(&self) -> BTreeSet<Uuid> {
        let ids: Vec<Uuid> = sqlx::query_scalar("select id from public.changes")
            .fetch_all(&self.pool)
            .await
            .expect("the changes can be read");
        ids.into_iter().collect()
    }

    /// All rows of the system's table.
    pub(super) async fn rows(&self, seed: Seed) -> BTreeMap<Uuid, Value> {
        let sql = format!("select {}, to_jsonb(s) from {} s", seed.id, place(&seed));
        let rows: Vec<(Uuid, Value)> = sqlx::query_as(AssertSqlSafe(sql))
            .fetch_all(&self.pool)
            .await
            .expect("the table can be read");
        rows.into_iter().collect()
    }

    /// Changes one row as an operator does.
    pub(super) async fn change(&self, seed: Seed, id: Uuid, set: &str) {
        let sql = format!("update {} set {set} where {} = '{id}'", place(&seed), seed.id);
        self.psql(&sql).await;
    }

    /// Waits until the row satisfies the condition, and returns it.
    pub(super) async fn until(
        &self,
        seed: Seed,
        id: Uuid,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        until_some(&format!("{id} {what}"), async || {
            self.rows(seed).await.remove(&id).filter(&is_so)
        })
        .await
    }

    /// Waits until all rows satisfy the condition, and returns them.
    pub(super) async fn until_all(
        &self,
        seed: Seed,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> BTreeMap<Uuid, Value> {
        until_some(&format!("all rows of {} {what}", seed.name), async || {
            let rows = self.rows(seed).await;
            rows.values().all(&is_so).then_some(rows)
        })
        .await
    }

    /// Makes every pending row due at once. Rows that the daemon is writing are left out: waiting for them in another order
    /// than the daemon's would deadlock.
    pub(super) async fn hurry(&self) {
        let sql = "with waiting as materialized (
             select id from pillarbox.outbox_events where status = 'pending' for update skip locked
           )
           update pillarbox.outbox_events e set next_attempt_at = now() from waiting w where e.id = w.id";
        let hurried = sqlx::query(sql).execute(&self.pool).await;
        hurried.expect("the statement runs");
    }

    /// Waits until a query returns true.
    pub(super) async fn until_true(&self, what: &str, sql: &str) {
        until(what, async || self.is_true(sql).await).await;
    }

    pub(super) async fn is_true(&self, sql: &str) -> bool {
        let said: Option<bool> = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_one(&self.pool)
            .await
            .expect("the statement runs");
        said.unwrap_or_default()
    }

    /// Is this time, with its zone, between the start of the test and now in every row that has it?
    pub(super) async fn is_of_now(&self, seed: Seed, time: &str) -> bool {
        let sql = format!(
            "select bool_and({time} between $1 and now()) from {}",
            place(&seed)
        );
        let said: Option<bool> = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(self.began)
            .fetch_one(&self.pool)
            .await
            .expect("the statement runs");
        said.expect("there is such a time")
    }

    /// Drops the database. No row may be in flight, and no write-back may be pending.
    pub(super) async fn remove(self) {
        for open in [
            "pillarbox.outbox_events where status = 'processing'",
            "pillarbox.adopted where write_back_pending",
            "pg_stat_activity where datname = current_database() and state like 'idle in transaction%'",
        ] {
            self.until_true(
                &format!("there is no {open}"),
                &format!("select not exists (select from {open})"),
            )
            .await;
        }
        self.pool.close().await;
        self.database.clone().drop().await;
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let daemons = 0..self.daemons.load(Ordering::Relaxed);
            print_last_lines(daemons.map(|number| self.dir.path().join(format!("daemon-{number}.log"))));
        }
    }
}

/// A task that commits rows in the background.
pub(super) struct Load {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Load {
    /// Returns when the last transaction has ended.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("the producer does not panic");
    }
}

/// The schema that the system's documents name, or `public`.
fn schema(seed: &Seed) -> &'static str {
    match seed.name {
        "arap" => "outbox",
        "family-hub" => "auth",
        _ => "public",
    }
}

/// The table's name, with its schema.
pub(super) fn place(seed: &Seed) -> String {
    seed.place.replace("{schema}", schema(seed))
}

/// One process that commits this many rows, each with its business change, and rolls back others between them.
async fn produce(url: &str, seed: Seed, rows: usize, instead: &[(&str, &str)]) -> Vec<Uuid> {
    let ids: Vec<Uuid> = (0..rows).map(|_| Uuid::now_v7()).collect();
    let insert = instead.iter().fold(
        seed.insert.replace("{schema}", schema(&seed)),
        |insert, (old, new)| {
            assert!(insert.contains(old), "{old} is not in {insert}");
            insert.replace(old, new)
        },
    );
    let mut script = String::new();
    for (n, id) in ids.iter().enumerate() {
        let mut transaction = |id: &Uuid, end: &str| {
            let row = insert.replace("{id}", &id.to_string());
            script.push_str(&format!(
                "begin; insert into public.changes values ('{id}'); {row}; {end};\n"
            ));
        };
        transaction(id, "commit");
        if n % ROLLED_BACK == 0 {
            transaction(&Uuid::now_v7(), "rollback");
        }
    }
    psql(url, &script).await;
    ids
}

async fn psql(url: &str, sql: &str) {
    let mut child = Command::new("psql")
        .args([
            "--no-psqlrc",
            "--quiet",
            "--set",
            "ON_ERROR_STOP=1",
            "--dbname",
            url,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("psql runs; scripts/services installs it");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(sql.as_bytes()).await.expect("it reads");
    drop(input);
    let output = child.wait_with_output().await.expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "psql: {errors}");
}
