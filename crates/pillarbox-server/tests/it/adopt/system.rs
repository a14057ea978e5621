//! A database with the tables of one system or several, their producers and the daemons that work on them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox_store::stores::postgres::{Options, Postgres};
use serde_json::Value;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::seeds::Seed;
use crate::binary::{Ended, run};
use crate::crash::daemon::{Daemon, print_ends};
use crate::crash::patience::{Turn, Weight, eventually};
use crate::crash::services::{create_database, drop_database, variable};

/// Long enough for a debug build on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// One in so many transactions is rolled back.
const ROLLED_BACK: usize = 5;
/// How many rows are in flight at the most.
pub(super) const IN_FLIGHT: usize = 64;

/// See the module.
pub(super) struct System {
    /// The name of the database, and of whatever else the test has for itself.
    pub(super) name: String,
    pub(super) pool: PgPool,
    url: String,
    /// How long a daemon holds rows, and a table. Long enough for any busy machine, unless the test says otherwise.
    pub(super) lease: Duration,
    /// When the test began, by the database's clock.
    began: OffsetDateTime,
    dir: TempDir,
    daemons: AtomicUsize,
    _turn: Turn,
}

impl System {
    /// A database with these tables, under their own names.
    pub(super) async fn new(weight: Weight, seeds: &[Seed]) -> Self {
        let turn = Turn::take(weight).await;
        rustls::crypto::ring::default_provider().install_default().ok(); // another test may have been first
        let server = variable("PILLARBOX_TEST_POSTGRES_URL");
        let name = format!("adopt_{}", Uuid::new_v4().simple());
        let url = {
            let (server, _) = server.rsplit_once('/').expect("the URL names a database");
            format!("{server}/{name}")
        };
        create_database(&server, &name).await;
        // Whoever takes the server's zone for that of the columns is hours off.
        let mut admin = PgConnection::connect(&server).await.expect("PostgreSQL answers");
        let zone = format!("alter database {name} set timezone to 'America/New_York'");
        let done = sqlx::raw_sql(AssertSqlSafe(zone)).execute(&mut admin).await;
        done.expect("a zone");
        let store = Postgres::new(&url, Options::default()).expect("a URL");
        store.migrate().await.expect("migrates");
        store.close().await;
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .connect_lazy(&url)
            .expect("a URL");
        let began = sqlx::query_scalar("select now()").fetch_one(&pool).await;
        let system = Self {
            name,
            pool,
            url,
            lease: Duration::from_secs(60),
            began: began.expect("the database answers"),
            dir: tempfile::tempdir().expect("a folder"),
            daemons: AtomicUsize::new(0),
            _turn: turn,
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

    /// Runs SQL as anybody else does: in another process.
    pub(super) async fn psql(&self, sql: &str) {
        psql(&self.url, sql).await;
    }

    /// Commits this many rows as the system's own code does, and returns their ids.
    pub(super) async fn produce(&self, seed: Seed, rows: usize) -> Vec<Uuid> {
        self.produce_like(seed, rows, &[]).await
    }

    /// The same with other values.
    pub(super) async fn produce_like(&self, seed: Seed, rows: usize, instead: &[(&str, &str)]) -> Vec<Uuid> {
        produce(&self.url, seed, rows, instead).await
    }

    /// Rows that keep coming until it is told to stop.
    pub(super) fn keep_busy(&self, seed: Seed) -> Load {
        let stop = CancellationToken::new();
        let (url, stopped) = (self.url.clone(), stop.clone());
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
        // Swept often: what a dead daemon held is found soon, however long the leases of the living are.
        let general = format!(
            "[database]\nurl = \"{}\"\n[dispatch]\nlease = \"{}ms\"\ntimeout = \"{}ms\"\npoll_interval = \"100ms\"\n\
             sweep_interval = \"500ms\"\nmax_in_flight = {IN_FLIGHT}\nbatch = {IN_FLIGHT}\n[http]\nlisten = \"127.0.0.1:0\"\n",
            self.url,
            self.lease.as_millis(),
            self.lease.as_millis() / 3,
        );
        std::fs::write(&file, format!("{general}{config}")).expect("the folder can be written to");
        let log = self.dir.path().join(format!("daemon-{number}.log"));
        Daemon::start(&file, log, variables)
    }

    /// Runs a command with the configuration of the last daemon.
    pub(super) fn command(&self, arguments: &[&str]) -> Ended {
        run(self.dir.path(), arguments)
    }

    /// What was committed by the system's own transactions.
    pub(super) async fn committed(&self) -> BTreeSet<Uuid> {
        let ids: Vec<Uuid> = sqlx::query_scalar("select id from public.changes")
            .fetch_all(&self.pool)
            .await
            .expect("the changes are there");
        ids.into_iter().collect()
    }

    /// The system's table: each row as it is.
    pub(super) async fn rows(&self, seed: Seed) -> BTreeMap<Uuid, Value> {
        let sql = format!("select {}, to_jsonb(s) from {} s", seed.id, place(&seed));
        let rows: Vec<(Uuid, Value)> = sqlx::query_as(AssertSqlSafe(sql))
            .fetch_all(&self.pool)
            .await
            .expect("the table is there");
        rows.into_iter().collect()
    }

    /// Changes one row as a person does.
    pub(super) async fn change(&self, seed: Seed, id: Uuid, set: &str) {
        let sql = format!("update {} set {set} where {} = '{id}'", place(&seed), seed.id);
        self.psql(&sql).await;
    }

    /// Waits until the row is so, and returns it.
    pub(super) async fn until(
        &self,
        seed: Seed,
        id: Uuid,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        let look = || async { self.rows(seed).await.remove(&id).filter(&is_so) };
        eventually(&format!("{id} {what}"), PATIENCE, look).await
    }

    /// Waits until every row is so, and returns them all.
    pub(super) async fn until_all(
        &self,
        seed: Seed,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> BTreeMap<Uuid, Value> {
        let look = || async {
            let rows = self.rows(seed).await;
            rows.values().all(&is_so).then_some(rows)
        };
        eventually(&format!("all rows of {} {what}", seed.name), PATIENCE, look).await
    }

    /// What waits for its next attempt is due at once.
    pub(super) async fn hurry(&self) {
        let sql = "update pillarbox.outbox_events set next_attempt_at = now() where status = 'pending'";
        let hurried = sqlx::query(sql).execute(&self.pool).await;
        hurried.expect("the statement runs");
    }

    /// Waits until a statement says yes.
    pub(super) async fn until_true(&self, what: &str, sql: &str) {
        let look = || async { self.is_true(sql).await.then_some(()) };
        eventually(what, PATIENCE, look).await;
    }

    pub(super) async fn is_true(&self, sql: &str) -> bool {
        let said: Option<bool> = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_one(&self.pool)
            .await
            .expect("the statement runs");
        said.unwrap_or_default()
    }

    /// Is this time, with its zone, one of the test's own in every row that has it?
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

    /// Leaves nothing behind. Nothing may be in anybody's hands, and no table may wait to be told.
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
        let server = variable("PILLARBOX_TEST_POSTGRES_URL");
        drop_database(&server, &self.name).await;
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let daemons = 0..self.daemons.load(Ordering::Relaxed);
            print_ends(daemons.map(|number| self.dir.path().join(format!("daemon-{number}.log"))));
        }
    }
}

/// Rows being written in the background.
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

/// The schema that the system's document names, or the one that every database has.
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

/// One process that commits so many rows, each with its business change, and rolls some back between them.
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
