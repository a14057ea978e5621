//! A separate database on the measured server. No other database is touched, and the server's statistics for it are only
//! ours.
//!
//! **If we die here** a database named `pillarbox_bench_…` is left behind. It can be dropped.

use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection};
use uuid::Uuid;

use crate::failure::Failure;

/// A database that is dropped after the run.
#[derive(Debug)]
pub(crate) struct Database {
    /// Connections to the database in the URL, for statements that must not count here.
    outside: PgPool,
    inside: PgPool,
    options: PgConnectOptions,
    name: String,
}

impl Database {
    /// Creates one on the server at `url`.
    pub(crate) async fn create(url: &str) -> Result<Self, Failure> {
        // Without TLS on both sides. Over TLS a bare client of sqlx 0.9.0 waits for acknowledgements (Nagle's algorithm), and
        // Pillarbox would be compared with a client that mostly waits.
        let options = PgConnectOptions::from_str(url)?
            .ssl_mode(PgSslMode::Disable)
            .application_name("pillarbox-bench");
        let name = format!("pillarbox_bench_{}", Uuid::new_v4().simple());
        let outside = PgPoolOptions::new()
            .max_connections(2)
            .connect_with(options.clone())
            .await?;
        run(&outside, &format!("create database {name}")).await?;
        let options = options.database(&name);
        let inside = PgPoolOptions::new()
            .max_connections(2)
            .connect_lazy_with(options.clone());
        Ok(Self {
            outside,
            inside,
            options,
            name,
        })
    }

    /// Another one on the same server.
    pub(crate) async fn sibling(&self) -> Result<Self, Failure> {
        Self::create(self.options.to_url_lossy().as_str()).await
    }

    pub(crate) async fn remove(self) -> Result<(), Failure> {
        self.inside.close().await;
        run(
            &self.outside,
            &format!("drop database {} with (force)", self.name),
        )
        .await?;
        self.outside.close().await;
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn url(&self) -> String {
        self.options.to_url_lossy().to_string()
    }

    /// The same without the parameters of sqlx, which other clients reject. Without TLS, like ours.
    pub(crate) fn plain_url(&self) -> String {
        let mut url = self.options.to_url_lossy();
        url.set_query(Some("sslmode=disable"));
        url.to_string()
    }

    pub(crate) fn outside(&self) -> &PgPool {
        &self.outside
    }

    /// A connection outside the pool, as a bare client has it.
    pub(crate) async fn connection(&self) -> Result<PgConnection, Failure> {
        Ok(self.options.connect().await?)
    }

    /// Runs a statement that contains no input.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), Failure> {
        run(&self.inside, sql).await
    }

    /// Returns one number.
    pub(crate) async fn count(&self, sql: &str) -> Result<i64, Failure> {
        Ok(sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_one(&self.inside)
            .await?)
    }

    /// Does the server record statements with `pg_stat_statements`? Then the extension is there, for [`outside`](Self::outside).
    pub(crate) async fn records_statements(&self) -> Result<bool, Failure> {
        let loaded: String = sqlx::query_scalar("show shared_preload_libraries")
            .fetch_one(&self.outside)
            .await?;
        let records = loaded.contains("pg_stat_statements");
        if records {
            run(&self.outside, "create extension if not exists pg_stat_statements").await?;
        }
        Ok(records)
    }

    /// Opens a snapshot and keeps it, as a long report does.
    pub(crate) async fn hold_snapshot(&self) -> Result<Snapshot, Failure> {
        let mut connection = self.connection().await?;
        sqlx::raw_sql("begin isolation level repeatable read; select txid_current_snapshot()")
            .execute(&mut connection)
            .await?;
        Ok(Snapshot { connection })
    }

    /// Gives every run the same start: fresh statistics, and no dirty pages from the inserts.
    pub(crate) async fn vacuum_and_checkpoint(&self, table: &str) -> Result<(), Failure> {
        self.run(&format!("vacuum (analyze) {table}")).await?;
        self.run("checkpoint").await
    }
}

/// An open transaction with an old snapshot, which keeps vacuum from removing dead rows.
#[derive(Debug)]
pub(crate) struct Snapshot {
    connection: PgConnection,
}

impl Snapshot {
    pub(crate) async fn release(mut self) -> Result<(), Failure> {
        sqlx::raw_sql("commit").execute(&mut self.connection).await?;
        Ok(())
    }
}

async fn run(pool: &PgPool, sql: &str) -> Result<(), Failure> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await?;
    Ok(())
}
