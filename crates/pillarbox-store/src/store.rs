//! The port to the databases that hold an outbox: what the dispatcher needs.
//!
//! Enqueueing is not here. It runs on the caller's own transaction: see [`pillarbox::Outbox`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use pillarbox::event::{Delivery, Event};

use crate::adopt::Import;
use crate::verdict::Verdict;
pub use pillarbox::StoreError;
pub use pillarbox::event::UNROUTED;

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

/// How many lanes there are: an ordering key is in one of them, for ever.
pub const LANES: u16 = 4096;

/// The rows of one namespace on their way to one destination, or to none yet.
///
/// Work is looked for and taken backlog by backlog, so that a destination that takes nothing now is in
/// nobody's way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backlog {
    /// Where to; `None` until routing knows.
    pub destination: Option<String>,
    /// Who publishes.
    pub namespace: String,
}

/// A backlog in which something may be due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Which.
    pub backlog: Backlog,
    /// The lowest `seq` of a row without a key that was never tried.
    pub lowest: Option<i64>,
    /// Are there rows without a key that have waited for their time, and is it over?
    pub waited: bool,
    /// Are there rows with a lane that are pending, or whose lease ran out? Whether one of them may be taken, the
    /// claim finds out.
    pub keyed: bool,
}

/// What an idle worker sees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Backlogs in the order of the store, after the one that was asked for.
    pub due: Vec<Due>,
    /// Was the look ended by its limit? Then the next goes on after the last backlog.
    pub more: bool,
    /// Destinations that are paused.
    pub paused: Vec<String>,
}

/// What a claim may take from one backlog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Which.
    pub backlog: Backlog,
    /// How many rows at the most.
    pub limit: usize,
    /// Of rows that were never tried, only those with a `seq` from here on. A hint that keeps the claim off
    /// what is done with; [`look`](Store::find) finds what is below.
    pub floor: i64,
    /// Does every tenant get its turn? Otherwise whoever came first.
    pub fair: bool,
}

/// What a claim may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    /// Rows without a lane that are due. Of each share at most half are rows that have waited, so that neither
    /// they nor fresh rows starve.
    Free(Vec<Share>),
    /// Rows with a lane that is ours: of a key the unbroken beginning of its unfinished rows, as far as they are
    /// pending and due.
    Keyed(Vec<Share>),
    /// Rows whose first lease ran out, so many at the most.
    ///
    /// Such a row may be what killed its worker. On the second attempt it comes back with few others, so that the
    /// next crash has few victims.
    Suspects(usize),
    /// One row that has had two attempts or more and whose lease ran out. The caller has nothing else
    /// in flight, so that a crash is this row's own.
    LoneSuspect,
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
    /// Destinations whose rows are not taken. Asked only for rows whose lease ran out; shares name their own.
    pub excluded: Vec<String>,
    /// The lane at which to begin. Random, so that no key has to wait for the others.
    pub first_lane: u16,
    /// How many bytes of payload at the most. One row is given even if it is larger. A store may measure
    /// JSON as it stores it.
    pub max_bytes: usize,
    /// Within which scope.
    pub scope: Scope,
    /// How many attempts a row has that does not say so itself.
    pub max_attempts: u32,
}

/// Where a claimed row goes that did not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    /// The row.
    pub id: Uuid,
    /// The claim under which it was taken.
    pub claim: Uuid,
    /// One for each destination, at least one. The first is the row itself and has its id.
    pub members: Vec<Member>,
}

/// One row of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id: the row's own for the first, a new one for a sibling.
    pub id: Uuid,
    /// Where it goes.
    pub destination: String,
    /// How many attempts it has there.
    pub max_attempts: Option<u32>,
}

/// What came of routing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routed {
    /// Rows that were no longer held under their claim: nothing was written for them.
    pub lost: Vec<Uuid>,
    /// Members that are not ours now: an earlier row of their key is unfinished at their destination. They are
    /// pending, with their destination and without an attempt.
    pub waiting: Vec<Uuid>,
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
    /// Does the row leave its lane? It then neither waits for others of its key nor holds them up.
    pub unordered: bool,
}

/// Asks for a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepRequest {
    /// Who asks: rows with a lane are for the owner of the lane to find.
    pub worker: Uuid,
    /// Within which scope.
    pub scope: Scope,
    /// How many attempts a row has that does not say so itself.
    pub max_attempts: u32,
    /// How long after the end of its lease a row counts as abandoned.
    pub grace: Duration,
    /// Destinations whose rows are not taken now.
    pub excluded: Vec<String>,
}

/// What a sweep found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Rows that are dead now because their attempts were used up.
    pub dead: Vec<Uuid>,
    /// Is there a row whose first lease ran out, that this worker could [take](Take::Suspects)?
    pub suspects: bool,
    /// Is there a row that this worker could take [alone](Take::LoneSuspect)?
    pub lone_suspect: bool,
}

