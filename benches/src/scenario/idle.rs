//! What a daemon with nothing to do asks of its database, as the database counts it.
//!
//! The daemon has a database of its own and is watched from another, so that watching counts nothing.
//! Where the server has `pg_stat_statements` loaded (scripts/bench sees to it), statements are counted,
//! `begin`, `set` and `commit` included; elsewhere transactions.

use std::time::{Duration, Instant};

use sqlx::PgPool;

use super::Context;
use crate::daemon::Daemon;
use crate::database::Database;
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Target};

/// A start asks more; after that a daemon is idle.
const SETTLED: Duration = Duration::from_secs(3);

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let own = context.database.sibling().await?;
    let found = watch(context, &own).await;
    own.remove().await?;
    Ok(vec![found?])
}

async fn watch(context: &Context<'_>, own: &Database) -> Result<Measurement, Failure> {
    Ours::new(own).await?;
    let counter = Counter::on(own.outside()).await?;
    let mut daemon = Daemon::start(context.daemon, own)?;
    tokio::time::sleep(SETTLED).await;
    daemon.is_alive()?;
    let seconds = context.scale.idle_seconds();
    let began = Instant::now();
    let before = counter.read(own).await?;
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let after = counter.read(own).await?;
    let rate = (after - before) / began.elapsed().as_secs_f64();
    daemon.is_alive()?;
    daemon.kill().await?;
    if after <= before {
        return Err(Failure::said(
            "the daemon asked nothing at all: it is not idle but stuck",
        ));
    }
    let found = Measurement::new(
        "idle",
        (rate, "queries/s"),
        ("the limit", 3.0),
        Target::AtMost(1.0),
    );
    Ok(found
        .detail("counted_by", counter.name())
        .detail("seconds", seconds))
}

/// What counts.
#[derive(Debug, Clone, Copy)]
enum Counter {
    Statements,
    Transactions,
}

impl Counter {
    /// The finer one, if the server has it.
    async fn on(pool: &PgPool) -> Result<Self, Failure> {
        let loaded: String = sqlx::query_scalar("show shared_preload_libraries")
            .fetch_one(pool)
            .await?;
        if !loaded.contains("pg_stat_statements") {
            return Ok(Self::Transactions);
        }
        sqlx::raw_sql("create extension if not exists pg_stat_statements")
            .execute(pool)
            .await?;
        Ok(Self::Statements)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Statements => "pg_stat_statements",
            Self::Transactions => "pg_stat_database",
        }
    }

    async fn read(self, watched: &Database) -> Result<f64, Failure> {
        let sql = match self {
            Self::Statements => {
                "select coalesce(sum(calls), 0)::float8 from pg_stat_statements s \
                 join pg_database d on d.oid = s.dbid where d.datname = $1"
            }
            Self::Transactions => {
                "select (xact_commit + xact_rollback)::float8 from pg_stat_database where datname = $1"
            }
        };
        Ok(sqlx::query_scalar(sql)
            .bind(watched.name())
            .fetch_one(watched.outside())
            .await?)
    }
}
