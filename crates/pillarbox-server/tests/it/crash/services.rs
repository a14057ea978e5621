//! Where PostgreSQL and RabbitMQ are: those that all tests share, or some that a test may kill.

use std::time::Duration;

pub(crate) use pillarbox_testkit::Private;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::patience::eventually;

/// A variable that `scripts/test` sets.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set; run the tests by scripts/test, or eval \"$(scripts/services env)\"")
    })
}

/// The addresses of what a world needs.
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

/// A database of a test's own. From the template that nobody is ever in.
pub(crate) async fn create_database(server: &str, name: &str) {
    administer(server, format!("create database {name} template template0")).await;
}

/// Whoever is in it is told to leave.
pub(crate) async fn drop_database(server: &str, name: &str) {
    administer(server, format!("drop database {name} with (force)")).await;
}

async fn administer(server: &str, statement: String) {
    eventually(&statement, Duration::from_secs(60), || async {
        let mut admin = PgConnection::connect(server).await.expect("PostgreSQL answers");
        let done = sqlx::raw_sql(AssertSqlSafe(statement.clone()))
            .execute(&mut admin)
            .await;
        match done {
            // PostgreSQL has waited five seconds for those whom it told to leave.
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("55006") => None,
            done => Some(done.expect("the statement runs")),
        }
    })
    .await;
}
