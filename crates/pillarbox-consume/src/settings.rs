//! How a consumer behaves, where there is a choice.

use std::time::Duration;

use pillarbox::RetryPolicy;

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
    /// For how long after its first delivery an event may come again, if somebody said.
    pub(crate) redelivered_within: Option<Duration>,
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
            redelivered_within: None,
        }
    }
}
