//! How many attempts may start: a token bucket. Pure.

use std::time::Duration;

use crate::policy::Rate;

/// See the module.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    rate: Rate,
    tokens: f64,
    filled: Duration,
}

impl TokenBucket {
    /// A full bucket.
    pub(crate) fn new(rate: Rate, now: Duration) -> Self {
        Self {
            rate,
            tokens: f64::from(rate.burst),
            filled: now,
        }
    }

    /// Takes a token if there is one.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        self.fill(now);
        let taken = self.tokens >= 1.0;
        if taken {
            self.tokens -= 1.0;
        }
        taken
    }

    /// Gives a token back that was not used.
    pub(crate) fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(f64::from(self.rate.burst));
    }

    /// When the next token is available.
    pub(crate) fn next(&self) -> Duration {
        let missing = (1.0 - self.tokens).max(0.0);
        // One nanosecond more, so that rounding cannot ask before the token is there.
        let wait = Duration::try_from_secs_f64(missing / self.rate.per_second).unwrap_or(Duration::MAX);
        self.filled
            .saturating_add(wait)
            .saturating_add(Duration::from_nanos(1))
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate.per_second).min(f64::from(self.rate.burst));
        self.filled = self.filled.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bucket(per_second: f64, burst: u32) -> TokenBucket {
        TokenBucket::new(Rate { per_second, burst }, Duration::ZERO)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_limits() {
        let mut bucket = bucket(10.0, 3);
        let at = |ms| Duration::from_millis(ms);
        let taken: Vec<bool> = (0..4).map(|_| bucket.take(at(0))).collect();
        assert_eq!(taken, [true, true, true, false]);
        assert!(!bucket.take(at(99)) && bucket.take(at(101)) && !bucket.take(at(102)));
    }

    #[test]
    fn a_token_is_available_when_next_says_so() {
        let mut bucket = bucket(3.0, 1);
        assert!(bucket.take(Duration::ZERO) && !bucket.take(Duration::ZERO));
        let next = bucket.next();
        assert!(bucket.take(next));
    }

    #[test]
    fn a_token_that_is_given_back_can_be_taken_again_within_the_burst() {
        let mut bucket = bucket(0.001, 2);
        bucket.give_back();
        let at = Duration::ZERO;
        assert!(bucket.take(at) && bucket.take(at) && !bucket.take(at));
        bucket.give_back();
        assert!(bucket.take(at) && !bucket.take(at));
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_rate_allow(
            per_second in 0.1f64..1000.0, burst in 1u32..50, steps in prop::collection::vec(0u64..500, 1..200)
        ) {
            let mut bucket = bucket(per_second, burst);
            let mut now = Duration::ZERO;
            let mut taken = 0u32;
            for step in steps {
                now += Duration::from_millis(step);
                taken += u32::from(bucket.take(now));
                prop_assert!(f64::from(taken) <= f64::from(burst) + now.as_secs_f64() * per_second + 1e-6);
            }
        }
    }
}
