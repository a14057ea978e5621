//! The queries of an idle daemon, as counted by PostgreSQL.
//!
//! The daemon has its own database and is observed from another one, so that the observer's queries do not count. If the server has
//! `pg_stat_statements` (scripts/bench loads it), statements are counted, including `begin`, `set` and `commit`. Otherwise
//! transactions are counted, among them those of the wait for new events, about ten per second.
//!
//! The processor time of the server is that of all its databases. Run nothing else on it.

use std::time::{Duration, Instant};

use super::Context;
use crate::cost::Meter;
use crate::daemon::Daemon;
use crate::database::Database;
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Target};

/// The daemon runs more queries at its start. After this time it is idle.
const WARM_UP: Duration = Duration::from_secs(3);

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let own = context.database.sibling().await?;
    let found = count_queries(context, &own).await;
    own.remove().await?;
    Ok(vec![found?])
}

async fn count_queries(context: &Context<'_>, own: &Database) -> Result<Measurement, Failure> {
    Ours::new(own).await?;
    let mut daemon = Daemon::start(context.daemon, own)?;
    tokio::time::sleep(WARM_UP).await;
    daemon.is_alive()?;
    let seconds = context.scale.idle_seconds();
    let began = Instant::now();
    let meter = Meter::of(daemon.id()?, own).await?;
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let took = began.elapsed().as_secs_f64();
    let cost = meter.stop(1, own).await?;
    let (queries, counted_by) = match cost.statements {
        Some(statements) => (statements / 1e3, "pg_stat_statements"),
        None => (cost.transactions / 1e3, "pg_stat_database"),
    };
    let percent = |microseconds: f64| (microseconds / took / 1e4 * 100.0).round() / 100.0;
    daemon.is_alive()?;
    daemon.kill().await?;
    if queries <= 0.0 {
        return Err(Failure::new("the daemon ran no query at all: it is stuck"));
    }
    let found = Measurement::new(
        "idle",
        (queries / took, "queries/s"),
        ("the limit", 2.0),
        Target::AtMost(1.0),
    );
    Ok(found
        .detail("daemon_cpu_percent", percent(cost.client))
        .detail("server_cpu_percent", cost.database.map(percent))
        .detail("counted_by", counted_by)
        .detail("seconds", seconds))
}
