//! What order costs: a backlog with many keys and with one key, compared with the same backlog without keys. And a backlog beside a
//! blocked key, compared with the same without that key.

use super::{Context, progress, rate};
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Pairs};

/// Many keys: 10,000.
pub(super) async fn keyed(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    measure(context, "drain-keyed", 10_000, 0.80).await
}

/// One key.
pub(super) async fn hot(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    measure(context, "drain-hot-key", 1, 0.80).await
}

async fn measure(
    context: &Context<'_>,
    name: &'static str,
    keys: u32,
    least: f64,
) -> Result<Vec<Measurement>, Failure> {
    let rows = context.scale.drained();
    let ours = Ours::new(context.database).await?;
    let mut pairs = Pairs::default();
    for _ in 0..context.scale.pairs() {
        ours.backlog().refill(rows, "drain").await?;
        pairs.peer.push(rate(rows, ours.drain_to_null(rows).await?));
        progress("no keys", pairs.peer[pairs.peer.len() - 1]);

        ours.backlog().refill_keyed(rows, keys).await?;
        pairs.ours.push(rate(rows, ours.drain_to_null(rows).await?));
        ours.backlog().verify(rows).await?;
        progress("with keys", pairs.ours[pairs.ours.len() - 1]);
    }
    let found = Measurement::speeds(name, "the same backlog without keys", &pairs, least);
    Ok(vec![found.detail("rows", rows).detail("keys", keys)])
}

/// Many keys beside a blocked one.
pub(super) async fn blocked(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    const KEYS: u32 = 10_000;
    let rows = context.scale.drained();
    let behind = context.scale.behind();
    let ours = Ours::new(context.database).await?;
    let mut pairs = Pairs::default();
    for _ in 0..context.scale.pairs() {
        ours.backlog().refill_keyed(rows, KEYS).await?;
        pairs.peer.push(rate(rows, ours.drain_to_null(rows).await?));
        progress("none", pairs.peer[pairs.peer.len() - 1]);

        ours.backlog().refill_blocked(rows, KEYS, behind).await?;
        pairs.ours.push(rate(rows, ours.drain_to_null(rows).await?));
        ours.backlog().verify(rows).await?;
        progress("one blocked", pairs.ours[pairs.ours.len() - 1]);
    }
    let against = "the same backlog without the blocked key";
    let found = Measurement::speeds("drain-blocked-key", against, &pairs, 0.90);
    Ok(vec![found.detail("rows", rows).detail("behind", behind)])
}
