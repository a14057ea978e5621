//! The four states of a row and the one function that moves between them.
//!
//! ```text
//!             claim (+1 attempt)            sink confirmed
//!  pending ───────────────────▶ processing ───────────────▶ delivered
//!     ▲  ▲                        │   │  │
//!     │  └── retry: due later ────┘   │  └── rejected, or attempts used up ──▶ dead
//!     │      release: attempt back ───┘                                         │
//!     └──────────────────────────── retry, by a person ─────────────────────────┘
//! ```
//!
//! `processing` whose lease ran out is claimable again by the claim itself; there is no reaper.
//! `delivered` is final. The memory store runs this function; the SQL stores say the same in SQL,
//! and one suite holds all three to it.

use std::fmt;
use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use crate::verdict::Verdict;
use pillarbox::text::error_text;

/// Where a row stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Status {
    /// Waiting for its time.
    Pending,
    /// Claimed by a worker, until the lease ends.
    Processing,
    /// Confirmed by its destination. Final.
    Delivered,
    /// Given up on, with a reason. Only a person brings it back.
    Dead,
    /// Written by somebody else. Never claimed, never changed, counted and shown.
    Unknown(String),
}

impl Status {
    /// The four that Pillarbox writes.
    pub const KNOWN: [Self; 4] = [Self::Pending, Self::Processing, Self::Delivered, Self::Dead];

    /// As the `status` column says it.
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
    /// Who holds it: a fresh id per start of a dispatcher.
    pub worker: Uuid,
    /// Which claim it came from: random for every claim. A settle that names another one is void.
    pub claim: Uuid,
    /// Until when.
    pub until: OffsetDateTime,
}

/// The part of a row that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Where it stands.
    pub status: Status,
    /// How often it was claimed, less what was given back.
    pub attempts: u32,
    /// After how many attempts it is dead, if the row knows.
    pub max_attempts: Option<u32>,
    /// Not claimed before this.
    pub due: OffsetDateTime,
    /// Who has it.
    pub lease: Option<Lease>,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// What can be done to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A worker takes it. `limit` holds for rows that do not know their own.
    Claim {
        /// The new lease.
        lease: Lease,
        /// The attempts that a row has if it does not say.
        limit: u32,
    },
    /// The worker that took it says what came of it.
    Settle {
        /// Who says so.
        worker: Uuid,
        /// Under which claim.
        claim: Uuid,
        /// What it says.
        verdict: Verdict,
    },
    /// The worker that took it needs longer.
    Renew {
        /// Who.
        worker: Uuid,
        /// Under which claim.
        claim: Uuid,
        /// Until when now.
        until: OffsetDateTime,
    },
    /// Its attempts are used up and nobody will settle it any more: `grace` after its lease.
    Sweep {
        /// The attempts that a row has if it does not say.
        limit: u32,
        /// How long after the end of the lease.
        grace: Duration,
    },
    /// A person wants it tried again now.
    ManualRetry,
}

/// Why a change was not made. The row is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not due, leased by another, used up or in a state that ends.
    #[error("not claimable")]
    NotClaimable,
    /// The row is not held under this claim.
    #[error("the row is not held under this claim")]
    NotHeld,
    /// The row's attempts are not used up, or somebody may still settle it.
    #[error("not exhausted")]
    NotExhausted,
    /// Delivered is final, and what somebody is working on is not disturbed.
    #[error("only a dead or a pending row can be retried")]
    NotRetryable,
}

impl State {
    /// A row as it is written by `enqueue`.
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

    /// Is a lease set that ended before `now`?
    pub fn is_expired(&self, now: OffsetDateTime) -> bool {
        self.status == Status::Processing && self.lease.is_none_or(|lease| lease.until < now)
    }

    /// Are the attempts used up?
    pub fn is_exhausted(&self, limit: u32) -> bool {
        self.attempts >= self.max_attempts.unwrap_or(limit)
    }

    /// The row after the change, or why there is none.
    ///
    /// # Errors
    /// When the state machine does not allow the change.
    pub fn step(self, change: Change, now: OffsetDateTime) -> Result<Self, Refused> {
        match change {
            Change::Claim { lease, limit } => self.claimed(lease, limit, now),
            Change::Settle {
                worker,
                claim,
                verdict,
            } => {
                if !self.is_held(worker, claim) {
                    return Err(Refused::NotHeld);
                }
                Ok(self.settled(verdict, now))
            }
            Change::Renew { worker, claim, until } => {
                if !self.is_held(worker, claim) {
                    return Err(Refused::NotHeld);
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
                Status::Processing | Status::Delivered | Status::Unknown(_) => Err(Refused::NotRetryable),
            },
        }
    }

    /// A settle is good however late, as long as nobody touched the row: the end of the lease is not asked.
    pub(crate) fn is_held(&self, worker: Uuid, claim: Uuid) -> bool {
        self.status == Status::Processing
            && self
                .lease
                .is_some_and(|lease| lease.worker == worker && lease.claim == claim)
    }

    fn claimed(self, lease: Lease, limit: u32, now: OffsetDateTime) -> Result<Self, Refused> {
        let due = self.status == Status::Pending && self.due <= now;
        if !(due || self.is_expired(now)) || self.is_exhausted(limit) {
            return Err(Refused::NotClaimable);
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
            // The last that is known of a row which its store removes.
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
                // A lease of nobody: nothing can settle it, and its end makes the row claimable.
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

    fn swept(self, limit: u32, grace: Duration, now: OffsetDateTime) -> Result<Self, Refused> {
        let abandoned = match self.status {
            Status::Pending => true,
            Status::Processing => self.lease.is_none_or(|lease| lease.until + grace < now),
            Status::Delivered | Status::Dead | Status::Unknown(_) => false,
        };
        if !abandoned || !self.is_exhausted(limit) {
            return Err(Refused::NotExhausted);
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

/// Why a row is dead that nobody settled and that has no error of its own.
pub const SWEPT: &str = "attempts used up: the last worker that took it did not come back";

#[cfg(test)]
mod tests;
