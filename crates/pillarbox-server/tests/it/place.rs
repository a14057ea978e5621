//! A folder with a configuration and an outbox of the test's own, on SQLite or on PostgreSQL.

use std::path::Path;
use std::process::Command;

use sqlx::Connection;

use crate::binary::{Daemon, Ended, pillarbox, run};

/// Where PostgreSQL is.
pub(crate) fn url() -> String {
    std::env::var("PILLARBOX_TEST_POSTGRES_URL")
        .expect("PILLARBOX_TEST_POSTGRES_URL is not set: run scripts/test, or `eval \"$(scripts/services env)\"` first")
}

/// A folder with a configuration, and an outbox that nobody else has.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    server: Option<Server>,
}

/// A schema on a PostgreSQL server.
struct Server {
    url: String,
    schema: String,
}

impl Place {
    /// On a SQLite file.
    pub(crate) fn sqlite(config: &str) -> Self {
        Self::new(None, config)
    }

    /// On PostgreSQL.
    pub(crate) fn postgres(config: &str) -> Self {
        let schema = format!("server_{}", uuid::Uuid::new_v4().simple());
        Self::new(Some(Server { url: url(), schema }), config)
    }

    fn new(server: Option<Server>, config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder, server };
        place.configure(config);
        place
    }

    /// Writes the configuration anew: the database, and this.
    pub(crate) fn configure(&self, config: &str) {
        let database = match &self.server {
            Some(Server { url, schema }) => {
                format!("[database]\nurl = \"{url}\"\nschema = \"{schema}\"\n")
            }
            None => "[database]\nurl = \"outbox.db\"\n".to_owned(),
        };
        self.write(&format!("{database}{config}"));
    }

    /// Writes the configuration anew, all of it.
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

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        run(self.path(), arguments)
    }

    /// Puts an event into the outbox; its id.
    pub(crate) fn enqueue(&self, arguments: &[&str]) -> String {
        let mut all = vec!["enqueue"];
        all.extend(arguments);
        let printed = self.run(&all).good();
        printed.split(' ').next().expect("an id").to_owned()
    }

    /// What a command prints as JSON, line by line.
    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<serde_json::Value> {
        let mut all = arguments.to_vec();
        all.push("--json");
        let printed = self.run(&all).good();
        let lines = printed.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("one JSON object per line")
    }

    pub(crate) fn daemon(&self, arguments: &[&str]) -> Daemon {
        Daemon::start(self.command(arguments))
    }

    /// A daemon that made its outbox and is ready.
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

    /// Runs SQL on PostgreSQL, with the schema's name for the word SCHEMA.
    pub(crate) fn sql(&self, sql: &str) {
        let sql = sql.replace("SCHEMA", self.schema());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut connection = sqlx::PgConnection::connect(&self.server().url)
                .await
                .expect("PostgreSQL is there");
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
                .execute(&mut connection)
                .await
                .expect("good SQL");
            connection.close().await.unwrap();
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.sql("drop schema if exists SCHEMA cascade");
        }
    }
}

/// Each of these tests once on SQLite and once on PostgreSQL.
macro_rules! on_both_stores {
    ($($test:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[test] fn $test() { super::$test(crate::place::Place::sqlite); })+
        }
        mod on_postgres {
            $(#[test] fn $test() { super::$test(crate::place::Place::postgres); })+
        }
    };
}
pub(crate) use on_both_stores;
