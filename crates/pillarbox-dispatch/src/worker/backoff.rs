//! Waits that double after each failure. Pure.

use std::time::Duration;

/// Waits after a store error: the first, and the longest.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// Doubling waits, half of each random, so that workers do not return all at once.
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

    /// For calls to the store.
    pub(crate) fn for_store() -> Self {
        Self::new(FIRST, LONGEST)
    }

    /// One more failure. Returns how long to wait. `random` is uniform in [0, 1).
    pub(crate) fn failed(&mut self, random: f64) -> Duration {
        let factor = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        let whole = self.first.saturating_mul(factor).min(self.longest);
        whole / 2 + (whole / 2).mul_f64(random)
    }

    /// A success: the next wait is the first again.
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
