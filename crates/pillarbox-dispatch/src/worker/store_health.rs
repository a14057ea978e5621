//! Says once that the store is gone and once that it is back, and how long to wait in between.
//!
//! Every task that talks to the store reports here. Only the first that fails is heard, and only the
//! last that works again: five tasks that lose one database are one fact.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pillarbox::StoreError;

/// Waits between tries: the first, and the longest.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// Which tasks find the store gone.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    failing: Mutex<BTreeSet<&'static str>>,
}

impl StoreHealth {
    /// This task's call failed.
    pub(crate) fn failed(&self, task: &'static str, error: &StoreError) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.is_empty() {
            tracing::warn!(task, %error, "the store does not answer; trying again until it does");
        } else {
            tracing::debug!(task, %error, "the store does not answer");
        }
        failing.insert(task);
    }

    /// Does this task find the store gone?
    pub(crate) fn is_failing(&self, task: &'static str) -> bool {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.contains(task)
    }

    /// This task's call worked, or it has nothing to ask any more.
    pub(crate) fn worked(&self, task: &'static str) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.remove(task) && failing.is_empty() {
            tracing::info!("the store answers again");
        }
    }
}

/// Doubling waits, half of each random, so that workers do not come back all at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// For a store that does not answer.
    pub(crate) fn for_store() -> Self {
        Self::new(FIRST, LONGEST)
    }

    /// It failed once more: how long to wait. `random` is uniform in [0, 1).
    pub(crate) fn failed(&mut self, random: f64) -> Duration {
        let factor = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        let whole = self.first.saturating_mul(factor).min(self.longest);
        whole / 2 + (whole / 2).mul_f64(random)
    }

    /// It worked: the next wait is the first again.
    pub(crate) fn worked(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_start_again() {
        let mut backoff = Backoff::for_store();
        let waits: Vec<u128> = (0..8).map(|_| backoff.failed(1.0).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        backoff.worked();
        assert_eq!(backoff.failed(0.0), Duration::from_millis(50));
    }

    #[test]
    fn many_failures_do_not_overflow() {
        let mut backoff = Backoff::for_store();
        assert!((0..100).all(|_| backoff.failed(0.5) <= LONGEST));
    }
}
