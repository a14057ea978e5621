//! A backlog on two servers that differ in `wal_level`: this one, and the one of `--second-postgres`.
//!
//! `logical` writes whole rows where `replica` writes what changed, so that a decoder can read them.

use serde_json::Value;

use super::{Context, progress, rate};
use crate::cost::{Cost, Meter};
use crate::database::Database;
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Pairs, Target, median};

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let url = context.second_postgres.ok_or_else(|| {
        Failure::new("no second server (run `scripts/bench wal-level`, or set --second-postgres)")
    })?;
    let second = Database::create(url).await?;
    let found = compare(context, &second).await;
    second.remove().await?;
    found
}

async fn compare(context: &Context<'_>, second: &Database) -> Result<Vec<Measurement>, Failure> {
    let levels = [level(context.database).await?, level(second).await?];
    if levels != ["logical", "replica"] {
        return Err(Failure::new(format!(
            "wal_level is {} here and {} on the second server (expected logical and replica)",
            levels[0], levels[1]
        )));
    }
    let (mut pairs, mut costs, mut peer_costs) = (Pairs::default(), Vec::new(), Vec::new());
    for _ in 0..context.scale.pairs() {
        for (database, name, speeds, costs) in [
            (second, "replica", &mut pairs.peer, &mut peer_costs),
            (context.database, "logical", &mut pairs.ours, &mut costs),
        ] {
            let (speed, cost) = drain(database, context.scale.drained()).await?;
            progress(name, speed);
            speeds.push(speed);
            costs.push(cost);
        }
    }
    let against = "the same backlog with wal_level = replica";
    let mut speed = Measurement::speeds("wal-level", against, &pairs, 0.90);
    speed.details.extend(Cost::details(&costs));
    let peer_cost = Value::Object(Cost::details(&peer_costs));
    let bytes = |costs: &[Cost]| median(&costs.iter().map(|cost| cost.wal).collect::<Vec<_>>());
    let size = Measurement::new(
        "wal-level-bytes",
        (bytes(&costs), "bytes"),
        (against, bytes(&peer_costs)),
        Target::AtMost(1.5),
    );
    Ok(vec![
        speed
            .detail("rows", context.scale.drained())
            .detail("peer_cost", peer_cost),
        size,
    ])
}

async fn drain(database: &Database, rows: u32) -> Result<(f64, Cost), Failure> {
    let ours = Ours::new(database).await?;
    ours.backlog().refill(rows, "drain").await?;
    let meter = Meter::start(database).await?;
    let took = ours.drain_to_null(rows).await?;
    let cost = meter.stop(rows, database).await?;
    ours.verify(rows).await?;
    Ok((rate(rows, took), cost))
}

async fn level(database: &Database) -> Result<String, Failure> {
    Ok(sqlx::query_scalar("show wal_level")
        .fetch_one(database.outside())
        .await?)
}
