//! A backlog while another session holds an old snapshot, so that vacuum cannot remove dead rows, compared with one without it.

use super::{Context, progress, rate};
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Pairs};

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let rows = context.scale.held();
    let ours = Ours::new(context.database).await?;
    let mut pairs = Pairs::default();
    for _ in 0..context.scale.pairs() {
        ours.backlog().refill(rows, "drain").await?;
        pairs.peer.push(rate(rows, ours.drain_to_null(rows).await?));
        progress("clean", pairs.peer[pairs.peer.len() - 1]);

        ours.backlog().refill(rows, "drain").await?;
        let snapshot = context.database.hold_snapshot().await?;
        let drained = ours.drain_to_null(rows).await;
        snapshot.release().await?;
        pairs.ours.push(rate(rows, drained?));
        ours.backlog().verify(rows).await?;
        progress("held", pairs.ours[pairs.ours.len() - 1]);
    }
    let found = Measurement::speeds(
        "drain-held-snapshot",
        "the same backlog without such a session",
        &pairs,
        0.90,
    );
    Ok(vec![found.detail("rows", rows)])
}
