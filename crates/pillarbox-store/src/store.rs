//! The port of the dispatcher to a database with an outbox.
//!
//! Enqueueing is not part of it, because it runs in the caller's own transaction: see [`pillarbox::Outbox`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use pillarbox::{Delivery, Event};

use crate::adopt::Import;
use crate::quotas;
use crate::retention::{PruneRequest, Pruned};
use crate::sample::{SampleRequest, Sampled};
use crate::verdict::Verdict;
pub use pillarbox::StoreError;
pub use pillarbox::UNROUTED;

/// Which rows a dispatcher works on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// Every namespace.
    #[default]
    All,
    /// These namespaces.
    Namespaces(BTreeSet<String>),
}

impl Scope {
    /// These namespaces, and no others. With an empty list nothing is in the scope.
    pub fn of<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self::Namespaces(names.into_iter().map(Into::into).collect())
    }

    /// What a list says in a configuration or on a command line, where an empty list means every namespace.
    pub fn configured<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        let names: BTreeSet<String> = names.into_iter().map(Into::into).collect();
        if names.is_empty() {
            Self::All
        } else {
            Self::Namespaces(names)
        }
    }

    /// Is this namespace in the scope?
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

/// How many lanes there are. The lane of an ordering key never changes.
pub const LANES: u16 = 4096;
/// Into how many ranges the lanes of a backlog are divided by default.
pub const LANE_RANGES: u16 = 32;

/// The rows that wait in one namespace for one destination, or without a destination.
///
/// Rows are found and claimed backlog by backlog. So a destination that is unavailable delays no other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backlog {
    /// The destination; `None` until the rows are routed.
    pub destination: Option<String>,
    /// The namespace.
    pub namespace: String,
}

/// A backlog that may have due rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The backlog.
    pub backlog: Backlog,
    /// The lowest `seq` of a fresh row without a key.
    pub lowest: Option<i64>,
    /// Are there rows without a key that have waited and are due?
    pub waited: bool,
    /// Are there rows with a lane that are pending, or whose lease expired? Only a claim finds out whether it may take one.
    pub keyed: bool,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Backlogs in the order of the store, after the given one.
    pub due: Vec<Due>,
    /// Did the search reach its limit? Then the next one continues after the last backlog.
    pub more: bool,
    /// The paused destinations.
    pub paused: Vec<String>,
    /// When the first of the rows is due that wait, if the search saw one.
    pub due_in: Option<Duration>,
}

/// What a claim may take from one backlog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The backlog.
    pub backlog: Backlog,
    /// How many rows at most.
    pub limit: usize,
    /// The lowest `seq` of fresh rows to claim. A hint that skips dead index entries. [`find`](Store::find) finds rows below
    /// it.
    pub floor: i64,
    /// Does every tenant get a fair share? Otherwise rows are claimed in the order of insertion.
    pub fair: bool,
    /// May a claim of rows with a key go on where the last one of this backlog ended? A hint, as the floor. Otherwise it begins at
    /// the bottom, as the first one must after a [`find`](Store::find) and after a change of lanes.
    pub resume: bool,
}

/// What a claim may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    /// Due rows without a lane. Rows that have waited get half of each share, and what fresh rows leave. So neither they nor
    /// fresh rows starve.
    Free(Vec<Share>),
    /// Rows in lanes that this worker owns: of each key the first unfinished rows, up to the first that is not pending and
    /// due.
    Keyed(Vec<Share>),
    /// Rows whose first lease expired, at most this many.
    ///
    /// Such a row may have crashed its worker. It is retried with few others, so that another crash affects few rows.
    Suspects(usize),
    /// One row with two or more attempts whose lease expired. The caller has no other row in flight, so that a crash is caused
    /// by this one.
    LoneSuspect,
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The worker that claims.
    pub worker: Uuid,
    /// A new random id for this claim.
    pub claim: Uuid,
    /// How long the claim holds.
    pub lease: Duration,
    /// Which rows.
    pub take: Take,
    /// Destinations whose rows are not claimed. Only for rows whose lease expired; shares name their destinations.
    pub excluded: Vec<String>,
    /// The first lane; the claim goes around from there. The caller changes it with each claim, so that all keys get their turn.
    pub first_lane: u16,
    /// How many bytes of payload at most. One row is claimed even if it is larger. A store may measure JSON as it stores it.
    pub max_bytes: usize,
    /// The scope.
    pub scope: Scope,
    /// The limit of attempts for rows without their own.
    pub max_attempts: u32,
}

