//! A backlog into two destinations, compared with one destination, in deliveries per second.

use std::sync::Arc;
use std::time::Instant;

use pillarbox::Sink;

use super::{Context, progress, rate};
use crate::failure::Failure;
use crate::ours::{CONCURRENCY, NullSink, Ours};
use crate::report::{Measurement, Pairs};

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let rows = context.scale.drained() / 2;
    let ours = Ours::new(context.database).await?;
    let mut pairs = Pairs::default();
    for _ in 0..context.scale.pairs() {
        ours.backlog().refill(rows, "drain").await?;
        pairs.peer.push(rate(rows, ours.drain_to_null(rows).await?));
        progress("one", pairs.peer[pairs.peer.len() - 1]);

        ours.backlog().refill(rows, "drain").await?;
        let destinations = ["a", "b"].map(|name| (name.to_owned(), Arc::new(NullSink) as Arc<dyn Sink>));
        let began = Instant::now();
        let running = ours.start_to(destinations.into(), CONCURRENCY).await?;
        let drained = running.delivered(u64::from(rows) * 2).await;
        let took = began.elapsed();
        running.stop().await?;
        drained?;
        pairs.ours.push(rate(rows * 2, took));
        ours.backlog().verify(rows * 2).await?;
        progress("two", pairs.ours[pairs.ours.len() - 1]);
    }
    let found = Measurement::speeds(
        "fanout",
        "the same backlog into one destination; both in deliveries",
        &pairs,
        0.90,
    );
    Ok(vec![found.detail("rows", rows)])
}
