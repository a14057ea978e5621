//! Whether the store is available, as all tasks of a worker see it.
//!
//! An outage is logged when the first task fails, once a minute while it lasts, and when the last task works again: ten
//! tasks that lose one database are one fact.
//!
//! A database that answers and refuses, such as for a missing permission, is another fact: waiting mends an outage, and an
//! operator must mend this one. It is an error from its first line.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::Gauge;
use pillarbox::StoreError;

/// How often a warning is repeated while an outage lasts.
const REPEAT: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(crate) struct StoreHealth {
    failures: Mutex<Failures>,
    /// 1 while no task fails.
    up: Gauge,
}

#[derive(Debug, Default)]
struct Failures {
    unavailable: Tasks,
    refused: Tasks,
}

/// The tasks that fail for one reason.
#[derive(Debug, Default)]
struct Tasks {
    failing: BTreeSet<Arc<str>>,
    warned: Duration,
}

impl StoreHealth {
    pub(crate) fn new(up: Gauge) -> Self {
        up.set(1.0);
        Self {
            failures: Mutex::default(),
            up,
        }
    }

    /// A call of this task failed.
    pub(crate) fn failed(&self, task: &Arc<str>, error: &StoreError, now: Duration) {
        let mut failures = self.failures();
        self.up.set(0.0);
        if matches!(error, StoreError::Unavailable(_)) {
            failures.refused.worked(task);
            if failures.unavailable.failed(task, now) {
                tracing::warn!(%task, %error, "database unavailable; retrying");
                return;
            }
        } else {
            failures.unavailable.worked(task);
            if failures.refused.failed(task, now) {
                tracing::error!(%task, %error, "database rejects statements; retrying");
                return;
            }
        }
        tracing::debug!(%task, %error, "database call failed");
    }

    /// A task that failed works again.
    pub(crate) fn worked(&self, task: &str) {
        let mut failures = self.failures();
        if failures.unavailable.worked(task) {
            tracing::info!("database available again");
        }
        if failures.refused.worked(task) {
            tracing::info!("database accepts statements again");
        }
        if failures.unavailable.failing.is_empty() && failures.refused.failing.is_empty() {
            self.up.set(1.0);
        }
    }

    /// Did the last call of this task fail?
    pub(crate) fn is_failing(&self, task: &str) -> bool {
        let failures = self.failures();
        failures.unavailable.failing.contains(task) || failures.refused.failing.contains(task)
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tasks {
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

    /// Removes a task. Returns whether it was the last.
    fn worked(&mut self, task: &str) -> bool {
        self.failing.remove(task) && self.failing.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use pillarbox_testkit::CapturedLogs;
    use tracing::Level;

    use super::*;

    #[test]
    fn an_outage_is_logged_once_a_minute_for_all_tasks_together() {
        let mut outage = Tasks::default();
        let warned: Vec<u64> = (0..150)
            .filter(|&second| {
                let task = if second % 2 == 0 { "finder" } else { "settler" };
                outage.failed(&task.into(), Duration::from_secs(second))
            })
            .collect();
        assert_eq!(warned, [0, 60, 120]);
    }

    #[test]
    fn a_refusal_is_an_error_and_no_outage() {
        let logs = CapturedLogs::start();
        let health = StoreHealth::new(Gauge::noop());
        let denied = || StoreError::Denied("permission denied for table outbox_events (42501)".to_owned());
        let second = Duration::from_secs;
        health.failed(
            &"settler".into(),
            &StoreError::Unavailable("x".to_owned()),
            second(0),
        );
        health.failed(&"settler".into(), &denied(), second(1));
        health.failed(&"settler".into(), &denied(), second(2));
        assert!(health.is_failing("settler"));
        health.worked("settler");
        let lines: Vec<(Level, String)> = logs
            .lines()
            .into_iter()
            .filter(|line| line.level <= Level::INFO)
            .map(|line| (line.level, line.message))
            .collect();
        let expected = [
            (Level::WARN, "database unavailable; retrying"),
            (Level::ERROR, "database rejects statements; retrying"),
            (Level::INFO, "database accepts statements again"),
        ];
        assert_eq!(
            lines,
            expected.map(|(level, message)| (level, message.to_owned()))
        );
    }

    #[test]
    fn an_outage_is_over_when_the_last_task_works_again() {
        let mut outage = Tasks::default();
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
