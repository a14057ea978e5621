//! Buries rows whose attempts are used up and that nobody will settle, and finds rows that want to be
//! taken alone.
//!
//! **If we die here** the next sweep finds them again, whoever makes it.

use std::sync::Arc;

use pillarbox::failpoint;

use crate::outage::Backoff;
use crate::recovery::Asked;
use crate::task::{Next, Task};
use crate::worker::Worker;

/// See the module.
pub(crate) struct Sweeper {
    worker: Arc<Worker>,
    alone: Arc<Asked>,
    backoff: Backoff,
}

impl Sweeper {
    pub(crate) fn new(worker: Arc<Worker>, alone: Arc<Asked>) -> Self {
        let backoff = Backoff::for_store();
        Self {
            worker,
            alone,
            backoff,
        }
    }
}

impl Task for Sweeper {
    async fn tick(&mut self) -> Next {
        let worker = &self.worker;
        let settings = &worker.settings;
        let swept = worker
            .store
            .sweep(&settings.scope, settings.max_attempts, settings.lease);
        let swept = match swept.await {
            Ok(swept) => {
                failpoint::hit("after_sweep");
                swept
            }
            Err(error) => {
                worker.store_failed("sweeper", &error);
                return Next::Wait(self.backoff.failed(fastrand::f64()));
            }
        };
        worker.outage.worked("sweeper");
        self.backoff.worked();
        if swept.alone {
            self.alone.ask();
        }
        if swept.dead.is_empty() {
            return Next::Wait(settings.sweep_interval);
        }
        worker.counters.swept(swept.dead.len());
        tracing::warn!(
            rows = swept.dead.len(),
            "rows are dead: their attempts are used up"
        );
        tracing::debug!(dead = ?swept.dead, "rows that are dead");
        // A sweep is bounded; there may be more.
        Next::Again
    }
}
