//! From the return of a COMMIT to the arrival of the event: what each measurement of a latency shares.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use crate::failure::Failure;
use crate::ours::TABLE;

const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// When each event arrived first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arrivals(Arc<Mutex<HashMap<Uuid, Instant>>>);

impl Arrivals {
    /// Notes that this event has arrived now.
    pub(crate) fn note(&self, id: Uuid) {
        let now = Instant::now();
        let mut arrivals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.entry(id).or_insert(now);
    }

    /// Waits until so many events have arrived.
    async fn wait(&self, count: usize) -> Result<HashMap<Uuid, Instant>, Failure> {
        let deadline = Instant::now() + ARRIVAL_TIMEOUT;
        loop {
            let arrived = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if arrived.len() >= count {
                return Ok(arrived);
            }
            if Instant::now() > deadline {
                let arrived = arrived.len();
                return Err(Failure::new(format!(
                    "{arrived} of {count} events arrived within {ARRIVAL_TIMEOUT:?}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for these events. Returns the milliseconds from each commit to its arrival.
    pub(crate) async fn since(&self, committed: &HashMap<Uuid, Instant>) -> Result<Percentiles, Failure> {
        let arrived = self.wait(committed.len()).await?;
        let times = committed
            .iter()
            // An event may arrive before the client gets the answer to its commit.
            .filter_map(|(id, at)| Some(arrived.get(id)?.saturating_duration_since(*at).as_secs_f64() * 1e3));
        Ok(Percentiles::new(times.collect()))
    }
}

/// Commits one event with a plain INSERT. Returns its id and when the answer came.
pub(crate) async fn insert(connection: &mut PgConnection) -> Result<(Uuid, Instant), Failure> {
    let id = Uuid::now_v7();
    let insert =
        format!("insert into {TABLE} (id, namespace, topic, payload) values ($1, 'bench', 'one', '{{}}')");
    sqlx::query(AssertSqlSafe(insert))
        .bind(id)
        .execute(connection)
        .await?;
    Ok((id, Instant::now()))
}

/// Samples in milliseconds.
#[derive(Debug)]
pub(crate) struct Percentiles {
    sorted: Vec<f64>,
}

impl Percentiles {
    pub(crate) fn new(mut samples: Vec<f64>) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        Self { sorted: samples }
    }

    pub(crate) fn samples(&self) -> usize {
        self.sorted.len()
    }

    /// The smallest sample that is not below this share of all samples, or zero without samples.
    pub(crate) fn at(&self, permille: usize) -> f64 {
        let rank = (self.sorted.len() * permille).div_ceil(1000).max(1);
        self.sorted.get(rank - 1).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples = Percentiles::new((1..=2000).rev().map(f64::from).collect());
        assert_eq!(
            [500, 990, 999, 1000].map(|permille| samples.at(permille)),
            [1000.0, 1980.0, 1998.0, 2000.0]
        );
        assert_eq!(Percentiles::new(vec![7.0]).at(500), 7.0);
        assert_eq!(Percentiles::new(Vec::new()).at(990), 0.0);
    }

    #[tokio::test]
    async fn the_first_arrival_of_an_event_counts() {
        let (arrivals, id, committed) = (Arrivals::default(), Uuid::now_v7(), Instant::now());
        arrivals.note(id);
        let noted = arrivals.wait(1).await.unwrap()[&id];
        arrivals.note(id);
        let found = arrivals.since(&HashMap::from([(id, committed)])).await.unwrap();
        assert_eq!(found.samples(), 1);
        assert_eq!(found.at(500), (noted - committed).as_secs_f64() * 1e3);
    }
}
