//! The port to the databases that hold an outbox: what the dispatcher needs.
//!
//! Enqueueing is not here. It runs on the caller's own transaction, whose type differs from store to
//! store: see [`stores`](crate::stores).

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::event::Delivery;
use crate::outcome::Verdict;

/// Which rows a dispatcher sees. Outside of it nothing is claimed and nothing swept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// Every namespace.
    #[default]
    All,
    /// These namespaces.
    Namespaces(BTreeSet<String>),
}

impl Scope {
    /// These namespaces; all of them if there are none.
    pub fn of<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        let names: BTreeSet<String> = names.into_iter().map(Into::into).collect();
        if names.is_empty() {
            Self::All
        } else {
            Self::Namespaces(names)
        }
    }

    /// Is this namespace ours?
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(names) => names.contains(namespace),
        }
    }

    /// The namespaces as a list, or `None` for all of them.
    pub fn names(&self) -> Option<Vec<String>> {
        match self {
            Self::All => None,
            Self::Namespaces(names) => Some(names.iter().cloned().collect()),
        }
    }
}

/// What a claim may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// Rows that are due, and beside them a few rows whose first lease ran out.
    ///
    /// A row whose lease ran out may be what killed its worker. On the second attempt it comes back
    /// with few others, so that the next crash has few victims.
    Due {
        /// How many due rows at the most.
        limit: usize,
        /// How many rows whose first lease ran out, at the most.
        recovered: usize,
    },
    /// One row that has had two attempts or more and whose lease ran out. The caller has nothing else
    /// in flight, so that a crash is this row's own.
    Alone,
}

/// Asks for rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Who asks.
    pub worker: Uuid,
    /// A random id for this claim, never used before.
    pub claim: Uuid,
    /// For how long.
    pub lease: Duration,
    /// Which rows.
    pub take: Take,
    /// How many bytes of payload at the most. One row is given even if it is larger. A store may measure
    /// JSON as it stores it.
    pub max_bytes: usize,
    /// Within which scope.
    pub scope: Scope,
    /// How many attempts a row has that does not say so itself.
    pub max_attempts: u32,
}

/// What came of one attempt, to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The row.
    pub id: Uuid,
    /// The claim under which it was taken.
    pub claim: Uuid,
    /// What to write.
    pub verdict: Verdict,
    /// Where the row went or goes, if routing knows.
    pub destination: Option<String>,
    /// How many attempts it has there, if routing knows.
    pub max_attempts: Option<u32>,
}

/// What a sweep found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Rows that are dead now because their attempts were used up.
    pub dead: Vec<Uuid>,
    /// Is there a row that wants to be taken [alone](Take::Alone)?
    pub alone: bool,
}

/// Why a store could not do what was asked. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, is starting or stopping, or gave up on us: try again later.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// The outbox is not there.
    #[error("there is no outbox in {0}; run `pillarbox migrate`")]
    Missing(String),
    /// The schema is older than this program.
    #[error("the outbox schema is at version {found}, this program needs {needed}; run `pillarbox migrate`")]
    Outdated {
        /// What is there.
        found: i32,
        /// What is needed.
        needed: i32,
    },
    /// The schema is newer than this program.
    #[error(
        "the outbox schema is at version {found}, this program knows only {known}; use a newer pillarbox"
    )]
    Newer {
        /// What is there.
        found: i32,
        /// What is known.
        known: i32,
    },
    /// The database role may not do this.
    #[error("the database refused: {0}; see docs/postgres.md for the rights that a dispatcher needs")]
    Denied(String),
    /// Anything else: a bug of ours, or a table that somebody changed.
    #[error("the database answered: {0}")]
    Other(String),
}

/// A database that holds an outbox.
///
/// * Every method is one transaction and does all or nothing. What it asks of the database goes in
///   batches; the number of statements does not depend on the number of rows.
/// * The database's clock decides what is due and what has expired; callers give durations.
/// * No row is handed to two claims at once. A row that a transaction still holds is skipped, not
///   waited for.
/// * Rows with an unknown status are left alone.
/// * May be called concurrently. A caller that is dropped mid-call does not stop the call.
///
/// Proven by `pillarbox_testkit::store_suite!`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Takes rows: pending and due ones in the order of their insertion (those tried before in the order
    /// of their time), or ones whose lease ran out. Each gets one more attempt and the lease.
    /// The rows come sorted by `seq`.
    ///
    /// # Errors
    /// When the database does not answer; nothing is claimed, or if it was, its lease runs out.
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError>;

    /// Writes outcomes down. Returns the ids of rows that were no longer held under their claim:
    /// those are unchanged, and somebody else's now.
    ///
    /// Written twice, the second time is such a loss; nothing else happens.
    ///
    /// # Errors
    /// When the database does not answer. It is right to try the same settlements again.
    async fn settle(&self, worker: Uuid, settlements: &[Settlement]) -> Result<Vec<Uuid>, StoreError>;

    /// Extends leases, given as (row, claim), to `lease` from now. Returns the rows that are lost.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn renew(
        &self,
        worker: Uuid,
        held: &[(Uuid, Uuid)],
        lease: Duration,
    ) -> Result<Vec<Uuid>, StoreError>;

    /// Makes rows dead whose attempts are used up and that nobody will settle: pending ones, and ones
    /// whose lease ended more than `grace` ago. A bounded number at a time.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn sweep(&self, scope: &Scope, max_attempts: u32, grace: Duration) -> Result<Swept, StoreError>;

    /// Is there anything that a claim could take? Cheap: what an idle worker asks. May err on the side
    /// of yes.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn is_due(&self, scope: &Scope) -> Result<bool, StoreError>;

    /// Is the outbox there, at the version that this program knows?
    ///
    /// # Errors
    /// What is wrong and what to do.
    async fn check(&self) -> Result<(), StoreError>;
}
