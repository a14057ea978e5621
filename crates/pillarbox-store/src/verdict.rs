//! What follows from an attempt for the row.
//!
//! [`decide`] turns a sink's [`Outcome`] into a [`Verdict`], which a store writes down. Both are values: a failed delivery
//! is not an error.

use std::time::Duration;

use pillarbox::{Outcome, RetryPolicy};

/// What is to be written on the row. Delays are relative, because the store's clock decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Delivered, for ever.
    Delivered,
    /// Pending again; the attempt counts.
    Retry {
        /// How long to wait.
        after: Duration,
        /// What went wrong.
        reason: String,
    },
    /// Given up on, visibly.
    Dead {
        /// Why.
        reason: String,
    },
    /// Pending again; the attempt is given back.
    Release {
        /// How long to wait.
        after: Duration,
        /// Why, if there is something to say; otherwise the last error stays.
        reason: Option<String>,
    },
    /// Taken out of the outbox: the configuration says that nobody wants it.
    Delete,
    /// Left in processing with a lease that ends after the delay, so that the row comes back as one
    /// whose lease ran out: in a small group, then alone. The attempt counts.
    Suspect {
        /// How long to wait.
        after: Duration,
        /// What happened.
        reason: String,
    },
}

/// What follows from an outcome. Pure and total.
///
/// `attempts` includes the attempt that just ended. `random` is uniform in [0, 1). For
/// [`Outcome::Throttled`], [`Outcome::Unavailable`] and [`Outcome::Disable`] the attempt is given back
/// and `closed` says for how long the destination stays closed.
pub fn decide(
    outcome: Outcome,
    attempts: u32,
    policy: &RetryPolicy,
    closed: Duration,
    random: f64,
) -> Verdict {
    match outcome {
        Outcome::Delivered => Verdict::Delivered,
        Outcome::Reject { reason } => Verdict::Dead { reason },
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
        Outcome::Throttled { reason, after } => Verdict::Release {
            after: after.unwrap_or(closed),
            reason: Some(reason),
        },
        Outcome::Unavailable { reason } | Outcome::Disable { reason } => Verdict::Release {
            after: closed,
            reason: Some(reason),
        },
    }
}
