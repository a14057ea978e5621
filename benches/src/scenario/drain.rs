//! A backlog into a sink that does nothing, compared with a bare SQL loop. Delivered rows are kept, or deleted by the settle.

use std::time::Instant;

use super::{Context, progress, rate};
use crate::cost::{Cost, Meter};
use crate::failure::Failure;
use crate::ours::Ours;
use crate::plain::Plain;
use crate::report::{Measurement, Pairs};

/// The share of the bare loop that a drain has to reach.
pub(super) const LEAST: f64 = 0.90;

pub(super) async fn kept(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let ours = Ours::new(context.database).await?;
    measure(context, ours, "drain", LEAST).await
}

/// With `[retention] delivered = "0s"`.
pub(super) async fn unkept(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let ours = Ours::new(context.database).await?.deleting();
    measure(context, ours, "drain-unkept", 1.20).await
}

async fn measure(
    context: &Context<'_>,
    ours: Ours<'_>,
    scenario: &'static str,
    target: f64,
) -> Result<Vec<Measurement>, Failure> {
    let rows = context.scale.drained();
    let mut plain = Plain::new(context.database).await?;
    let (mut pairs, mut costs, mut peer_costs) = (Pairs::default(), Vec::new(), Vec::new());
    for _ in 0..context.scale.pairs() {
        plain.backlog().refill(rows, "drain").await?;
        let meter = Meter::start(context.database).await?;
        let began = Instant::now();
        plain.drain().await?;
        pairs.peer.push(rate(rows, began.elapsed()));
        peer_costs.push(meter.stop(rows, context.database).await?);
        plain.backlog().verify(rows).await?;
        progress("bare SQL", pairs.peer[pairs.peer.len() - 1]);

        ours.backlog().refill(rows, "drain").await?;
        let meter = Meter::start(context.database).await?;
        let took = ours.drain_to_null(rows).await?;
        pairs.ours.push(rate(rows, took));
        costs.push(meter.stop(rows, context.database).await?);
        ours.verify(rows).await?;
        progress("pillarbox", pairs.ours[pairs.ours.len() - 1]);
    }
    let mut found = Measurement::speeds(
        scenario,
        "a bare SQL loop on a plain table, 1,000 rows per round trip",
        &pairs,
        target,
    );
    found.details.extend(Cost::details(&costs));
    let peer_cost = serde_json::Value::Object(Cost::details(&peer_costs));
    Ok(vec![found.detail("rows", rows).detail("peer_cost", peer_cost)])
}
