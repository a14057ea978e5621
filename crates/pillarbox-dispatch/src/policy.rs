//! How one row is treated at its destination: what the destination says, unless the route says otherwise.

use std::time::Duration;

use pillarbox::RetryPolicy;

/// What follows for the others of its key when a row is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDead {
    /// They wait until a person has retried or skipped it.
    #[default]
    Block,
    /// They go on without it.
    Continue,
}

/// How rows are treated.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// When to try again, and when to give up.
    pub retry: RetryPolicy,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// What follows for the others of its key when a row is dead.
    pub on_dead: OnDead,
    /// May a row of a key be sent before the one before it is confirmed? Only for sinks that keep the order in
    /// which they are called. Quicker by the time of a round trip, and gives order up for a row that is refused.
    pub pipelined: bool,
}

/// What a route says otherwise.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides {
    /// When to try again, and when to give up.
    pub retry: Option<RetryPolicy>,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// What follows for the others of its key when a row is dead.
    pub on_dead: Option<OnDead>,
    /// May a row of a key be sent before the one before it is confirmed?
    pub pipelined: Option<bool>,
}

impl Policy {
    /// This policy as a route changes it.
    #[must_use]
    pub fn with(&self, overrides: &Overrides) -> Self {
        Self {
            retry: overrides.retry.clone().unwrap_or_else(|| self.retry.clone()),
            timeout: overrides.timeout.unwrap_or(self.timeout),
            on_dead: overrides.on_dead.unwrap_or(self.on_dead),
            pipelined: overrides.pipelined.unwrap_or(self.pipelined),
        }
    }

    /// This policy for a row that says itself how many attempts it has.
    pub(crate) fn limited(&self, attempts: u32) -> Self {
        Self {
            retry: self.retry.clone().max_attempts(attempts),
            ..self.clone()
        }
    }

    /// How many attempts a row has; `None` for ever.
    pub(crate) fn limit(&self) -> u32 {
        self.retry.limit().unwrap_or(u32::MAX)
    }
}

/// How many attempts may begin in a while: a bucket that fills steadily and never holds more than a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How many in a second, on average.
    pub per_second: f64,
    /// How many at once after a rest.
    pub burst: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_with_a_limit_of_its_own_has_more_or_fewer_attempts_and_the_same_waits() {
        let policy = Policy {
            retry: RetryPolicy::steps(vec![Duration::from_secs(7)]).max_attempts(4),
            timeout: Duration::from_secs(1),
            on_dead: OnDead::Block,
            pipelined: false,
        };
        for attempts in [1, 9] {
            let own = policy.limited(attempts);
            assert_eq!(own.limit(), attempts);
            assert_eq!(own.retry.schedule(), policy.retry.schedule());
            assert_eq!(own.timeout, policy.timeout);
        }
    }
}
