//! A database of its own, for a test that a schema of its own does not keep apart from others.

use sqlx::{AssertSqlSafe, PgPool};

use super::harness::{address, service};
use crate::patience::eventually;

pub(crate) struct OwnDatabase {
    /// Connections to the server, not to this database.
    pub(crate) admin: PgPool,
    pub(crate) name: String,
    pub(crate) url: String,
}

impl OwnDatabase {
    pub(crate) async fn create(what_for: &str) -> Self {
        let server = service("PILLARBOX_TEST_POSTGRES_URL");
        let name = format!("{what_for}_{}", uuid::Uuid::new_v4().simple());
        let admin = PgPool::connect_lazy(&server).expect("a URL");
        // From the template that nobody is ever in.
        let create = format!("create database {name} template template0");
        let created = sqlx::raw_sql(AssertSqlSafe(create)).execute(&admin).await;
        created.expect("a database");
        let (place, _) = server.rsplit_once('/').expect("a URL with a database");
        let url = format!("{place}/{name}");
        Self { admin, name, url }
    }

    /// Host and port of the server.
    pub(crate) fn address(&self) -> &str {
        address(&self.url)
    }

    /// Whoever is in it is told to leave.
    pub(crate) async fn remove(self) {
        let drop = format!("drop database {} with (force)", self.name);
        eventually("nobody is in the database", async || {
            let done = sqlx::raw_sql(AssertSqlSafe(drop.clone()))
                .execute(&self.admin)
                .await;
            match done {
                // PostgreSQL has waited five seconds for those whom it told to leave.
                Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("55006") => None,
                done => Some(done.expect("the database goes")),
            }
        })
        .await;
    }
}
