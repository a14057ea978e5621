//! What a test has for itself: a database.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::environment::{authority, unique_identifier, variable};
use crate::wait::until_some;

/// A PostgreSQL database that no other test uses.
#[derive(Debug, Clone)]
pub struct Database {
    /// Its name.
    pub name: String,
    /// Its URL.
    pub url: String,
    /// The URL of the server, as a superuser.
    pub server: String,
}

impl Database {
    /// Creates one on the server of `PILLARBOX_TEST_POSTGRES_URL`. The name begins with `prefix`.
    ///
    /// # Panics
    /// If the server does not answer.
    pub async fn create(prefix: &str) -> Self {
        Self::create_on(&variable("PILLARBOX_TEST_POSTGRES_URL"), prefix).await
    }

    /// Creates one on this server.
    ///
    /// # Panics
    /// If the server does not answer.
    pub async fn create_on(server: &str, prefix: &str) -> Self {
        let name = unique_identifier(prefix);
        // No session is ever connected to template0, which would block this.
        execute(server, &format!("create database {name} template template0")).await;
        Self {
            url: with_database(server, &name),
            server: server.to_owned(),
            name,
        }
    }

    /// `host:port` of the server.
    pub fn address(&self) -> &str {
        authority(&self.url)
    }

    /// The same database by another address, such as a connection pooler.
    pub fn url_on(&self, server: &str) -> String {
        with_database(server, &self.name)
    }

    /// Runs a statement on the server, outside of this database.
    ///
    /// # Panics
    /// If it fails.
    pub async fn administer(&self, statement: &str) {
        execute(&self.server, statement).await;
    }

    /// Drops it, and ends the sessions in it.
    ///
    /// # Panics
    /// If a session does not end.
    pub async fn drop(self) {
        let statement = format!("drop database {} with (force)", self.name);
        execute(&self.server, &statement).await;
    }
}

fn with_database(server: &str, name: &str) -> String {
    let (server, _) = server.rsplit_once('/').expect("the URL names a database");
    format!("{server}/{name}")
}

async fn execute(server: &str, statement: &str) {
    until_some(statement, async || {
        let mut connection = PgConnection::connect(server).await.expect("PostgreSQL answers");
        let done = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut connection)
            .await;
        match done {
            // PostgreSQL has waited five seconds for the sessions to end.
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("55006") => None,
            done => Some(done.unwrap_or_else(|error| panic!("{statement}: {error}"))),
        }
    })
    .await;
}
