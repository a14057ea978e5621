//! How one attempt ends.
//!
//! A sink reports an [`Outcome`]. It is a value: a failed delivery is not an error. What follows for the row is decided by
//! the dispatcher.

use std::time::Duration;

/// How one attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The destination confirmed.
    Delivered,
    /// This attempt failed; a later one may not.
    Retry {
        /// What went wrong.
        reason: String,
        /// Not before this, if the destination names a time.
        after: Option<Duration>,
    },
    /// This event will never be accepted.
    Reject {
        /// Why.
        reason: String,
    },
    /// The destination is overloaded and asks to be called later.
    Throttled {
        /// Its answer.
        reason: String,
        /// For how long, if it names a time.
        after: Option<Duration>,
    },
    /// The event's [part](crate::Sink::part) of the destination is overloaded and asks to be called later. Other parts are not
    /// concerned.
    ThrottledPart {
        /// Its answer.
        reason: String,
        /// For how long, if it names a time.
        after: Option<Duration>,
    },
    /// No connection could be made: the send never began. A health check shows whether the destination is unavailable. If it
    /// passes, the attempt has failed.
    ConnectFailed {
        /// What failed.
        reason: String,
    },
    /// The destination cannot be reached: the send never began.
    Unavailable {
        /// What failed.
        reason: String,
    },
    /// The connection closed during the send. The event may have arrived, or it may be what closed the connection.
    ConnectionLost {
        /// What was seen.
        reason: String,
    },
    /// The destination asks not to be called again.
    Disable {
        /// Its answer.
        reason: String,
    },
}

impl Outcome {
    /// A failed attempt; the policy decides when the next one is due.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry {
            reason: reason.into(),
            after: None,
        }
    }

    /// A final rejection.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject {
            reason: reason.into(),
        }
    }

    /// An unreachable destination.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable {
            reason: reason.into(),
        }
    }

    /// A connection that could not be made.
    pub fn connect_failed(reason: impl Into<String>) -> Self {
        Self::ConnectFailed {
            reason: reason.into(),
        }
    }

    /// A connection that closed during the send.
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
            Self::ThrottledPart { .. } => "throttled_part",
            Self::ConnectFailed { .. } => "connect_failed",
            Self::Unavailable { .. } => "unavailable",
            Self::ConnectionLost { .. } => "connection_lost",
            Self::Disable { .. } => "disable",
        }
    }
}
