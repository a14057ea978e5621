//! Decides what happens to a row after an attempt.
//!
//! [`decide`] turns a sink's [`Outcome`] into a [`Verdict`], which a store writes. Both are values: a failed delivery is not
//! an error.

use std::time::Duration;

use pillarbox::{Outcome, RetryPolicy};

/// What a store writes to the row. Delays are relative, because the store's clock decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Delivered. Final.
    #[doc(alias = "ack")]
    Delivered,
    /// Pending again; the attempt counts.
    #[doc(alias = "nack")]
    Retry {
        /// How long to wait.
        after: Duration,
        /// The error.
        reason: String,
    },
    /// Given up on.
    Dead {
        /// Why.
        reason: String,
    },
    /// Released: pending again, and the attempt does not count.
    Release {
        /// How long to wait.
        after: Duration,
        /// The reason. Without one, the last error stays.
        reason: Option<String>,
    },
    /// Deleted: no route matches, and the configuration says `delete`.
    Delete,
    /// Left in processing with a lease that expires after the delay, so that the row comes back as a suspect: in a small
    /// group, then alone. The attempt counts.
    Suspect {
        /// How long to wait.
        after: Duration,
        /// The error.
        reason: String,
    },
}

/// The verdict on an outcome. Pure and total.
///
/// `attempts` includes the attempt that just ended. `random` is uniform in [0, 1). [`Outcome::Throttled`],
/// [`Outcome::Unavailable`] and [`Outcome::Disable`] release the row for as long as the breaker stays open: `open_for`.
pub fn decide(
    outcome: Outcome,
    attempts: u32,
    policy: &RetryPolicy,
    open_for: Duration,
    random: f64,
) -> Verdict {
    match outcome {
        Outcome::Delivered => Verdict::Delivered,
        Outcome::Reject { reason } => Verdict::Dead { reason },
        // If a health check failed, the dispatcher reports `Unavailable` instead.
        Outcome::ConnectFailed { reason } => match policy.delay(attempts, random) {
            Some(after) => Verdict::Retry { after, reason },
            None => Verdict::Dead { reason },
        },
        Outcome::Retry { reason, after } => match policy.delay(attempts, random) {
            Some(delay) => Verdict::Retry {
                after: delay.max(after.unwrap_or_default()),
                reason,
            },
            None => Verdict::Dead { reason },
        },
        Outcome::ConnectionLost { reason } => match policy.delay(attempts, random) {
            Some(after) => Verdict::Suspect { after, reason },
            None => Verdict::Dead { reason },
        },
        Outcome::Throttled { reason, after } | Outcome::ThrottledPart { reason, after } => Verdict::Release {
            after: after.unwrap_or(open_for),
            reason: Some(reason),
        },
        Outcome::Unavailable { reason } | Outcome::Disable { reason } => Verdict::Release {
            after: open_for,
            reason: Some(reason),
        },
    }
}
