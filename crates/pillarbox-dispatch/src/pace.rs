//! When to look for rows again: quick under load, quiet when idle. Pure.
//!
//! After a look that found something at once; after one that found nothing 5 ms, doubling up to the
//! poll interval. Once there, the worker is idle and asks the store's cheap question first.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct Pace {
    wait: Duration,
    longest: Duration,
    /// Did the cheap question say yes and the claim find nothing? Then it is not asked until a claim
    /// finds something: two queries are no cheaper than one.
    misled: bool,
}

impl Pace {
    pub(crate) fn new(longest: Duration) -> Self {
        Self {
            wait: Duration::ZERO,
            longest,
            misled: false,
        }
    }

    /// Should the cheap question be asked before a claim?
    pub(crate) fn probes(&self) -> bool {
        self.wait >= self.longest && !self.misled
    }

    /// A claim found something.
    pub(crate) fn found(&mut self) {
        self.wait = Duration::ZERO;
        self.misled = false;
    }

    /// Somebody says that there is something.
    pub(crate) fn wake(&mut self) {
        self.wait = Duration::ZERO;
    }

    /// Nothing was found: how long to wait.
    pub(crate) fn nothing(&mut self) -> Duration {
        self.wait = (self.wait * 2).clamp(FIRST.min(self.longest), self.longest);
        self.wait
    }

    /// The cheap question said yes, and a claim found nothing.
    pub(crate) fn misled(&mut self) {
        self.misled = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_poll_interval() {
        let mut pace = Pace::new(Duration::from_millis(500));
        let waits: Vec<u128> = (0..9).map(|_| pace.nothing().as_millis()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 500, 500]);
        assert!(pace.probes());
        pace.found();
        assert!(!pace.probes());
        assert_eq!(pace.nothing(), FIRST);
    }

    #[test]
    fn a_question_that_misled_is_not_asked_until_something_is_found() {
        let mut pace = Pace::new(FIRST);
        pace.nothing();
        assert!(pace.probes());
        pace.misled();
        assert!(!pace.probes());
        pace.found();
        pace.nothing();
        assert!(pace.probes());
    }
}
