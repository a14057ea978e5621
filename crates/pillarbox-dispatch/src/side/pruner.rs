//! Deletes what was kept long enough: events, ended sagas, marks of inboxes.
//!
//! A pass reads all that may be old enough, a small batch at a time. One worker of a scope does it. After each batch it rests for
//! several times as long as that took, so it never takes more than a tenth of the time of one connection. A pass that found
//! nothing is followed by a longer rest.
//!
//! **If we die here** another worker prunes when the lease has expired. What was deleted is gone, and the rest is found again.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::internal::LineLimit;
use pillarbox::{StoreError, failpoint};
use pillarbox_store::retention::{Place, PruneRequest, Pruned, What};

use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// How many times as long as a batch the rest after it is.
const REST: u32 = 9;
/// The same after a pass that deleted nothing.
const IDLE_REST: u32 = 99;

/// See the module.
pub(crate) struct Pruner {
    worker: Arc<Worker>,
    passes: Vec<Pass>,
    lines: LineLimit,
}

/// A pass over all that is of one kind.
struct Pass {
    what: What,
    /// Where it goes on; `None` before it begins.
    after: Option<Place>,
    /// When it goes on.
    due: Duration,
    /// How long it took so far, and what it deleted.
    took: Duration,
    deleted: Pruned,
}

impl Pruner {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        let retention = &worker.settings.retention;
        let pruned = What::ALL.into_iter().filter(|what| retention.prunes(*what));
        let passes = pruned.map(|what| Pass {
            what,
            after: None,
            due: worker.now(),
            took: Duration::ZERO,
            deleted: Pruned::default(),
        });
        let passes = passes.collect();
        Self {
            worker,
            passes,
            lines: LineLimit::default(),
        }
    }
}

impl Pass {
    fn request(&self, worker: &Worker) -> PruneRequest {
        let settings = &worker.settings;
        PruneRequest {
            worker: worker.id,
            // Longer than the rests, so that a pass stays with one worker.
            lease: settings.lease.saturating_add(settings.prune_interval),
            what: self.what,
            scope: settings.scope.clone(),
            retention: settings.retention.clone(),
            batch: settings.prune_batch,
            after: self.after.clone(),
            dry_run: false,
            archive: worker.archive.clone(),
        }
    }

    /// A batch was read, and took this long.
    fn went_on(&mut self, pruned: Pruned, took: Duration, now: Duration, interval: Duration) {
        self.took += took;
        self.deleted.add(&pruned);
        self.after = pruned.after;
        if self.after.is_some() {
            self.due = now + took * REST;
            return;
        }
        let deleted = std::mem::take(&mut self.deleted);
        let is_idle = deleted.total() == 0;
        if !is_idle {
            tracing::info!(
                deleted_delivered = deleted.delivered,
                deleted_dead = deleted.dead,
                deleted_sagas = deleted.sagas,
                deleted_marks = deleted.marks,
                "cleanup completed"
            );
        }
        let rest = std::mem::take(&mut self.took) * if is_idle { IDLE_REST } else { REST };
        self.due = now + rest.max(interval);
    }
}

impl Task for Pruner {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let worker = Arc::clone(&self.worker);
        let Some(pass) = self.passes.iter_mut().min_by_key(|pass| pass.due) else {
            return Ok(Next::Done); // everything is kept
        };
        let began = worker.now();
        if let Some(wait) = pass.due.checked_sub(began).filter(|wait| !wait.is_zero()) {
            return Ok(Next::Wait(wait));
        }
        let pruned = match worker.store.prune(&pass.request(&worker)).await {
            Ok(pruned) => pruned,
            Err(error @ StoreError::Unavailable(_)) => return Err(error),
            // It concerns the pruner alone, such as an archive on a full disk.
            Err(error) => {
                worker.store_error();
                if let Some(suppressed) = self.lines.allow(began) {
                    let suppressed = (suppressed > 0).then_some(suppressed);
                    tracing::warn!(%error, suppressed, "cleanup failed; retrying");
                }
                return Ok(Next::Retry);
            }
        };
        failpoint::hit("after_prune");
        let now = worker.now();
        worker.counters.pruned(&pruned);
        worker.metrics.pruned(&pruned, now.saturating_sub(began));
        let interval = worker.settings.prune_interval;
        pass.went_on(pruned, now.saturating_sub(began), now, interval);
        let next = self.passes.iter().map(|pass| pass.due).min();
        Ok(Next::Wait(next.unwrap_or(now).saturating_sub(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    fn pass() -> Pass {
        Pass {
            what: What::Delivered,
            after: None,
            due: Duration::ZERO,
            took: Duration::ZERO,
            deleted: Pruned::default(),
        }
    }

    fn more(delivered: u64) -> Pruned {
        Pruned {
            delivered,
            after: Some(Place::default()),
            ..Pruned::default()
        }
    }

    fn last(delivered: u64) -> Pruned {
        Pruned {
            delivered,
            ..Pruned::default()
        }
    }

    #[test]
    fn a_batch_is_followed_by_a_rest_of_nine_times_its_time() {
        let mut pass = pass();
        pass.went_on(more(10), SECOND, 5 * SECOND, MINUTE);
        assert_eq!((pass.due, pass.deleted.delivered), (14 * SECOND, 10));
    }

    #[test]
    fn the_next_pass_begins_after_the_interval_or_a_longer_rest() {
        let mut short = pass();
        short.went_on(last(1), SECOND, Duration::ZERO, MINUTE);
        assert_eq!(short.due, MINUTE);
        let mut long = pass();
        long.went_on(more(1), 10 * SECOND, Duration::ZERO, MINUTE);
        long.went_on(last(0), 10 * SECOND, Duration::ZERO, MINUTE);
        assert_eq!(long.due, 180 * SECOND);
    }

    #[test]
    fn a_pass_that_deletes_nothing_takes_a_hundredth_of_the_time() {
        let mut pass = pass();
        pass.went_on(last(0), 10 * SECOND, Duration::ZERO, MINUTE);
        assert_eq!(pass.due, 990 * SECOND);
    }
}
