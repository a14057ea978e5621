//! Makes rows dead whose attempts are used up and that no worker will settle, and finds suspects.
//!
//! **If we die here** the next sweep of any worker finds them again.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::internal::LineLimit;
use pillarbox::text::error_text;
use pillarbox::{StoreError, failpoint};
use pillarbox_store::store::{DeadRow, SweepRequest};

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
    dead_lines: LineLimit,
    /// Did the last sweep find a suspect to be tried alone?
    saw_lone_suspect: bool,
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
            dead_lines: LineLimit::default(),
            saw_lone_suspect: false,
        }
    }

    /// A suspect that is tried alone stops a worker for a moment. All workers see it, and one is enough. So each waits for
    /// a random time and looks again before it stops. Returns the wait.
    fn lone_suspect(&mut self, is_there: bool, interval: Duration) -> Duration {
        let saw_it = std::mem::replace(&mut self.saw_lone_suspect, is_there);
        if is_there && !saw_it {
            return interval.mul_f64(fastrand::f64());
        }
        if is_there {
            self.signals.lone_suspect.raise();
        }
        interval
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

/// Logs rows that became dead without an attempt of this worker.
fn log(rows: &[DeadRow], lines: &mut LineLimit, now: Duration) {
    for row in rows {
        let Some(suppressed) = lines.allow(now) else {
            continue;
        };
        tracing::error!(
            event_id = %row.event,
            destination = row.destination,
            attempt = row.attempts,
            error = error_text(&row.reason),
            suppressed = (suppressed > 0).then_some(suppressed),
            "event is dead"
        );
        if let Some(key) = &row.ordering_key {
            tracing::error!(
                namespace = row.namespace,
                ordering_key = key,
                destination = row.destination,
                event_id = %row.event,
                "ordering key blocked"
            );
        }
    }
}

impl Task for Sweeper {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let worker = Arc::clone(&self.worker);
        let swept = worker.store.sweep(&self.request()).await?;
        failpoint::hit("after_sweep");
        if swept.suspects {
            self.signals.suspects.raise();
        }
        // The rows of a dead worker should not wait much longer than their lease.
        let interval = worker.settings.sweep_interval.min(worker.settings.lease / 4);
        let wait = self.lone_suspect(swept.lone_suspect, interval);
        if swept.dead.is_empty() {
            return Ok(Next::Wait(wait));
        }
        worker.counters.swept(swept.dead.len());
        let now = worker.now();
        log(&swept.rows, &mut self.dead_lines, now);
        for row in &swept.rows {
            worker.metrics.dead(row.destination.as_deref());
            worker.dead_events.add(row.event, now);
        }
        self.has_dead.raise();
        // A sweep is bounded; there may be more.
        Ok(Next::Again)
    }
}
