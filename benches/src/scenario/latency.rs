//! The time from the commit of a plain INSERT, by any client, to its delivery on an idle system.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Sink};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Context;
use crate::failure::Failure;
use crate::ours::{Ours, TABLE};
use crate::report::{Measurement, Target};

/// After this long without an event the dispatcher polls at its slowest: its waits double from 5 ms to `poll_interval`, 500 ms.
const IDLE: Duration = Duration::from_millis(1200);
/// Spreads the inserts over the whole wait.
const SPREAD: Duration = Duration::from_millis(500);
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let ours = Ours::new(context.database).await?;
    context.database.run(&format!("truncate {TABLE}")).await?;
    let (arrived, arrivals) = unbounded_channel();
    let running = ours.start(Arc::new(Stopwatch(arrived)), 16).await?;
    let samples = sample(context, arrivals).await;
    running.stop().await?;
    let mut samples = samples?;
    samples.sort_unstable_by(f64::total_cmp);
    let worst = percentile(&samples, 100);
    let found = Measurement::new(
        "latency",
        (worst, "ms"),
        ("the limit for the slowest of all samples", 1000.0),
        Target::AtMost(1.0),
    );
    Ok(vec![
        found
            .detail("samples", samples.len())
            .detail("p50", percentile(&samples, 50).round())
            .detail("p99", percentile(&samples, 99).round()),
    ])
}

async fn sample(
    context: &Context<'_>,
    mut arrivals: UnboundedReceiver<Instant>,
) -> Result<Vec<f64>, Failure> {
    let mut samples = Vec::new();
    for _ in 0..context.scale.samples() {
        tokio::time::sleep(IDLE + SPREAD.mul_f64(fastrand::f64())).await;
        let insert =
            format!("insert into {TABLE} (namespace, topic, payload) values ('bench', 'one', '{{}}')");
        context.database.run(&insert).await?;
        let committed = Instant::now();
        let arrived = tokio::time::timeout(ARRIVAL_TIMEOUT, arrivals.recv())
            .await
            .map_err(|_| Failure::new(format!("an event did not arrive within {ARRIVAL_TIMEOUT:?}")))?
            .ok_or_else(|| Failure::new("the dispatcher stopped"))?;
        // An event may arrive before the client gets the answer to its commit.
        samples.push(arrived.saturating_duration_since(committed).as_secs_f64() * 1e3);
    }
    Ok(samples)
}

/// The smallest sample that is not below `percent` of all samples, or zero for an empty list.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

/// A sink that reports the time of each arrival.
struct Stopwatch(UnboundedSender<Instant>);

#[async_trait]
impl Sink for Stopwatch {
    async fn deliver(&self, _: &Delivery) -> Outcome {
        match self.0.send(Instant::now()) {
            Ok(()) => Outcome::Delivered,
            Err(_) => Outcome::unavailable("the benchmark has ended"),
        }
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(
            [50, 99, 100].map(|percent| percentile(&samples, percent)),
            [100.0, 198.0, 200.0]
        );
        assert_eq!(percentile(&[7.0], 50), 7.0);
        assert_eq!(percentile(&[], 99), 0.0);
    }
}
