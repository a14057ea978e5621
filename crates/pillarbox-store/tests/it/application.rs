//! An application with its own pool, on a database with an outbox.

use pillarbox::Outbox;
use pillarbox::Transaction;
use pillarbox_store::stores::postgres::{Options, Postgres};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use pillarbox_testkit::environment::variable;

/// What every application needs of a database, each with its own types.
pub(crate) trait Application {
    type Transaction: Transaction;

    fn outbox(&self) -> Outbox;
    async fn begin(&self) -> Self::Transaction;
}

#[derive(Clone)]
pub(crate) struct OnPostgres {
    pub(crate) store: Postgres,
    pub(crate) pool: PgPool,
}

impl OnPostgres {
    /// What is in this schema already.
    pub(crate) fn existing(schema: &str) -> Self {
        let url = variable("PILLARBOX_TEST_POSTGRES_URL");
        let options = Options {
            schema: schema.to_owned(),
            ..Options::default()
        };
        let store = Postgres::new(&url, options).expect("a URL");
        let pool = PgPool::connect_lazy(&url).expect("a URL");
        Self { store, pool }
    }

    /// SQL that is written for the schema `pillarbox`.
    pub(crate) fn sql(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(sql.replace("pillarbox.", &format!("{}.", self.store.schema())))
    }
}

impl Application for OnPostgres {
    type Transaction = sqlx::Transaction<'static, sqlx::Postgres>;

    fn outbox(&self) -> Outbox {
        self.store.outbox()
    }

    async fn begin(&self) -> Self::Transaction {
        self.pool.begin().await.expect("begins")
    }
}

pub(crate) struct OnSqlite {
    pub(crate) pool: SqlitePool,
    /// What the schema `pillarbox` is in a file: the beginning of a name.
    pub(crate) prefix: &'static str,
}

impl OnSqlite {
    /// SQL that is written for the schema `pillarbox`.
    pub(crate) fn sql(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(sql.replace("pillarbox.", self.prefix))
    }
}

impl Application for OnSqlite {
    type Transaction = sqlx::Transaction<'static, sqlx::Sqlite>;

    fn outbox(&self) -> Outbox {
        Outbox::default()
    }

    async fn begin(&self) -> Self::Transaction {
        pillarbox::sqlite::begin(&self.pool).await.expect("begins")
    }
}
