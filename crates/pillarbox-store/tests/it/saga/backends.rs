//! Databases with sagas, each used by another library, and a macro that runs a case on all of them.

use std::sync::Arc;

use pillarbox::Connection;
use pillarbox::Outbox;
use pillarbox_store::Operate;
use pillarbox_testkit::store_suite::Harness;
use sqlx::AssertSqlSafe;

use crate::postgres::PostgresHarness;
use crate::sqlite::{SqliteHarness, pool};
use pillarbox_testkit::environment::variable;

/// An empty database, and a library that begins transactions.
pub(super) trait Backend: Send + Sync + Sized + 'static {
    type Tx: Connection;

    async fn fresh() -> Self;
    fn outbox(&self) -> Outbox;
    fn operate(&self) -> Arc<dyn Operate>;
    fn begin(&self) -> impl Future<Output = Self::Tx> + Send;
    fn commit(&self, tx: Self::Tx) -> impl Future<Output = ()> + Send;
    fn rollback(&self, tx: Self::Tx) -> impl Future<Output = ()> + Send;
    /// Runs SQL that is written for the tables of PostgreSQL.
    async fn run(&self, sql: &str);
    async fn clean_up(self);
}

pub(super) struct Sqlx(PostgresHarness);

pub(super) struct Sqlite {
    harness: SqliteHarness,
    pool: sqlx::SqlitePool,
}

impl Backend for Sqlite {
    type Tx = sqlx::Transaction<'static, sqlx::Sqlite>;

    async fn fresh() -> Self {
        let harness = SqliteHarness::fresh().await;
        let pool = pool(&harness.path()).await;
        Self { harness, pool }
    }

    fn outbox(&self) -> Outbox {
        Outbox::default()
    }

    fn operate(&self) -> Arc<dyn Operate> {
        self.harness.operate()
    }

    async fn begin(&self) -> Self::Tx {
        pillarbox::sqlite::begin(&self.pool).await.expect("begins")
    }

    async fn commit(&self, tx: Self::Tx) {
        tx.commit().await.expect("commits");
    }

    async fn rollback(&self, tx: Self::Tx) {
        tx.rollback().await.expect("rolls back");
    }

    async fn run(&self, sql: &str) {
        let sql = AssertSqlSafe(sql.replace("pillarbox.", "pillarbox_"));
        sqlx::raw_sql(sql).execute(&self.pool).await.expect("it runs");
    }

    async fn clean_up(self) {
        self.pool.close().await;
        self.harness.clean_up().await;
    }
}

/// A backend on PostgreSQL, given how its library begins, commits and rolls back.
macro_rules! on_postgres {
    ($backend:ty, $tx:ty, $new:expr, $begin:expr, $commit:expr, $rollback:expr) => {
        impl Backend for $backend {
            type Tx = $tx;

            async fn fresh() -> Self {
                $new(PostgresHarness::direct().await).await
            }

            fn outbox(&self) -> Outbox {
                self.0.store.outbox()
            }

            fn operate(&self) -> Arc<dyn Operate> {
                self.0.operate()
            }

            async fn begin(&self) -> Self::Tx {
                $begin(self).await
            }

            async fn commit(&self, tx: Self::Tx) {
                $commit(tx).await.expect("commits");
            }

            async fn rollback(&self, tx: Self::Tx) {
                $rollback(tx).await.expect("rolls back");
            }

            async fn run(&self, sql: &str) {
                self.0.execute(sql).await;
            }

            async fn clean_up(self) {
                self.0.clean_up().await;
            }
        }
    };
}

on_postgres!(
    Sqlx,
    sqlx::Transaction<'static, sqlx::Postgres>,
    async |harness| Sqlx(harness),
    async |this: &Sqlx| this.0.pool.begin().await.expect("begins"),
    sqlx::Transaction::commit,
    sqlx::Transaction::rollback
);

pub(super) struct TokioPostgres(PostgresHarness);

on_postgres!(
    TokioPostgres,
    tokio_postgres::Client,
    async |harness| TokioPostgres(harness),
    async |_: &TokioPostgres| {
        let url = variable("PILLARBOX_TEST_POSTGRES_URL");
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .expect("connects");
        tokio::spawn(connection); // ends with the client
        client.batch_execute("begin").await.expect("begins");
        client
    },
    async |client: tokio_postgres::Client| client.batch_execute("commit").await,
    async |client: tokio_postgres::Client| client.batch_execute("rollback").await
);

pub(super) struct SeaOrm(PostgresHarness, sea_orm::DatabaseConnection);

on_postgres!(
    SeaOrm,
    sea_orm::DatabaseTransaction,
    async |harness| {
        let mut options = sea_orm::ConnectOptions::new(variable("PILLARBOX_TEST_POSTGRES_URL"));
        options.max_connections(4).sqlx_logging(false);
        SeaOrm(
            harness,
            sea_orm::Database::connect(options).await.expect("connects"),
        )
    },
    async |this: &SeaOrm| sea_orm::TransactionTrait::begin(&this.1).await.expect("begins"),
    sea_orm::DatabaseTransaction::commit,
    sea_orm::DatabaseTransaction::rollback
);

pub(super) struct DieselAsync(PostgresHarness);

on_postgres!(
    DieselAsync,
    diesel_async::AsyncPgConnection,
    async |harness| DieselAsync(harness),
    async |_: &DieselAsync| {
        let url = variable("PILLARBOX_TEST_POSTGRES_URL");
        let mut connection =
            <diesel_async::AsyncPgConnection as diesel_async::AsyncConnection>::establish(&url)
                .await
                .expect("connects");
        diesel_async::SimpleAsyncConnection::batch_execute(&mut connection, "begin")
            .await
            .expect("begins");
        connection
    },
    async |mut connection: diesel_async::AsyncPgConnection| {
        diesel_async::SimpleAsyncConnection::batch_execute(&mut connection, "commit").await
    },
    async |mut connection: diesel_async::AsyncPgConnection| {
        diesel_async::SimpleAsyncConnection::batch_execute(&mut connection, "rollback").await
    }
);

/// Runs each case on every backend.
macro_rules! on_every_backend {
    ($($case:ident),+ $(,)?) => {
        on_every_backend!(@sqlx Sqlx: $($case)+);
        on_every_backend!(@sqlite Sqlite: $($case)+);
        on_every_backend!(@tokio_postgres TokioPostgres: $($case)+);
        on_every_backend!(@sea_orm SeaOrm: $($case)+);
        on_every_backend!(@diesel_async DieselAsync: $($case)+);
    };
    (@$module:ident $backend:ident: $($case:ident)+) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $case() {
                    use crate::saga::backends::{self, Backend};
                    let backend = std::sync::Arc::new(backends::$backend::fresh().await);
                    super::$case(backend.clone()).await;
                    let backend = std::sync::Arc::into_inner(backend).expect("the case has dropped its clone");
                    backend.clean_up().await;
                }
            )+
        }
    };
}
pub(super) use on_every_backend;
