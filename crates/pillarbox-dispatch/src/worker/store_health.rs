//! Whether the store is available, as all tasks of a worker see it.
//!
//! An outage is logged when the first task fails, once a minute while it lasts, and when the last task works again: ten
//! tasks that lose one database are one fact.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox::StoreError;

/// How often a warning is repeated while an outage lasts.
const REPEAT: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    outage: Mutex<Outage>,
}

#[derive(Debug, Default)]
struct Outage {
    failing: BTreeSet<&'static str>,
    warned: Duration,
}

impl StoreHealth {
    /// A call of this task failed.
    pub(crate) fn failed(&self, task: &'static str, error: &StoreError, now: Duration) {
        let mut outage = self.outage();
        let is_new = outage.failing.is_empty();
        outage.failing.insert(task);
        if is_new || now.saturating_sub(outage.warned) >= REPEAT {
            outage.warned = now;
            tracing::warn!(task, %error, "database unavailable; retrying");
        } else {
            tracing::debug!(task, %error, "database unavailable");
        }
    }

    /// A task that failed works again.
    pub(crate) fn worked(&self, task: &'static str) {
        let mut outage = self.outage();
        if outage.failing.remove(task) && outage.failing.is_empty() {
            tracing::info!("database available again");
        }
    }

    /// Did the last call of this task fail?
    pub(crate) fn is_failing(&self, task: &'static str) -> bool {
        self.outage().failing.contains(task)
    }

    fn outage(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
