//! A folder with a configuration and an outbox for one test, on SQLite or on PostgreSQL.

use std::path::Path;
use std::process::Command;

use pillarbox_testkit::environment::{unique_identifier, variable};
use sqlx::Connection;

use crate::command::{Finished, pillarbox, run};
use crate::daemon::Daemon;

/// The URL of PostgreSQL.
pub(crate) fn postgres_url() -> String {
    variable("PILLARBOX_TEST_POSTGRES_URL")
}

/// A folder with a configuration, and an outbox that no other test uses.
pub(crate) struct Fixture {
    folder: tempfile::TempDir,
    server: Option<Server>,
}

/// A schema on a PostgreSQL server.
struct Server {
    url: String,
    schema: String,
}

impl Fixture {
    /// On a SQLite file.
    pub(crate) fn sqlite(config: &str) -> Self {
        Self::new(None, config)
    }

    /// On PostgreSQL.
    pub(crate) fn postgres(config: &str) -> Self {
        let schema = unique_identifier("server");
        Self::new(
            Some(Server {
                url: postgres_url(),
                schema,
            }),
            config,
        )
    }

    fn new(server: Option<Server>, config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fixture = Self { folder, server };
        fixture.configure(config);
        fixture
    }

    /// Replaces the configuration by the database and this.
    pub(crate) fn configure(&self, config: &str) {
        let database = match &self.server {
            Some(Server { url, schema }) => {
                format!("[database]\nurl = \"{url}\"\nschema = \"{schema}\"\n")
            }
            None => "[database]\nurl = \"outbox.db\"\n".to_owned(),
        };
        self.write(&format!("{database}{config}"));
    }

    /// Replaces the whole configuration.
    pub(crate) fn write(&self, config: &str) {
        std::fs::write(self.path().join("pillarbox.toml"), config).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.server.is_some()
    }

    /// The schema on PostgreSQL.
    pub(crate) fn schema(&self) -> &str {
        &self.server().schema
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("on PostgreSQL")
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Finished {
        run(self.path(), arguments)
    }

    /// Enqueues an event, and returns its id.
    pub(crate) fn enqueue(&self, arguments: &[&str]) -> String {
        let mut all = vec!["enqueue"];
        all.extend(arguments);
        let printed = self.run(&all).success();
        printed.split(' ').next().expect("an id").to_owned()
    }

    /// The JSON that a command prints, one value per line.
    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<serde_json::Value> {
        let mut all = arguments.to_vec();
        all.push("--json");
        let printed = self.run(&all).success();
        let lines = printed.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("one JSON object per line")
    }

    pub(crate) fn daemon(&self, arguments: &[&str]) -> Daemon {
        Daemon::start(self.command(arguments))
    }

    /// A daemon that has migrated and is ready.
    pub(crate) fn ready(&self) -> Daemon {
        let daemon = self.daemon(&["--migrate"]);
        daemon.wait_until_ready();
        daemon
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut all = vec!["run", "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        pillarbox(self.path(), &all)
    }

    /// Runs SQL on PostgreSQL. SCHEMA stands for the schema.
    pub(crate) fn sql(&self, sql: &str) {
        let sql = sql.replace("SCHEMA", self.schema());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut connection = sqlx::PgConnection::connect(&self.server().url)
                .await
                .expect("PostgreSQL answers");
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
                .execute(&mut connection)
                .await
                .expect("the SQL is valid");
            connection.close().await.unwrap();
        });
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.sql("drop schema if exists SCHEMA cascade");
        }
    }
}

/// Runs each of these tests on SQLite and on PostgreSQL.
macro_rules! on_both_stores {
    ($($test:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[test] fn $test() { super::$test(crate::fixture::Fixture::sqlite); })+
        }
        mod on_postgres {
            $(#[test] fn $test() { super::$test(crate::fixture::Fixture::postgres); })+
        }
    };
}
pub(crate) use on_both_stores;
