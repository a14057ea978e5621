//! Whether the store is available, as all tasks of a worker see it.
//!
//! An outage is logged when the first task fails, once a minute while it lasts, and when the last task works again: ten
//! tasks that lose one database are one fact.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    failing: BTreeSet<Arc<str>>,
    warned: Duration,
}

impl StoreHealth {
    /// A call of this task failed.
    pub(crate) fn failed(&self, task: &Arc<str>, error: &StoreError, now: Duration) {
        if self.outage().failed(task, now) {
            tracing::warn!(%task, %error, "database unavailable; retrying");
        } else {
            tracing::debug!(%task, %error, "database unavailable");
        }
    }

    /// A task that failed works again.
    pub(crate) fn worked(&self, task: &str) {
        if self.outage().worked(task) {
            tracing::info!("database available again");
        }
    }

    /// Did the last call of this task fail?
    pub(crate) fn is_failing(&self, task: &str) -> bool {
        self.outage().failing.contains(task)
    }

    fn outage(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outage {
    /// Adds a task. Returns whether to log a warning.
    fn failed(&mut self, task: &Arc<str>, now: Duration) -> bool {
        let is_new = self.failing.is_empty();
        self.failing.insert(Arc::clone(task));
        let warns = is_new || now.saturating_sub(self.warned) >= REPEAT;
        if warns {
            self.warned = now;
        }
        warns
    }

    /// Removes a task. Returns whether the outage is over.
    fn worked(&mut self, task: &str) -> bool {
        self.failing.remove(task) && self.failing.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_once_a_minute_for_all_tasks_together() {
        let mut outage = Outage::default();
        let warned: Vec<u64> = (0..150)
            .filter(|&second| {
                let task = if second % 2 == 0 { "finder" } else { "settler" };
                outage.failed(&task.into(), Duration::from_secs(second))
            })
            .collect();
        assert_eq!(warned, [0, 60, 120]);
    }

    #[test]
    fn an_outage_is_over_when_the_last_task_works_again() {
        let mut outage = Outage::default();
        outage.failed(&"finder".into(), Duration::ZERO);
        outage.failed(&"settler".into(), Duration::ZERO);
        assert!(!outage.worked("finder") && !outage.worked("renewer"));
        assert!(outage.worked("settler"));
        assert!(
            outage.failed(&"finder".into(), Duration::from_secs(1)),
            "a new outage"
        );
    }
}
