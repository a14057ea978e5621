//! A backlog in a table with many delivered rows, compared with an empty table.
//!
//! The large table is filled once, in a database of its own, because that takes far longer than a drain.

use serde_json::Value;

use super::{Context, progress, rate};
use crate::cost::{Cost, Meter};
use crate::database::Database;
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Pairs, Target, median};

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let own = context.database.sibling().await?;
    let found = compare(context, &own).await;
    own.remove().await?;
    found
}

async fn compare(context: &Context<'_>, own: &Database) -> Result<Vec<Measurement>, Failure> {
    let rows = context.scale.drained();
    let old = context.table_rows.unwrap_or_else(|| context.scale.old());
    let empty = Ours::new(context.database).await?;
    let large = Ours::new(own).await?;
    large.backlog().refill_delivered(old).await?;
    let (mut pairs, mut costs, mut peer_costs) = (Pairs::default(), Vec::new(), Vec::new());
    let mut delivered = old;
    for _ in 0..context.scale.pairs() {
        empty.backlog().refill(rows, "drain").await?;
        let meter = Meter::start(context.database).await?;
        pairs.peer.push(rate(rows, empty.drain_to_null(rows).await?));
        peer_costs.push(meter.stop(rows, context.database).await?);
        progress("empty", pairs.peer[pairs.peer.len() - 1]);

        large.backlog().add(rows, "drain").await?;
        let meter = Meter::start(own).await?;
        pairs.ours.push(rate(rows, large.drain_to_null(rows).await?));
        costs.push(meter.stop(rows, own).await?);
        delivered += rows;
        large.verify(delivered).await?;
        progress("large", pairs.ours[pairs.ours.len() - 1]);
    }
    let against = "the same backlog on an empty table";
    let mut speed = Measurement::speeds("drain-large-table", against, &pairs, 0.80);
    speed.details.extend(Cost::details(&costs));
    let peer_cost = Value::Object(Cost::details(&peer_costs));
    let mut found = vec![
        speed
            .detail("rows", rows)
            .detail("delivered_before", old)
            .detail("peer_cost", peer_cost),
    ];
    // The processor time of a server on another machine is unknown.
    if let (Some(ours), Some(theirs)) = (processor(&costs), processor(&peer_costs)) {
        let target = Target::AtMost(1.10);
        let cost = Measurement::new("drain-large-table-cpu", (ours, "µs"), (against, theirs), target);
        found.push(cost.detail("delivered_before", old));
    }
    Ok(found)
}

/// Microseconds per event, of client and server together.
fn processor(costs: &[Cost]) -> Option<f64> {
    let times: Option<Vec<f64>> = costs.iter().map(Cost::processor).collect();
    Some(median(&times?))
}
