//! A backlog in a table with a million delivered rows, compared with an empty table.

use super::{Context, progress, rate};
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Pairs};

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let rows = context.scale.drained();
    let old = context.scale.old();
    let ours = Ours::new(context.database).await?;
    let mut pairs = Pairs::default();
    for _ in 0..context.scale.pairs() {
        ours.backlog().refill(rows, "drain").await?;
        pairs.peer.push(rate(rows, ours.drain_to_null(rows).await?));
        progress("empty", pairs.peer[pairs.peer.len() - 1]);

        ours.backlog().refill_upon(rows, old).await?;
        pairs.ours.push(rate(rows, ours.drain_to_null(rows).await?));
        ours.backlog().verify(rows + old).await?;
        progress("large", pairs.ours[pairs.ours.len() - 1]);
    }
    let found = Measurement::speeds(
        "drain-large-table",
        "the same backlog on an empty table",
        &pairs,
        0.80,
    );
    Ok(vec![found.detail("rows", rows).detail("delivered_before", old)])
}
