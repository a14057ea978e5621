//! Single events on an idle system: the time from the commit to the sink.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pillarbox::{Delivery, Limits, Outcome, Sink};
use serde::Serialize;
use uuid::Uuid;

use super::Plan;
use super::drain::event;
use super::scratch::Scratch;
use crate::failure::Failure;
use crate::logs;

/// Events that have not arrived after this long are counted as lost, which is a failure.
const LAST: Duration = Duration::from_secs(60);
/// How often to look for the last arrivals.
const CHECK: Duration = Duration::from_millis(5);

/// Latencies in milliseconds.
#[derive(Debug, Serialize, PartialEq)]
pub(crate) struct Latency {
    /// Events per second that were committed, each in its own transaction.
    pub(crate) rate: f64,
    /// How many.
    pub(crate) samples: usize,
    /// The median.
    #[serde(rename = "p50_ms")]
    pub(crate) p50: f64,
    /// The 99th percentile.
    #[serde(rename = "p99_ms")]
    pub(crate) p99: f64,
    /// The slowest.
    #[serde(rename = "slowest_ms")]
    pub(crate) slowest: f64,
}

#[expect(clippy::disallowed_methods, reason = "the wait for the last arrivals")]
pub(super) async fn measure(scratch: &Scratch, plan: Plan) -> Result<Latency, Failure> {
    logs::progress(&format!(
        "measuring the latency at {} events/s for {:?}",
        plan.rate, plan.duration
    ));
    let arrivals = Arc::new(Stopwatch::default());
    scratch.start(Arc::clone(&arrivals) as Arc<dyn Sink>).await?;
    warm_up(scratch, plan, &arrivals).await?;
    let began = Instant::now();
    let mut committed = HashMap::new();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / plan.rate);
    let seconds = u32::try_from(plan.duration.as_secs()).unwrap_or(u32::MAX);
    for number in 0..plan.rate.saturating_mul(seconds) {
        ticks.tick().await;
        let id = enqueue(scratch, plan, number).await?;
        committed.insert(id, Instant::now());
    }
    let took = began.elapsed().max(plan.duration);
    let ended = Instant::now();
    // The first arrival is the one that warmed up.
    while arrivals.len() <= committed.len() {
        if ended.elapsed() > LAST {
            let missing = committed.len() + 1 - arrivals.len();
            return Err(Failure::failed(format!(
                "{missing} events did not arrive within {LAST:?} (run with --log info)"
            )));
        }
        tokio::time::sleep(CHECK).await;
    }
    scratch.stop().await?;
    Ok(summary(arrivals.since(&committed), took))
}

/// Sends one event that does not count: the dispatcher connects and takes up its work.
#[expect(clippy::disallowed_methods, reason = "the wait for an arrival")]
async fn warm_up(scratch: &Scratch, plan: Plan, arrivals: &Stopwatch) -> Result<(), Failure> {
    enqueue(scratch, plan, 0).await?;
    let began = Instant::now();
    while arrivals.len() == 0 {
        if began.elapsed() > LAST {
            return Err(Failure::failed(format!(
                "the first event did not arrive within {LAST:?} (run with --log info)"
            )));
        }
        tokio::time::sleep(CHECK).await;
    }
    Ok(())
}

async fn enqueue(scratch: &Scratch, plan: Plan, number: u32) -> Result<Uuid, Failure> {
    let id = Uuid::now_v7();
    let event = event(number, plan).id(id);
    scratch.database.enqueue_all(&[event], Limits::default()).await?;
    Ok(id)
}

fn summary(mut times: Vec<f64>, took: Duration) -> Latency {
    times.sort_unstable_by(f64::total_cmp);
    let samples = u32::try_from(times.len()).unwrap_or(u32::MAX);
    Latency {
        rate: super::per_second(samples, took),
        samples: times.len(),
        p50: percentile(&times, 50),
        p99: percentile(&times, 99),
        slowest: percentile(&times, 100),
    }
}

/// The smallest sample that is not below `percent` of all samples.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

/// A sink that notes when each event arrived first.
#[derive(Default)]
struct Stopwatch(Mutex<HashMap<Uuid, Instant>>);

impl Stopwatch {
    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Milliseconds from each commit. An event may arrive before the answer to its commit.
    fn since(&self, committed: &HashMap<Uuid, Instant>) -> Vec<f64> {
        let arrived = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let time = |(id, at): (&Uuid, &Instant)| {
            let took = arrived.get(id)?.saturating_duration_since(*at);
            Some(took.as_secs_f64() * 1e3)
        };
        committed.iter().filter_map(time).collect()
    }
}

#[async_trait]
impl Sink for Stopwatch {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let mut arrived = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.entry(delivery.event.id).or_insert_with(Instant::now);
        Outcome::Delivered
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
        let times = (1..=200).map(f64::from).collect();
        let expected = Latency {
            rate: 100.0,
            samples: 200,
            p50: 100.0,
            p99: 198.0,
            slowest: 200.0,
        };
        assert_eq!(summary(times, Duration::from_secs(2)), expected);
        assert_eq!(percentile(&[], 99), 0.0);
    }
}