/// Asks for lanes to take care of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRequest {
    /// Who asks.
    pub worker: Uuid,
    /// The namespaces in which there are rows with a key.
    pub namespaces: Vec<String>,
    /// Into how many ranges the lanes should be divided, if it should change: said once, at the start.
    /// Takes effect when every range is free.
    pub ranges: Option<u16>,
    /// For how long a range is ours without asking again.
    pub lease: Duration,
    /// Ranges to be given up: nothing of them is in flight.
    pub give_up: Vec<Range>,
}

/// A range of lanes that this worker takes care of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Range {
    /// In which namespace.
    pub namespace: String,
    /// The first lane.
    pub first: u16,
    /// The last lane.
    pub last: u16,
    /// Is it somebody else's turn? Nothing is claimed from it any more, and it is to be given up as soon as
    /// nothing of it is in flight.
    pub leaving: bool,
}

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who: a fresh id per start.
    pub worker: Uuid,
    /// On which machine.
    pub host: String,
    /// Which version of Pillarbox.
    pub version: String,
    /// For which rows.
    pub scope: Scope,
    /// After how long without a word it counts as gone.
    pub ttl: Duration,
    /// Rows taken since the start.
    pub claimed: u64,
    /// Rows delivered.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
}

/// Rows that wait for something other than time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Parked {
    /// Held because no route led anywhere. Let go, they are due now and know no destination.
    Unrouted,
    /// Dead, and others of their key wait behind them. Let go, they are still dead and hold nobody up.
    Blocking,
}

/// What routing needs to know of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Stub {
    /// The row.
    pub id: Uuid,
    /// The order of insertion.
    pub seq: i64,
    /// The event without its payload and headers. For a row with a destination, that is in it.
    pub event: Event,
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
    /// Looks for work: backlogs in which something may be due, after the one given, `limit` at the most.
    /// Cheap, and what an idle worker asks twice a second. May name a backlog in which nothing can be taken, never
    /// leaves out one in which something can.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn find(&self, scope: &Scope, after: Option<&Backlog>, limit: usize) -> Result<Found, StoreError>;

    /// Takes rows. Each gets one more attempt and the lease. The rows come sorted by `seq`.
    ///
    /// Of a backlog, fresh rows are taken in the order of their insertion and rows that have waited in the order of
    /// their time. A row with a lane is taken only by the lane's owner, and only if every earlier unfinished row of
    /// its key (of its destination, or of none yet) is taken by the same claim.
    ///
    /// # Errors
    /// When the database does not answer; nothing is claimed, or if it was, its lease runs out.
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError>;

    /// Writes down where claimed rows go that knew no destination, and makes siblings for those that go to
    /// several, in the same claim. A member that would overtake an earlier row of its key at its destination is
    /// put back instead.
    ///
    /// A row with one destination stays as it is unless it has to wait: its settlement names the destination.
    /// Needed for rows with several destinations and for rows that are [contested](Delivery::contested); all rows of a
    /// key in one call.
    ///
    /// # Errors
    /// When the database does not answer. If it was written all the same, a second try finds the rows lost, and
    /// their leases run out.
    async fn route(&self, worker: Uuid, routings: &[Routing]) -> Result<Routed, StoreError>;

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
    /// whose lease ended more than the grace time ago. A bounded number at a time. Finds out whether rows came
    /// back whose lease ran out.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn sweep(&self, request: &SweepRequest) -> Result<Swept, StoreError>;

    /// Shares lanes out: gives up what is to be given up, keeps what is ours, and takes what is free up to our
    /// part among the workers that are alive. Returns what is ours now.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn lease_lanes(&self, request: &LaneRequest) -> Result<Vec<Range>, StoreError>;

    /// Says that a worker is alive.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<(), StoreError>;

    /// Says that a worker is no more: its lanes are free.
    ///
    /// # Errors
    /// When the database does not answer; the lanes are free a lease later.
    async fn deregister(&self, worker: Uuid) -> Result<(), StoreError>;

    /// Pauses a destination that asked never to be called again, until a person resumes it.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn disable(&self, destination: &str, reason: &str) -> Result<(), StoreError>;

    /// Rows that wait for something other than time, in the order of their `seq`, after the one given.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn parked(
        &self,
        what: Parked,
        scope: &Scope,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Stub>, StoreError>;

    /// Lets such rows go. Returns those that were still waiting for it.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn unpark(&self, what: Parked, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError>;

    /// The adopted tables of this store, one importer each.
    fn importers(&self) -> Vec<Arc<dyn Import>> {
        Vec::new()
    }

    /// Is the outbox there, at the version that this program knows?
    ///
    /// # Errors
    /// What is wrong and what to do.
    async fn check(&self) -> Result<(), StoreError>;
}
