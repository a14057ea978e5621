//! When to search again: soon under load, rarely when idle. Pure.
//!
//! 5 ms after rows were found, doubling up to the poll interval.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct PollBackoff {
    wait: Duration,
    longest: Duration,
}

impl PollBackoff {
    pub(crate) fn new(longest: Duration) -> Self {
        Self {
            wait: Duration::ZERO,
            longest,
        }
    }

    /// Rows were found, or the finder was woken.
    pub(crate) fn found_rows(&mut self) {
        self.wait = Duration::ZERO;
    }

    /// Nothing is left. Returns how long to wait.
    pub(crate) fn found_nothing(&mut self) -> Duration {
        self.wait = (self.wait * 2).clamp(FIRST.min(self.longest), self.longest);
        self.wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_poll_interval() {
        let mut poll_backoff = PollBackoff::new(Duration::from_millis(500));
        let waits: Vec<u128> = (0..9).map(|_| poll_backoff.found_nothing().as_millis()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 500, 500]);
        poll_backoff.found_rows();
        assert_eq!(poll_backoff.found_nothing(), FIRST);
    }
}
