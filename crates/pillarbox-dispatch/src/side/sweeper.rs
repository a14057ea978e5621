//! Makes rows dead whose attempts are used up and that no worker will settle, and finds suspects.
//!
//! **If we die here** the next sweep of any worker finds them again.

use std::sync::Arc;

use pillarbox::{StoreError, failpoint};
use pillarbox_store::store::SweepRequest;

use crate::claim::claimer::Signals;
use crate::send::handle::{DestinationHandle, unavailable};
use crate::worker::Worker;
use crate::worker::flag::Flag;
use crate::worker::task::{Next, Task};

/// See the module.
pub(crate) struct Sweeper {
    worker: Arc<Worker>,
    destinations: Arc<[DestinationHandle]>,
    signals: Arc<Signals>,
    /// Raised when rows have become dead: they may block their keys.
    has_dead: Arc<Flag>,
}

impl Sweeper {
    pub(crate) fn new(
        worker: Arc<Worker>,
        destinations: Arc<[DestinationHandle]>,
        signals: Arc<Signals>,
        has_dead: Arc<Flag>,
    ) -> Self {
        Self {
            worker,
            destinations,
            signals,
            has_dead,
        }
    }

    fn request(&self) -> SweepRequest {
        let settings = &self.worker.settings;
        SweepRequest {
            worker: self.worker.id,
            scope: settings.scope.clone(),
            max_attempts: settings.max_attempts,
            grace: settings.lease,
            excluded: unavailable(&self.destinations),
        }
    }
}

impl Task for Sweeper {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let worker = &self.worker;
        let swept = worker.store.sweep(&self.request()).await?;
        failpoint::hit("after_sweep");
        if swept.suspects {
            self.signals.suspects.raise();
        }
        if swept.lone_suspect {
            self.signals.lone_suspect.raise();
        }
        if swept.dead.is_empty() {
            // The rows of a dead worker should not wait much longer than their lease.
            let settings = &worker.settings;
            return Ok(Next::Wait(settings.sweep_interval.min(settings.lease / 4)));
        }
        worker.counters.swept(swept.dead.len());
        tracing::warn!(rows = swept.dead.len(), "attempts used up, rows are dead");
        tracing::debug!(dead = ?swept.dead, "rows that are dead");
        self.has_dead.raise();
        // A sweep is bounded; there may be more.
        Ok(Next::Again)
    }
}
