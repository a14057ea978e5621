//! How a destination treats its rows. A route may override it.

use std::time::Duration;

use pillarbox::RetryPolicy;

/// What a dead row means for the other rows of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDead {
    /// They wait until an operator retries or skips it.
    #[default]
    Block,
    /// They continue without it.
    Continue,
}

/// How a destination treats its rows.
///
/// ```
/// # use std::time::Duration;
/// use pillarbox::RetryPolicy;
/// use pillarbox_dispatch::Policy;
///
/// let policy = Policy::default()
///     .timeout(Duration::from_secs(5))
///     .retry(RetryPolicy::default().max_attempts(10));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// When to retry, and when to give up.
    pub retry: RetryPolicy,
    /// How long one attempt may take. A lease must be at least twice as long.
    pub timeout: Duration,
    /// What a dead row means for the other rows of its key.
    pub on_dead: OnDead,
    /// May a row of a key be sent before the row before it is confirmed? Only for sinks that keep the order of calls. It
    /// saves one round trip per row, and a rejected row loses its place in the order.
    pub pipelined: bool,
    /// Does the order of a key cover only first attempts? Then a row that failed leaves its lane. It is retried apart, and
    /// the rows behind it continue.
    pub first_attempts_only: bool,
}

impl Default for Policy {
    /// The default retries, a timeout of 20 seconds, and a dead row blocks its key.
    fn default() -> Self {
        Self {
            retry: RetryPolicy::default(),
            timeout: Duration::from_secs(20),
            on_dead: OnDead::Block,
            pipelined: false,
            first_attempts_only: false,
        }
    }
}

/// What a route changes in the policy of its destination.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides {
    /// When to retry, and when to give up.
    pub retry: Option<RetryPolicy>,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// What a dead row means for the other rows of its key.
    pub on_dead: Option<OnDead>,
    /// May a row of a key be sent before the row before it is confirmed?
    pub pipelined: Option<bool>,
    /// Does the order of a key cover only first attempts?
    pub first_attempts_only: Option<bool>,
}

impl Policy {
    /// Sets when to retry, and when to give up.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Sets how long one attempt may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets what a dead row means for the other rows of its key.
    #[must_use]
    pub fn on_dead(mut self, on_dead: OnDead) -> Self {
        self.on_dead = on_dead;
        self
    }

    /// Sets whether a row of a key may be sent before the row before it is confirmed.
    #[must_use]
    pub fn pipelined(mut self, pipelined: bool) -> Self {
        self.pipelined = pipelined;
        self
    }

    /// Sets whether the order of a key covers only first attempts.
    #[must_use]
    pub fn first_attempts_only(mut self, first_attempts_only: bool) -> Self {
        self.first_attempts_only = first_attempts_only;
        self
    }

    /// This policy with the changes of a route.
    #[must_use]
    pub fn with(&self, overrides: &Overrides) -> Self {
        Self {
            retry: overrides.retry.clone().unwrap_or_else(|| self.retry.clone()),
            timeout: overrides.timeout.unwrap_or(self.timeout),
            on_dead: overrides.on_dead.unwrap_or(self.on_dead),
            pipelined: overrides.pipelined.unwrap_or(self.pipelined),
            first_attempts_only: overrides.first_attempts_only.unwrap_or(self.first_attempts_only),
        }
    }

    /// This policy for a row with its own limit of attempts.
    pub(crate) fn with_max_attempts(&self, attempts: u32) -> Self {
        Self {
            retry: self.retry.clone().max_attempts(attempts),
            ..self.clone()
        }
    }

    /// How many attempts a row has; `u32::MAX` without a limit.
    pub(crate) fn max_attempts(&self) -> u32 {
        self.retry.limit().unwrap_or(u32::MAX)
    }
}

/// How many attempts may start: a token bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How many per second, on average.
    pub per_second: f64,
    /// How many at once after a rest.
    pub burst: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_with_its_own_limit_has_other_attempts_and_the_same_waits() {
        let policy = Policy {
            retry: RetryPolicy::steps(vec![Duration::from_secs(7)]).max_attempts(4),
            timeout: Duration::from_secs(1),
            ..Policy::default()
        };
        for attempts in [1, 9] {
            let own = policy.with_max_attempts(attempts);
            assert_eq!(own.max_attempts(), attempts);
            assert_eq!(own.retry.schedule(), policy.retry.schedule());
            assert_eq!(own.timeout, policy.timeout);
        }
    }
}
