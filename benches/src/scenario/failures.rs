//! A backlog into a sink that fails some attempts, compared with one that confirms all of them.
//!
//! Every n-th attempt fails, so failures are never consecutive and the breaker stays closed. A failed attempt is retried after a
//! fixed wait, which the time of a run contains. The costs per event show the work of a failure alone.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use pillarbox::{Outcome, RetryPolicy};
use serde_json::Value;

use super::{Context, progress, rate};
use crate::cost::{Cost, Meter};
use crate::failure::Failure;
use crate::ours::{CONCURRENCY, FailingSink, Ours};
use crate::report::{Measurement, Pairs};

/// Before the next attempt.
const WAIT: Duration = Duration::from_millis(100);

struct Figure {
    name: &'static str,
    /// One of so many attempts fails.
    every: u64,
    outcome: fn() -> Outcome,
    least: f64,
}

const FIGURES: [Figure; 3] = [
    Figure {
        name: "failures-1",
        every: 100,
        outcome: || Outcome::retry("fails"),
        least: 0.90,
    },
    Figure {
        name: "failures-10",
        every: 10,
        outcome: || Outcome::retry("fails"),
        least: 0.70,
    },
    Figure {
        name: "failures-dead-1",
        every: 100,
        outcome: || Outcome::reject("is rejected"),
        least: 0.90,
    },
];

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let rows = context.scale.drained();
    let ours = Ours::new(context.database).await?;
    let (mut clean_speeds, mut clean_costs) = (Vec::new(), Vec::new());
    let mut runs: [(Vec<f64>, Vec<Cost>); FIGURES.len()] = Default::default();
    for _ in 0..context.scale.pairs() {
        ours.backlog().refill(rows, "drain").await?;
        let meter = Meter::start(context.database).await?;
        clean_speeds.push(rate(rows, ours.drain_to_null(rows).await?));
        clean_costs.push(meter.stop(rows, context.database).await?);
        ours.verify(rows).await?;
        progress("none fail", clean_speeds[clean_speeds.len() - 1]);
        for (figure, (speeds, costs)) in FIGURES.iter().zip(&mut runs) {
            let (speed, cost) = figure.run(context, &ours, rows).await?;
            progress(figure.name, speed);
            speeds.push(speed);
            costs.push(cost);
        }
    }
    let clean = Value::Object(Cost::details(&clean_costs));
    let found = FIGURES.iter().zip(runs).map(|(figure, (speeds, costs))| {
        let pairs = Pairs {
            peer: clean_speeds.clone(),
            ours: speeds,
        };
        let against = "the same backlog without failures";
        let mut found = Measurement::speeds(figure.name, against, &pairs, figure.least);
        found.details.extend(Cost::details(&costs));
        found.detail("rows", rows).detail("peer_cost", clean.clone())
    });
    Ok(found.collect())
}

impl Figure {
    async fn run(&self, context: &Context<'_>, ours: &Ours<'_>, rows: u32) -> Result<(f64, Cost), Failure> {
        ours.backlog().refill(rows, "drain").await?;
        let sink = FailingSink {
            every: self.every,
            outcome: (self.outcome)(),
            attempts: AtomicU64::new(0),
        };
        let meter = Meter::start(context.database).await?;
        let began = Instant::now();
        let destination = vec![("destination".to_owned(), Arc::new(sink) as _)];
        let retry = RetryPolicy::steps(vec![WAIT]);
        let running = ours.start_with(destination, CONCURRENCY, retry).await?;
        let ended = running.ended(rows.into()).await;
        let took = began.elapsed();
        let snapshot = running.stop().await?;
        let cost = meter.stop(rows, context.database).await?;
        ended?;
        let failed = snapshot.retried + snapshot.dead;
        if failed == 0 || snapshot.claimed != u64::from(rows) + snapshot.retried {
            return Err(Failure::new(format!(
                "rows were claimed for other reasons than a failure: {snapshot:?}"
            )));
        }
        let dead = u32::try_from(snapshot.dead).unwrap_or(u32::MAX);
        ours.verify(rows.saturating_sub(dead)).await?;
        Ok((rate(rows, took), cost))
    }
}