impl ClaimRequest {
    /// How much of a share's room is kept for rows that have waited: half of it. The claim's id is random and decides about an
    /// odd row, so that with room for one row neither kind starves.
    pub(crate) fn kept_for_waited(&self, limit: usize) -> usize {
        let odd = usize::from(self.claim.as_u128() & 1 == 1);
        limit / 2 + (limit % 2) * odd
    }
}

/// The destinations of a claimed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    /// The row.
    pub id: Uuid,
    /// Its claim.
    pub claim: Uuid,
    /// One member per destination, at least one. The first is the row itself and has its id.
    pub members: Vec<Member>,
}

/// One row of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id: that of the row for the first member, a new one for a sibling.
    pub id: Uuid,
    /// Its destination.
    pub destination: String,
    /// Its limit of attempts there.
    pub max_attempts: Option<u32>,
}

/// The result of routing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routed {
    /// Rows that were no longer held under their claim. They are unchanged.
    pub lost: Vec<Uuid>,
    /// Members that must wait for an earlier unfinished row of their key at their destination. They are pending with their
    /// destination, and the attempt does not count.
    pub waiting: Vec<Uuid>,
}

/// The verdict on one claimed row, to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The row.
    pub id: Uuid,
    /// Its claim.
    pub claim: Uuid,
    /// The verdict.
    pub verdict: Verdict,
    /// The row's destination, if it is routed.
    pub destination: Option<String>,
    /// Its limit of attempts there, if it is routed.
    pub max_attempts: Option<u32>,
    /// Does the row leave its lane? It then neither waits for other rows of its key nor blocks them.
    pub unordered: bool,
    /// Is the row kept after its delivery? Otherwise a delivered row is deleted, unless something needs it: its dedupe key,
    /// the other rows of its family, or the adopted table that it came from.
    pub keep: bool,
}

impl Settlement {
    /// Is the row delivered, and deleted if nothing needs it?
    pub(crate) fn is_unkept(&self) -> bool {
        self.verdict == Verdict::Delivered && !self.keep
    }
}

/// A sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepRequest {
    /// The worker that sweeps. Only the owner of a lane finds suspects in it.
    pub worker: Uuid,
    /// The scope.
    pub scope: Scope,
    /// The limit of attempts for rows without their own.
    pub max_attempts: u32,
    /// How long after its lease expired a row counts as abandoned.
    pub grace: Duration,
    /// Destinations whose rows are not claimed.
    pub excluded: Vec<String>,
}

/// The result of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Rows that are dead now because they had no attempts left.
    pub dead: Vec<Uuid>,
    /// The same rows, for the log.
    pub rows: Vec<DeadRow>,
    /// Is there a row that this worker could claim as one of several [suspects](Take::Suspects)?
    pub suspects: bool,
    /// Is there a row that this worker could claim [alone](Take::LoneSuspect)?
    pub lone_suspect: bool,
}

/// A row that a sweep made dead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadRow {
    /// The event.
    pub event: Uuid,
    /// The namespace.
    pub namespace: String,
    /// The destination, if the row has one.
    pub destination: Option<String>,
    /// The ordering key, if the row is in a lane: it blocks its key.
    pub ordering_key: Option<String>,
    /// How many attempts it had.
    pub attempts: u32,
    /// The last error.
    pub reason: String,
}

/// What has become of an event's rows so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// The event.
    pub event: Uuid,
    /// How many rows are delivered.
    pub delivered: u64,
    /// How many rows are dead.
    pub dead: u64,
    /// How many rows have not ended.
    pub unfinished: u64,
    /// `destination: error` of the first dead rows, by destination. At most [`Family::ERRORS`].
    pub errors: Vec<String>,
}

