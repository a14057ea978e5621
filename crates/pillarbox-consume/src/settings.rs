//! How a consumer behaves, where there is a choice.

use std::time::Duration;

use pillarbox::RetryPolicy;
use pillarbox::inbox::TooShort;

/// What becomes of events of types that nobody handles here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unknown {
    /// They are acknowledged and counted as `ignored`: a queue or topic often carries more than one consumer wants.
    #[default]
    Ignore,
    /// They go to the dead letters.
    Reject,
}

/// What becomes of events in a newer version than their handler understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Newer {
    /// They go to the dead letters, to be sent again when the consumer has been upgraded.
    #[default]
    Reject,
    /// They wait, and hold up their key, until a consumer that understands them takes over.
    Hold,
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    pub(crate) retry: RetryPolicy,
    pub(crate) grace: Duration,
    pub(crate) by_dedupe_key: bool,
    pub(crate) unknown: Unknown,
    pub(crate) newer: Newer,
    pub(crate) redelivered: Redelivered,
}

/// For how long after its first delivery an event may come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redelivered {
    /// Nobody said.
    Unsaid,
    Within(Duration),
    ForEver,
}

impl Redelivered {
    /// By a dispatcher with this policy, and by people who replay events up to this age.
    pub(crate) fn by(policy: &RetryPolicy, replay: Duration) -> Self {
        match policy.longest() {
            Some(longest) => Self::Within(longest.saturating_add(replay)),
            None => Self::ForEver,
        }
    }

    /// Does an inbox that keeps its marks for so long forget too early?
    pub(crate) fn outlives(self, kept: Duration) -> Option<TooShort> {
        let needed = match self {
            Self::Unsaid => return None,
            Self::Within(age) => Some(age),
            Self::ForEver => None,
        };
        let is_short = needed.is_none_or(|needed| needed >= kept);
        is_short.then_some(TooShort { kept, needed })
    }
}

/// How tries are spaced at what is away, a database or a broker: it is back soon, or it takes a while.
pub(crate) fn outage() -> RetryPolicy {
    RetryPolicy::exponential(Duration::from_millis(200), Duration::from_secs(15))
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 16,
            // Between four and eight minutes in all.
            retry: RetryPolicy::exponential(Duration::from_secs(1), Duration::from_secs(60)).max_attempts(10),
            grace: Duration::from_secs(30),
            by_dedupe_key: false,
            unknown: Unknown::default(),
            newer: Newer::default(),
            redelivered: Redelivered::Unsaid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn an_inbox_that_forgets_before_the_last_delivery_is_told() {
        let policy = RetryPolicy::steps(vec![DAY]).max_attempts(3);
        let by = |replay| Redelivered::by(&policy, replay);
        assert_eq!(by(DAY), Redelivered::Within(3 * DAY));
        assert_eq!(by(DAY).outlives(4 * DAY), None);
        let short = by(2 * DAY).outlives(4 * DAY).unwrap();
        assert_eq!((short.kept, short.needed), (4 * DAY, Some(4 * DAY)));
        assert_eq!(Redelivered::Unsaid.outlives(Duration::ZERO), None);
        let for_ever = Redelivered::by(&RetryPolicy::steps(vec![DAY]), DAY);
        assert_eq!(for_ever.outlives(1000 * DAY).unwrap().needed, None);
    }
}
