//! How one attempt ends.
//!
//! A sink reports an [`Outcome`]. It is a value: a failed delivery is not an error. What follows for the row is decided by
//! the dispatcher.

use std::time::Duration;

/// What a sink says of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The destination confirmed.
    Delivered,
    /// This attempt failed; a later one may not.
    Retry {
        /// What went wrong.
        reason: String,
        /// Not before this, if the destination said so.
        after: Option<Duration>,
    },
    /// This event will never be accepted.
    Reject {
        /// Why.
        reason: String,
    },
    /// The destination is there, and wants to be left alone for a while.
    Throttled {
        /// What it said.
        reason: String,
        /// For how long, if it said so.
        after: Option<Duration>,
    },
    /// Nobody is there: the send never began.
    Unavailable {
        /// How we know.
        reason: String,
    },
    /// The connection was closed under the event: it may have arrived, it may be what closed it.
    ConnectionLost {
        /// What was seen.
        reason: String,
    },
    /// The destination is no more and asks not to be called again.
    Disable {
        /// What it said.
        reason: String,
    },
}

impl Outcome {
    /// A failed attempt with no wish about the next.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry {
            reason: reason.into(),
            after: None,
        }
    }

    /// A refusal for good.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject {
            reason: reason.into(),
        }
    }

    /// Nobody there.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable {
            reason: reason.into(),
        }
    }

    /// Closed under us.
    pub fn connection_lost(reason: impl Into<String>) -> Self {
        Self::ConnectionLost {
            reason: reason.into(),
        }
    }

    /// One word for logs and counters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retry { .. } => "retry",
            Self::Reject { .. } => "reject",
            Self::Throttled { .. } => "throttled",
            Self::Unavailable { .. } => "unavailable",
            Self::ConnectionLost { .. } => "connection_lost",
            Self::Disable { .. } => "disable",
        }
    }
}