impl Family {
    /// How many errors a family has at most.
    pub const ERRORS: usize = 5;
}

/// A request to lease lane ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRequest {
    /// The worker that asks.
    pub worker: Uuid,
    /// The backlogs that have rows with a key, each once. The caller limits their number.
    pub backlogs: Vec<Backlog>,
    /// The worker's number of ranges. That of the live worker that started last applies, once every range is free.
    pub ranges: u16,
    /// Into how many ranges the lanes of a backlog are divided that has none yet, if that is fewer.
    pub new_ranges: u16,
    /// How long a lease lasts.
    pub lease: Duration,
    /// Ranges to release: none of their rows is in flight.
    pub release: Vec<Range>,
}

/// A lane range that this worker leases.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Range {
    /// The backlog.
    pub backlog: Backlog,
    /// The first lane.
    pub first: u16,
    /// The last lane.
    pub last: u16,
    /// Should another worker have it? Then this worker claims nothing more from it, and releases it as soon as none of its
    /// rows is in flight.
    pub leaving: bool,
}

/// A breaker that is not closed, as its worker reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenBreaker {
    /// Its state.
    pub state: BreakerState,
    /// When it opened, by the worker's clock.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// Why.
    pub reason: String,
}

/// The state of a breaker that is not closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BreakerState {
    /// Nothing is sent.
    Open,
    /// One event is sent, to see whether the destination has recovered.
    HalfOpen,
}

/// Which backlogs a worker can serve. Lanes are shared among workers that serve the destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Serves {
    /// Its destinations; `None` for all of them.
    pub destinations: Option<BTreeSet<String>>,
    /// Those of them that it has been unable to reach for some time.
    pub unreachable: BTreeSet<String>,
    /// Does it have routes? Rows without a destination need a worker that has some.
    pub routes: bool,
    /// Into how many ranges it would divide the lanes of a backlog.
    pub lane_ranges: u16,
}

impl Default for Serves {
    fn default() -> Self {
        Self {
            destinations: None,
            unreachable: BTreeSet::new(),
            routes: true,
            lane_ranges: LANE_RANGES,
        }
    }
}

/// A worker's sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Heartbeat {
    /// The worker: a new id at each start.
    pub worker: Uuid,
    /// The machine.
    pub host: String,
    /// The version of Pillarbox.
    pub version: String,
    /// Its scope.
    pub scope: Scope,
    /// After this long without a heartbeat, the worker counts as dead.
    pub ttl: Duration,
    /// Rows claimed since the start.
    pub claimed: u64,
    /// Rows delivered.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// The breakers that are not closed, by destination: the worker cannot send there now. The worker limits their number.
    pub breakers: BTreeMap<String, OpenBreaker>,
    /// Which backlogs it can serve.
    pub serves: Serves,
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Heartbeat {
    /// The breakers as a JSON object without NUL, which `jsonb` refuses: a heartbeat must never fail for a text in it.
    pub(crate) fn breakers_json(&self) -> String {
        let clean = |text: &str| text.replace('\0', "\u{FFFD}");
        let breakers = self.breakers.iter().map(|(name, breaker)| {
            let breaker = OpenBreaker {
                reason: clean(&breaker.reason),
                ..breaker.clone()
            };
            (clean(name), breaker)
        });
        serde_json::json!(breakers.collect::<BTreeMap<_, _>>()).to_string()
    }

    /// What the worker serves, as a JSON object without NUL, which `jsonb` refuses.
    pub(crate) fn serves_json(&self) -> String {
        let clean = |names: &BTreeSet<String>| names.iter().map(|name| name.replace('\0', "")).collect();
        let serves = Serves {
            destinations: self.serves.destinations.as_ref().map(clean),
            unreachable: clean(&self.serves.unreachable),
            ..self.serves
        };
        serde_json::json!(serves).to_string()
    }
}

/// Rows that wait for a change, not for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Parked {
    /// Unrouted rows. Unparked, they are due now and have no destination.
    Unrouted,
    /// Dead rows that block their key. Unparked, they stay dead and no longer block it.
    Blocking,
}

