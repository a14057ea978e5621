//! The options of a consumer.

use std::time::Duration;

use pillarbox::RetryPolicy;
use pillarbox::inbox::TooShort;
use pillarbox_sinks::message::MAX_DECOMPRESSED;

/// What happens to events of types without a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unknown {
    /// They are acknowledged and counted as `ignored`. A queue or topic often carries more than one consumer needs.
    #[default]
    Ignore,
    /// They become dead letters.
    Reject,
}

/// What happens to events with a newer version than their handler understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Newer {
    /// They become dead letters. An operator can publish them again after the consumer is upgraded.
    #[default]
    Reject,
    /// They wait and block their key until an upgraded consumer takes over. Only so many wait
    /// [at once](crate::Consumer::hold_at_most); further ones become dead letters.
    Hold,
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    pub(crate) retry: RetryPolicy,
    pub(crate) grace: Duration,
    /// How long a handler may take.
    pub(crate) timeout: Duration,
    pub(crate) by_dedupe_key: bool,
    pub(crate) unknown: Unknown,
    pub(crate) newer: Newer,
    /// How many events of newer versions wait at once.
    pub(crate) hold_at_most: usize,
    /// The largest decompressed body.
    pub(crate) max_decompressed: usize,
    pub(crate) redelivered: Redelivered,
}

/// How long after its first delivery an event may be delivered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redelivered {
    /// Not configured.
    Unset,
    Within(Duration),
    ForEver,
}

impl Redelivered {
    /// By a dispatcher with this policy, and by operators who replay events up to this age.
    pub(crate) fn by(policy: &RetryPolicy, replay: Duration) -> Self {
        match policy.longest() {
            Some(longest) => Self::Within(longest.saturating_add(replay)),
            None => Self::ForEver,
        }
    }

    /// Does an inbox that keeps marks for this long delete them too early?
    pub(crate) fn outlives(self, kept: Duration) -> Option<TooShort> {
        let needed = match self {
            Self::Unset => return None,
            Self::Within(age) => Some(age),
            Self::ForEver => None,
        };
        let is_short = needed.is_none_or(|needed| needed >= kept);
        is_short.then_some(TooShort { kept, needed })
    }
}

/// The waits between attempts to reach an unavailable database or broker.
pub(crate) fn reconnect_policy() -> RetryPolicy {
    RetryPolicy::exponential(Duration::from_millis(200), Duration::from_secs(15))
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 16,
            // Ten attempts take between four and eight minutes.
            retry: RetryPolicy::exponential(Duration::from_secs(1), Duration::from_secs(60)).max_attempts(10),
            grace: Duration::from_secs(30),
            // Ten attempts with their waits take 18 minutes at most. RabbitMQ takes a message back after 30.
            timeout: Duration::from_secs(60),
            by_dedupe_key: false,
            unknown: Unknown::default(),
            newer: Newer::default(),
            // Half of RabbitMQ's prefetch: other events go on.
            hold_at_most: 128,
            max_decompressed: MAX_DECOMPRESSED,
            redelivered: Redelivered::Unset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn a_retention_shorter_than_the_redelivery_window_is_detected() {
        let policy = RetryPolicy::steps(vec![DAY]).max_attempts(3);
        let by = |replay| Redelivered::by(&policy, replay);
        assert_eq!(by(DAY), Redelivered::Within(3 * DAY));
        assert_eq!(by(DAY).outlives(4 * DAY), None);
        let short = by(2 * DAY).outlives(4 * DAY).unwrap();
        assert_eq!((short.kept, short.needed), (4 * DAY, Some(4 * DAY)));
        assert_eq!(Redelivered::Unset.outlives(Duration::ZERO), None);
        let for_ever = Redelivered::by(&RetryPolicy::steps(vec![DAY]), DAY);
        assert_eq!(for_ever.outlives(1000 * DAY).unwrap().needed, None);
    }
}
