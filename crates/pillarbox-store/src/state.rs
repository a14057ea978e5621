//! The four states of a row and the one function that moves between them.
//!
//! ```text
//!             claim (+1 attempt)            sink confirmed
//!  pending ───────────────────▶ processing ───────────────▶ delivered
//!     ▲  ▲                        │   │  │
//!     │  └── retry: due later ────┘   │  └── rejected, or attempts used up ──▶ dead
//!     │      release: attempt back ───┘                                         │
//!     └──────────────────────── manual retry, by an operator ───────────────────┘
//! ```
//!
//! A claim also takes `processing` rows whose lease expired; there is no reaper. `delivered` is final. The memory store runs
//! this function, the SQL stores express it in SQL, and one suite compares all three.

use std::fmt;
use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use crate::verdict::Verdict;
use pillarbox::text::error_text;

/// The state of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Status {
    /// Waits until it is due.
    Pending,
    /// Claimed by a worker until the lease expires.
    Processing,
    /// Confirmed by its destination. Final.
    Delivered,
    /// Given up on, with a reason. Only an operator can retry it.
    Dead,
    /// A status that Pillarbox did not write. Never claimed or changed, but counted and shown.
    Unknown(String),
}

impl Status {
    /// The four states that Pillarbox writes.
    pub const KNOWN: [Self; 4] = [Self::Pending, Self::Processing, Self::Delivered, Self::Dead];

    /// The value of the `status` column.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Unknown(other) => other,
        }
    }
}

impl From<&str> for Status {
    fn from(text: &str) -> Self {
        match text {
            "pending" => Self::Pending,
            "processing" => Self::Processing,
            "delivered" => Self::Delivered,
            "dead" => Self::Dead,
            other => Self::Unknown(other.to_owned()),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A worker's exclusive right to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The worker that holds it: a new id at each start.
    pub worker: Uuid,
    /// The claim: a random id. A settlement with another claim is ignored.
    pub claim: Uuid,
    /// Until when.
    pub until: OffsetDateTime,
}

/// The part of a row that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Its status.
    pub status: Status,
    /// How often it was claimed, minus released claims.
    pub attempts: u32,
    /// Its own limit of attempts, if it has one.
    pub max_attempts: Option<u32>,
    /// When it is due.
    pub due: OffsetDateTime,
    /// The lease of the worker that has it.
    pub lease: Option<Lease>,
    /// The last error.
    pub last_error: Option<String>,
}

/// What can be done to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A worker claims it.
    Claim {
        /// The new lease.
        lease: Lease,
        /// The limit of attempts for rows without their own.
        limit: u32,
    },
    /// The worker that claimed it reports the verdict.
    Settle {
        /// The worker.
        worker: Uuid,
        /// Its claim.
        claim: Uuid,
        /// The verdict.
        verdict: Verdict,
    },
    /// The worker that claimed it renews the lease.
    Renew {
        /// The worker.
        worker: Uuid,
        /// Its claim.
        claim: Uuid,
        /// The new end of the lease.
        until: OffsetDateTime,
    },
    /// A sweep ends it: it has no attempts left, and its lease expired `grace` ago.
    Sweep {
        /// The limit of attempts for rows without their own.
        limit: u32,
        /// How long after the lease expired.
        grace: Duration,
    },
    /// An operator makes it due now.
    ManualRetry,
}

/// Why a change was rejected. The row is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError {
    /// Not due, leased by another worker, exhausted, or finished.
    #[error("not claimable")]
    NotClaimable,
    /// The row is not held under this claim.
    #[error("the row is not held under this claim")]
    NotHeld,
    /// The row has attempts left, or its worker may still settle it.
    #[error("not exhausted")]
    NotExhausted,
    /// The row is delivered or in flight.
    #[error("only a dead or a pending row can be retried")]
    NotRetryable,
}

impl State {
    /// A row as `enqueue` inserts it.
    pub fn new(now: OffsetDateTime) -> Self {
        Self {
            status: Status::Pending,
            attempts: 0,
            max_attempts: None,
            due: now,
            lease: None,
            last_error: None,
        }
    }

    /// Did the lease expire before `now`?
    pub fn is_expired(&self, now: OffsetDateTime) -> bool {
        self.status == Status::Processing && self.lease.is_none_or(|lease| lease.until < now)
    }

