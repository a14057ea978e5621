//! Shows what the database's tables hold: reads the newest sample, and takes one if it is due and no other worker does.
//!
//! The age of the sample is shown by a task of its own, so that it grows while the database does not answer.
//!
//! **If we die here** another worker takes the next sample, at the latest when this one's turn is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox::internal::LineLimit;
use pillarbox_store::sample::SampleRequest;

use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// How soon to look again while another worker takes the sample, and after a failure.
const SOON: Duration = Duration::from_secs(2);
/// How often the age is shown.
const SECOND: Duration = Duration::from_secs(1);

/// When the newest sample was taken, in milliseconds of the worker's clock.
#[derive(Debug, Default)]
pub(crate) struct TakenAt(AtomicU64);

impl TakenAt {
    fn set(&self, at: Duration) {
        let at = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        self.0.store(at, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// See the module.
pub(crate) struct Sampler {
    worker: Arc<Worker>,
    request: SampleRequest,
    taken_at: Arc<TakenAt>,
    lines: LineLimit,
}

impl Sampler {
    /// The sampler, and the task that shows the age of its sample.
    pub(crate) fn new(worker: Arc<Worker>, destinations: Vec<String>) -> (Self, SampleAge) {
        let taken_at = Arc::new(TakenAt::default());
        taken_at.set(worker.now());
        let age = SampleAge {
            worker: Arc::clone(&worker),
            taken_at: Arc::clone(&taken_at),
        };
        let request = SampleRequest {
            worker: worker.id,
            destinations,
        };
        let sampler = Self {
            worker,
            request,
            taken_at,
            lines: LineLimit::default(),
        };
        (sampler, age)
    }
}

impl Task for Sampler {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let worker = Arc::clone(&self.worker);
        let began = worker.now();
        let sampled = match worker.store.sample(&self.request).await {
            Ok(Some(sampled)) => sampled,
            Ok(None) => return Ok(Next::Done),
            Err(error @ StoreError::Unavailable(_)) => return Err(error),
            Err(error) => {
                // Such as a sample that takes too long: the database serves events all the same.
                worker.store_error();
                if let Some(suppressed) = self.lines.allow(began) {
                    let suppressed = (suppressed > 0).then_some(suppressed);
                    tracing::warn!(%error, suppressed, "sample for metrics failed; retrying");
                }
                return Ok(Next::Wait(SOON));
            }
        };
        let now = worker.now();
        let wall = worker.clock.wall() - now.saturating_sub(began) / 2;
        worker.metrics.database_clock(sampled.now, wall);
        if sampled.sample.is_some() {
            self.taken_at.set(now.saturating_sub(sampled.age));
        }
        worker.metrics.sampled.show(&sampled);
        Ok(Next::Wait(sampled.due_in.max(SOON)))
    }
}

/// Shows the age of the sample.
pub(crate) struct SampleAge {
    worker: Arc<Worker>,
    taken_at: Arc<TakenAt>,
}

impl Task for SampleAge {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let age = self.worker.now().saturating_sub(self.taken_at.get());
        self.worker.metrics.sampled.set_age(age);
        Ok(Next::Wait(SECOND))
    }
}
