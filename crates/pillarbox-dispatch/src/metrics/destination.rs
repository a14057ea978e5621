//! The metrics of one destination.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, SharedString, counter, gauge, histogram};
use pillarbox::Outcome;
use pillarbox_store::Verdict;
use pillarbox_store::store::BreakerState;
use time::OffsetDateTime;

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempted {
    Delivered,
    Retry,
    Rejected,
    Throttled,
    Unavailable,
    Disabled,
    Lost,
}

impl Attempted {
    /// All of them, in the order of their numbers.
    const ALL: [(Self, &'static str); 7] = [
        (Self::Delivered, "delivered"),
        (Self::Retry, "retry"),
        (Self::Rejected, "rejected"),
        (Self::Throttled, "throttled"),
        (Self::Unavailable, "unavailable"),
        (Self::Disabled, "disabled"),
        (Self::Lost, "lost"),
    ];
}

impl From<&Outcome> for Attempted {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Delivered => Self::Delivered,
            Outcome::Retry { .. } | Outcome::ConnectionLost { .. } | Outcome::ConnectFailed { .. } => {
                Self::Retry
            }
            Outcome::Reject { .. } => Self::Rejected,
            Outcome::Throttled { .. } | Outcome::ThrottledPart { .. } => Self::Throttled,
            Outcome::Unavailable { .. } => Self::Unavailable,
            Outcome::Disable { .. } => Self::Disabled,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct DestinationMetrics {
    /// By the number of [`Attempted`].
    attempts: [Counter; 7],
    retries: Counter,
    pub(super) dead: Counter,
    lag: Histogram,
    processing: Histogram,
    breaker: Gauge,
    up: Gauge,
}

impl DestinationMetrics {
    pub(super) fn new(database: SharedString, destination: SharedString) -> Self {
        let labels = || {
            [
                ("database", database.clone()),
                ("destination", destination.clone()),
            ]
        };
        let metrics = Self {
            attempts: Attempted::ALL.map(|(_, outcome)| {
                counter!(
                    "pillarbox_attempts_total",
                    "database" => database.clone(), "destination" => destination.clone(), "outcome" => outcome
                )
            }),
            retries: counter!("pillarbox_retries_total", &labels()),
            dead: counter!("pillarbox_dead_total", &labels()),
            lag: histogram!("pillarbox_lag_seconds", &labels()),
            processing: histogram!("pillarbox_processing_seconds", &labels()),
            breaker: gauge!("pillarbox_breaker_state", &labels()),
            up: gauge!("pillarbox_destination_up", &labels()),
        };
        metrics.set_breaker(None);
        metrics.set_up(true); // until an attempt or a health check says otherwise
        metrics
    }

    /// An attempt ended, and what it says of the destination: an answer, whatever it is, means that it was reached.
    pub(crate) fn attempted(&self, how: Attempted) {
        self.attempts[how as usize].increment(1);
        match how {
            Attempted::Delivered | Attempted::Rejected | Attempted::Throttled | Attempted::Disabled => {
                self.set_up(true);
            }
            Attempted::Unavailable => self.set_up(false),
            Attempted::Retry | Attempted::Lost => {}
        }
    }

    /// Can the destination be reached?
    pub(crate) fn set_up(&self, is_up: bool) {
        self.up.set(f64::from(u8::from(is_up)));
    }

    /// The state of the breaker; `None` if it is closed.
    pub(crate) fn set_breaker(&self, state: Option<BreakerState>) {
        self.breaker.set(match state {
            None => 0.0,
            Some(BreakerState::HalfOpen) => 1.0,
            Some(BreakerState::Open) => 2.0,
        });
    }
}

/// What is measured when a settlement is written.
#[derive(Debug, Clone)]
pub(crate) struct Measure {
    metrics: Arc<DestinationMetrics>,
    /// When the row was claimed, by this machine's clock.
    claimed: Duration,
    /// When the row was written, by that of the database.
    created_at: OffsetDateTime,
}

impl Measure {
    pub(crate) fn new(
        metrics: Arc<DestinationMetrics>,
        claimed: Duration,
        created_at: OffsetDateTime,
    ) -> Self {
        Self {
            metrics,
            claimed,
            created_at,
        }
    }

    /// The settlement with this verdict was written. `age` says how long ago the row was.
    pub(crate) fn settled(
        &self,
        verdict: &Verdict,
        now: Duration,
        age: impl FnOnce(OffsetDateTime) -> Duration,
    ) {
        let metrics = &self.metrics;
        match verdict {
            Verdict::Delivered => metrics.lag.record(age(self.created_at)),
            Verdict::Retry { .. } | Verdict::Suspect { .. } => metrics.retries.increment(1),
            Verdict::Dead { .. } => metrics.dead.increment(1),
            // No attempt was used.
            Verdict::Release { .. } | Verdict::Delete => return,
        }
        metrics.processing.record(now.saturating_sub(self.claimed));
    }
}
