//! A backlog with four workers, compared with one worker.

use std::sync::Arc;
use std::time::Instant;

use super::{Context, progress, rate};
use crate::failure::Failure;
use crate::ours::{CONCURRENCY, NullSink, Ours};
use crate::report::{Measurement, Pairs};

const WORKERS: usize = 4;

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let rows = context.scale.drained();
    let ours = Ours::new(context.database).await?;
    let mut pairs = Pairs::default();
    for _ in 0..context.scale.pairs() {
        ours.backlog().refill(rows, "drain").await?;
        pairs.peer.push(rate(rows, ours.drain_to_null(rows).await?));
        progress("one", pairs.peer[pairs.peer.len() - 1]);

        ours.backlog().refill(rows, "drain").await?;
        let began = Instant::now();
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            workers.push(ours.start(Arc::new(NullSink), CONCURRENCY).await?);
        }
        let delivered = || {
            workers
                .iter()
                .map(|worker| worker.snapshot().delivered)
                .sum::<u64>()
        };
        let deadline = began + context.scale.drain_timeout();
        while delivered() < u64::from(rows) && Instant::now() < deadline {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let took = began.elapsed();
        for worker in workers {
            worker.stop().await?;
        }
        pairs.ours.push(rate(rows, took));
        ours.backlog().verify(rows).await?;
        progress("four", pairs.ours[pairs.ours.len() - 1]);
    }
    let found = Measurement::speeds("four-workers", "one worker", &pairs, 1.0);
    Ok(vec![found.detail("rows", rows)])
}
