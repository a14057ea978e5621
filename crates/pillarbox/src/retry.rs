//! When the next attempt is due, and after how many the dispatcher gives up.
//!
//! One policy expresses every schedule that outboxes use; the tests below spell out those of five.

use std::time::Duration;

/// How long to wait after the n-th failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// `min(base · 2^(attempts-1), max)`.
    Exponential {
        /// The wait after the first attempt.
        base: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// These waits one after another; the last one is repeated.
    Steps(Vec<Duration>),
}

/// How waits are spread so that failed events do not come back all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// Exactly the schedule.
    None,
    /// Uniform between half of the wait and the whole of it.
    Equal,
}

/// When to try again, and when to give up.
///
/// The default is Pillarbox's own: 1 s doubling up to 1 h, half of each wait random, 25 attempts,
/// which is between 8 and 16 hours of trying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    schedule: Schedule,
    jitter: Jitter,
    max_attempts: Option<u32>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1), Duration::from_secs(3600)).max_attempts(25)
    }
}

impl RetryPolicy {
    /// Doubling waits with equal jitter, for ever unless [`max_attempts`](Self::max_attempts) is set.
    pub fn exponential(base: Duration, max: Duration) -> Self {
        Self {
            schedule: Schedule::Exponential { base, max },
            jitter: Jitter::Equal,
            max_attempts: None,
        }
    }

    /// The given waits, the last one repeated; exact, for ever unless a limit is set.
    /// No wait at all means "at once".
    pub fn steps(steps: Vec<Duration>) -> Self {
        Self {
            schedule: Schedule::Steps(steps),
            jitter: Jitter::None,
            max_attempts: None,
        }
    }

    /// Sets how many attempts there are in all. Zero counts as one.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts.max(1));
        self
    }

    /// Sets the jitter.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// How long the waits are, before chance.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// How the waits are spread.
    pub fn spread(&self) -> Jitter {
        self.jitter
    }

    /// How many attempts there are in all; `None` is for ever.
    pub fn limit(&self) -> Option<u32> {
        self.max_attempts
    }

    /// How long all waits take together at most, from the first attempt to the last; `None` is for ever.
    pub fn longest(&self) -> Option<Duration> {
        let waits = (1..self.max_attempts?).map_while(|attempts| self.delay(attempts, 1.0));
        Some(waits.fold(Duration::ZERO, Duration::saturating_add))
    }

    /// The wait after `attempts` attempts, or `None` when they are used up.
    /// `random` is uniform in [0, 1).
    pub fn delay(&self, attempts: u32, random: f64) -> Option<Duration> {
        if self.max_attempts.is_some_and(|max| attempts >= max) {
            return None;
        }
        let delay = match &self.schedule {
            Schedule::Exponential { base, max } => {
                // 2^63 of anything is past every cap; a larger shift would only overflow.
                let doublings = attempts.saturating_sub(1).min(63);
                let factor = u32::try_from(1u64 << doublings).unwrap_or(u32::MAX);
                base.saturating_mul(factor).min(*max)
            }
            Schedule::Steps(steps) => {
                let index = (attempts.saturating_sub(1) as usize).min(steps.len().saturating_sub(1));
                steps.get(index).copied().unwrap_or_default()
            }
        };
        Some(match self.jitter {
            Jitter::None => delay,
            Jitter::Equal => delay / 2 + (delay / 2).mul_f64(random.clamp(0.0, 1.0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{ProptestConfig, any};
    use proptest::{prop_assert, proptest};

    fn ms(values: &[u64]) -> Vec<Duration> {
        values.iter().copied().map(Duration::from_millis).collect()
    }

    /// The waits of a policy without chance in it, until it gives up or `most` were seen.
    fn waits(policy: &RetryPolicy, most: u32) -> Vec<Duration> {
        (1..=most)
            .map_while(|attempts| policy.delay(attempts, 0.5))
            .collect()
    }

    #[test]
    fn modkit_doubles_up_to_a_maximum_and_is_dead_when_attempts_are_used_up() {
        let policy =
            RetryPolicy::exponential(Duration::from_secs(1), Duration::from_secs(300)).max_attempts(12);
        let longest: Vec<u64> = (1..12)
            .map(|n| policy.delay(n, 1.0).expect("attempts are left").as_secs())
            .collect();
        assert_eq!(longest, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        let shortest: Vec<u128> = (1..12)
            .map(|n| policy.delay(n, 0.0).expect("attempts are left").as_millis())
            .collect();
        assert_eq!(
            shortest,
            [
                500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 150000, 150000
            ]
        );
        assert_eq!(policy.delay(12, 0.5), None);
    }

    #[test]
    fn rediver_tries_four_times_with_2_4_and_8_minutes_between() {
        let policy = RetryPolicy::exponential(Duration::from_secs(120), Duration::from_secs(3600))
            .jitter(Jitter::None)
            .max_attempts(4);
        assert_eq!(waits(&policy, 10), ms(&[120_000, 240_000, 480_000]));
    }

    #[test]
    fn family_hub_never_gives_up() {
        let policy = RetryPolicy::steps(ms(&[1000, 2000, 5000, 15_000, 60_000, 300_000, 900_000]));
        assert_eq!(
            waits(&policy, 9),
            ms(&[
                1000, 2000, 5000, 15_000, 60_000, 300_000, 900_000, 900_000, 900_000
            ])
        );
        assert_eq!(policy.delay(u32::MAX, 0.0), Some(Duration::from_secs(900)));
        assert_eq!(policy.longest(), None);
    }

    #[test]
    fn order_service_gives_up_at_the_fifth_failure() {
        let policy = RetryPolicy::exponential(Duration::from_millis(100), Duration::from_secs(60))
            .jitter(Jitter::None)
            .max_attempts(5);
        assert_eq!(waits(&policy, 10), ms(&[100, 200, 400, 800]));
    }

    #[test]
    fn arap_tries_three_times_once_a_poll() {
        let poll = Duration::from_secs(30);
        let policy = RetryPolicy::steps(vec![poll]).max_attempts(3);
        assert_eq!(waits(&policy, 10), [poll, poll]);
    }

    #[test]
    fn the_default_tries_for_hours() {
        let policy = RetryPolicy::default();
        let total = |random| -> Duration { (1..25).filter_map(|n| policy.delay(n, random)).sum() };
        assert_eq!(policy.limit(), Some(25));
        assert_eq!(total(1.0).as_secs(), 4095 + 12 * 3600);
        assert_eq!(policy.longest(), Some(total(1.0)));
        assert!(total(0.0) >= total(1.0) / 2 - Duration::from_secs(1));
        assert_eq!(policy.delay(25, 0.0), None);
    }

    #[test]
    fn no_steps_means_at_once() {
        assert_eq!(RetryPolicy::steps(vec![]).delay(7, 0.3), Some(Duration::ZERO));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn equal_jitter_stays_between_half_and_whole(
            base in 0u64..1 << 40, max in 0u64..1 << 45, attempts in any::<u32>(), random in 0.0f64..1.0
        ) {
            let policy = RetryPolicy::exponential(Duration::from_millis(base), Duration::from_millis(max));
            let whole = policy.clone().jitter(Jitter::None).delay(attempts, 0.0).expect("for ever");
            let delay = policy.delay(attempts, random).expect("for ever");
            prop_assert!(whole <= Duration::from_millis(max));
            prop_assert!(delay <= whole + Duration::from_nanos(1));
            prop_assert!(delay + Duration::from_nanos(1) >= whole / 2);
        }
    }
}
