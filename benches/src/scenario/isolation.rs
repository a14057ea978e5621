//! Fifty destinations of which one hangs, compared with fifty healthy ones: the throughput of the other forty-nine.

use std::sync::Arc;
use std::time::Instant;

use pillarbox::Sink;

use super::{Context, progress, rate};
use crate::failure::Failure;
use crate::ours::{HangingSink, NullSink, Ours};
use crate::report::{Measurement, Pairs};

const DESTINATIONS: u32 = 50;
/// A typical concurrency of a webhook.
const CONCURRENCY: usize = 32;

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let rows = context.scale.drained() / DESTINATIONS * DESTINATIONS;
    let ours = Ours::new(context.database).await?;
    let mut pairs = Pairs::default();
    for _ in 0..context.scale.pairs().max(context.scale.fewest_for_isolation()) {
        pairs.peer.push(run(&ours, rows, false).await?);
        progress("healthy", pairs.peer[pairs.peer.len() - 1]);
        pairs.ours.push(run(&ours, rows, true).await?);
        progress("one hangs", pairs.ours[pairs.ours.len() - 1]);
    }
    let found = Measurement::speeds(
        "isolation",
        "the same forty-nine destinations while the fiftieth is healthy",
        &pairs,
        0.90,
    );
    Ok(vec![found.detail("rows", rows)])
}

/// Rows per second of the first forty-nine.
async fn run(ours: &Ours<'_>, rows: u32, one_hangs: bool) -> Result<f64, Failure> {
    ours.backlog().refill_to(rows, DESTINATIONS).await?;
    let sink = |number: u32| -> Arc<dyn Sink> {
        if one_hangs && number == DESTINATIONS - 1 {
            Arc::new(HangingSink)
        } else {
            Arc::new(NullSink)
        }
    };
    let destinations = (0..DESTINATIONS).map(|number| (format!("to-{number}"), sink(number)));
    let others = rows - rows / DESTINATIONS;
    let began = Instant::now();
    let running = ours.start_to(destinations.collect(), CONCURRENCY).await?;
    let wanted = if one_hangs { others } else { rows };
    let delivered = running.delivered(u64::from(wanted)).await;
    let took = began.elapsed();
    running.stop().await?;
    delivered?;
    Ok(rate(wanted, took))
}