/// The part of a row that routing needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Stub {
    /// The row.
    pub id: Uuid,
    /// The order of insertion.
    pub seq: i64,
    /// The event without its payload. It has the row's destination, if there is one.
    pub event: Event,
}

/// A database that holds an outbox.
///
/// * Every method is one transaction. The number of statements does not depend on the number of rows.
/// * The database's clock decides what is due and what has expired. Callers pass durations.
/// * No row is in two claims at once. A claim skips rows that other transactions lock.
/// * Rows with an unknown status are left alone.
/// * Methods may be called concurrently. A call runs to its end even if the caller is dropped.
///
/// Tested by `pillarbox_testkit::store_suite!`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Finds at most `limit` backlogs that may have due rows, after the given one. It is cheap: an idle worker calls it twice a
    /// second. It may return a backlog without a claimable row, and never misses one that has some.
    ///
    /// With `served`, it finds backlogs of these destinations and of none only. Its cost then does not depend on how many other
    /// destinations rows name: it steps over all names between two of these at once.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn find(
        &self,
        scope: &Scope,
        served: Option<&[String]>,
        after: Option<&Backlog>,
        limit: usize,
    ) -> Result<Found, StoreError>;

    /// Claims rows. Each gets one more attempt and the lease. The rows are sorted by `seq`.
    ///
    /// Fresh rows of a backlog are claimed in the order of insertion, and rows that have waited by due time. A row with a lane
    /// is claimed only by the lane's owner. Every earlier unfinished row of its key, for its destination or without one, must be
    /// in the same claim.
    ///
    /// # Errors
    /// When the database does not answer. If rows were claimed nevertheless, their leases expire.
    #[doc(alias = "claim_batch")]
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError>;

    /// Has a claim made rows dead since the last call, because they cannot be read? They may block their keys.
    fn take_unreadable(&self) -> bool {
        false
    }

    /// Writes the destinations of claimed rows, and inserts siblings for rows with several, in the same claim. A member that
    /// would overtake an earlier row of its key at its destination is released instead.
    ///
    /// A row with one destination stays as it is unless it must wait. Its settlement writes the destination. Call this for
    /// rows with several destinations and for [contested](Delivery::contested) rows, with all rows of a key in one call.
    ///
    /// # Errors
    /// When the database does not answer. If the change was written nevertheless, a second call finds the rows lost, and their
    /// leases expire.
    async fn route(&self, worker: Uuid, routings: &[Routing]) -> Result<Routed, StoreError>;

    /// Writes verdicts. Returns the ids of rows that are no longer held under their claim. They are unchanged.
    ///
    /// A delivered row that is not to be [kept](Settlement::keep) is deleted, or set to delivered if something needs it.
    ///
    /// A second call with the same settlements finds the rows lost, and changes nothing.
    ///
    /// # Errors
    /// When the database does not answer. The caller may try the same settlements again.
    #[doc(alias = "ack")]
    #[doc(alias = "nack")]
    async fn settle(&self, worker: Uuid, settlements: &[Settlement]) -> Result<Vec<Uuid>, StoreError>;

    /// Renews leases, given as (row, claim), to `lease` from now. Returns the lost rows.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn renew(
        &self,
        worker: Uuid,
        rows: &[(Uuid, Uuid)],
        lease: Duration,
    ) -> Result<Vec<Uuid>, StoreError>;

    /// Makes rows dead that have no attempts left: pending ones, and those whose lease expired more than the grace time
    /// ago. A bounded number at a time. Also finds out whether there are suspects.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn sweep(&self, request: &SweepRequest) -> Result<Swept, StoreError>;

    /// Releases the given lane ranges, renews this worker's ranges, and leases free ones up to its share. Returns this
    /// worker's ranges of the given backlogs.
    ///
    /// The lanes of a backlog are shared among the live workers that [serve](Serves) it. Those that cannot reach the
    /// destination have no share while another worker can. Rows without a destination are shared among the workers that
    /// have routes, or among all if none has.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn lease_lanes(&self, request: &LaneRequest) -> Result<Vec<Range>, StoreError>;

    /// Deletes the lane ranges of backlogs in which none is leased, of a bounded number of backlogs at a time. Returns of how
    /// many. The next request creates them again.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn prune_lanes(&self) -> Result<usize, StoreError>;

    /// Writes a worker's heartbeat.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<(), StoreError>;

    /// Deregisters a worker, so that others take its lanes at once.
    ///
    /// # Errors
    /// When the database does not answer. The lanes are free when their leases expire.
    async fn deregister(&self, worker: Uuid) -> Result<(), StoreError>;

    /// Disables a destination that asked for no more events, until an operator resumes it.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn disable(&self, worker: Uuid, destination: &str, reason: &str) -> Result<(), StoreError>;

    /// Parked rows by `seq`, after the given one.
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

    /// Unparks rows. Returns those that were still parked.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn unpark(&self, what: Parked, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError>;

    /// About how many rows wait, for a line in the log once a minute. Bounded: it stops at a cap. `None` if the store does not
    /// count.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn pending(&self, _scope: &Scope) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    /// Counts what is pending of holders with a [quota](crate::quotas), after this one, and writes down who has too much. A call
    /// counts a bounded number of rows. One worker counts for all: the others find nothing to count. `None` if the store has no
    /// quotas.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn count_quotas(
        &self,
        _worker: Uuid,
        _after: Option<&quotas::Holder>,
    ) -> Result<Option<quotas::Counted>, StoreError> {
        Ok(None)
    }

    /// The newest [sample](crate::sample) of this database. Takes one if that is due, and no other worker does. `None` if the
    /// store has no samples.
    ///
    /// # Errors
    /// When the database does not answer, or the sample takes too long. The next one counts fewer rows.
    async fn sample(&self, _request: &SampleRequest) -> Result<Option<Sampled>, StoreError> {
        Ok(None)
    }

    /// Deletes a bounded number of rows that have been kept long enough. See [`Retention`](crate::retention::Retention).
    ///
    /// An event is deleted with all its rows, when each has ended and is old enough by its own status. A row that another
    /// session has locked keeps its event for a later pass. Nothing waits for this call, and it waits for no other session.
    ///
    /// # Errors
    /// When the database does not answer. If rows were deleted nevertheless, a second call does not find them.
    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, StoreError>;

    /// What has become of these events. Unknown ones are left out. For the log, of a few events at a time.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn families(&self, _events: &[Uuid]) -> Result<Vec<Family>, StoreError> {
        Ok(Vec::new())
    }

    /// The adopted tables of this store, one importer each.
    fn importers(&self) -> Vec<Arc<dyn Import>> {
        Vec::new()
    }

    /// Begins to watch for new events. `None` if the store cannot: the worker then polls. Safe to cancel.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn watch(&self) -> Result<Option<Box<dyn Watch>>, StoreError> {
        Ok(None)
    }

    /// Checks that the outbox exists and has the version of this program.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    async fn check(&self) -> Result<(), StoreError>;
}

/// What a [`Watch`] saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// About so many events are being enqueued. Their transactions may still be open.
    Begun(u64),
    /// Every event that was being enqueued can be claimed now, unless its transaction was rolled back.
    Ended,
    /// Nothing for about two seconds. The caller may go on watching.
    Nothing,
}

/// Watches for new events on a connection of its own. It is a hint that saves polls, and correctness never depends on it.
///
/// [`next`](Self::next) is the one call to a database that may be dropped before its end. No other call uses the connection,
/// and nothing is written on it. So it is closed, and the server ends the wait within two seconds.
#[async_trait]
pub trait Watch: Send {
    /// Waits for the next change. A change since the last call counts. With `until_ended` it also waits until all
    /// transactions that run now have ended. Safe to cancel; the watch is of no use after that.
    ///
    /// # Errors
    /// When the connection is lost. The watch is of no use after that.
    async fn next(&mut self, until_ended: bool) -> Result<Change, StoreError>;
}