    /// Are the attempts used up?
    pub fn is_exhausted(&self, limit: u32) -> bool {
        self.attempts >= self.max_attempts.unwrap_or(limit)
    }

    /// The row after the change.
    ///
    /// # Errors
    /// When the state machine does not allow the change.
    pub fn step(self, change: Change, now: OffsetDateTime) -> Result<Self, TransitionError> {
        match change {
            Change::Claim { lease, limit } => self.claimed(lease, limit, now),
            Change::Settle {
                worker,
                claim,
                verdict,
            } => {
                if !self.is_held(worker, claim) {
                    return Err(TransitionError::NotHeld);
                }
                Ok(self.settled(verdict, now))
            }
            Change::Renew { worker, claim, until } => {
                if !self.is_held(worker, claim) {
                    return Err(TransitionError::NotHeld);
                }
                Ok(Self {
                    lease: Some(Lease { worker, claim, until }),
                    ..self
                })
            }
            Change::Sweep { limit, grace } => self.swept(limit, grace, now),
            Change::ManualRetry => match self.status {
                Status::Pending | Status::Dead => Ok(Self {
                    status: Status::Pending,
                    attempts: 0,
                    due: now,
                    lease: None,
                    ..self
                }),
                Status::Processing | Status::Delivered | Status::Unknown(_) => {
                    Err(TransitionError::NotRetryable)
                }
            },
        }
    }

    /// Is the row held under this claim? The end of the lease does not matter: a late settlement is valid if no other worker
    /// has claimed the row since.
    pub(crate) fn is_held(&self, worker: Uuid, claim: Uuid) -> bool {
        self.status == Status::Processing
            && self
                .lease
                .is_some_and(|lease| lease.worker == worker && lease.claim == claim)
    }

    fn claimed(self, lease: Lease, limit: u32, now: OffsetDateTime) -> Result<Self, TransitionError> {
        let due = self.status == Status::Pending && self.due <= now;
        if !(due || self.is_expired(now)) || self.is_exhausted(limit) {
            return Err(TransitionError::NotClaimable);
        }
        Ok(Self {
            status: Status::Processing,
            attempts: self.attempts + 1,
            lease: Some(lease),
            ..self
        })
    }

    fn settled(self, verdict: Verdict, now: OffsetDateTime) -> Self {
        let free = Self { lease: None, ..self };
        match verdict {
            Verdict::Delivered => Self {
                status: Status::Delivered,
                ..free
            },
            Verdict::Dead { reason } => Self {
                status: Status::Dead,
                last_error: Some(error_text(&reason)),
                ..free
            },
            // The store removes the row after this.
            Verdict::Delete => Self {
                status: Status::Dead,
                ..free
            },
            Verdict::Retry { after, reason } => Self {
                status: Status::Pending,
                due: now + after,
                last_error: Some(error_text(&reason)),
                ..free
            },
            Verdict::Release { after, reason } => Self {
                status: Status::Pending,
                attempts: free.attempts.saturating_sub(1),
                due: now + after,
                last_error: reason
                    .as_deref()
                    .map(error_text)
                    .or_else(|| free.last_error.clone()),
                ..free
            },
            Verdict::Suspect { after, reason } => Self {
                // A lease that no worker holds. So the row cannot be settled, and becomes claimable when it expires.
                lease: Some(Lease {
                    worker: Uuid::nil(),
                    claim: Uuid::nil(),
                    until: now + after,
                }),
                last_error: Some(error_text(&reason)),
                ..free
            },
        }
    }

    fn swept(self, limit: u32, grace: Duration, now: OffsetDateTime) -> Result<Self, TransitionError> {
        let abandoned = match self.status {
            Status::Pending => true,
            Status::Processing => self.lease.is_none_or(|lease| lease.until + grace < now),
            Status::Delivered | Status::Dead | Status::Unknown(_) => false,
        };
        if !abandoned || !self.is_exhausted(limit) {
            return Err(TransitionError::NotExhausted);
        }
        let reason = self.last_error.clone().unwrap_or_else(|| SWEPT.to_owned());
        Ok(Self {
            status: Status::Dead,
            lease: None,
            last_error: Some(reason),
            ..self
        })
    }
}

/// The error of a row that a sweep ended, if it has none of its own.
pub const SWEPT: &str = "attempts used up: the lease of the last worker expired";

#[cfg(test)]
mod tests;
