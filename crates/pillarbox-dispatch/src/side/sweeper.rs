//! Buries rows whose attempts are used up and that nobody will settle, and finds rows whose lease ran out.
//!
//! **If we die here** the next sweep finds them again, whoever makes it.

use std::sync::Arc;

use pillarbox::failpoint;
use pillarbox_store::store::SweepRequest;

use crate::claim::claimer::Signals;
use crate::claim::suspects::Asked;
use crate::send::handle::{Entrance, closed};
use crate::worker::Worker;
use crate::worker::store_health::Backoff;
use crate::worker::task::{Next, Task};

/// See the module.
pub(crate) struct Sweeper {
    worker: Arc<Worker>,
    entrances: Arc<[Entrance]>,
    signals: Arc<Signals>,
    usher: Arc<Asked>,
    backoff: Backoff,
}

impl Sweeper {
    pub(crate) fn new(
        worker: Arc<Worker>,
        entrances: Arc<[Entrance]>,
        signals: Arc<Signals>,
        usher: Arc<Asked>,
    ) -> Self {
        Self {
            worker,
            entrances,
            signals,
            usher,
            backoff: Backoff::for_store(),
        }
    }

    fn request(&self) -> SweepRequest {
        let settings = &self.worker.settings;
        SweepRequest {
            worker: self.worker.id,
            scope: settings.scope.clone(),
            max_attempts: settings.max_attempts,
            grace: settings.lease,
            excluded: closed(&self.entrances, self.worker.now()),
        }
    }
}

impl Task for Sweeper {
    async fn tick(&mut self) -> Next {
        let worker = &self.worker;
        let swept = match worker.store.sweep(&self.request()).await {
            Ok(swept) => {
                failpoint::hit("after_sweep");
                swept
            }
            Err(error) => {
                worker.store_failed("sweeper", &error);
                return Next::Wait(self.backoff.failed(fastrand::f64()));
            }
        };
        worker.store_health.worked("sweeper");
        self.backoff.worked();
        if swept.suspects {
            self.signals.suspects.ask();
        }
        if swept.lone_suspect {
            self.signals.lone_suspect.ask();
        }
        if swept.dead.is_empty() {
            // What a dead worker held should not wait much longer than its lease.
            let settings = &worker.settings;
            return Next::Wait(settings.sweep_interval.min(settings.lease / 4));
        }
        worker.counters.swept(swept.dead.len());
        tracing::warn!(
            rows = swept.dead.len(),
            "rows are dead: their attempts are used up"
        );
        tracing::debug!(dead = ?swept.dead, "rows that are dead");
        self.usher.ask();
        // A sweep is bounded; there may be more.
        Next::Again
    }
}
