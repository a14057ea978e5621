//! The reference: an outbox in memory, made of the [state machine](crate::state) and short enough to read.
//!
//! For tests. **If we die here** everything is lost.

mod audit;
mod claim;
mod enqueue;
mod families;
mod find;
mod inbox;
mod operate;
mod prune;
mod route;
mod sample;
mod settle;
mod sweep;
mod watch;
mod workers;

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use uuid::Uuid;

pub use self::enqueue::Transaction;
use self::workers::{Lanes, Worker};
use crate::audit::{AuditRecord, Line};
use crate::operate::Paused;
use crate::retention::{PruneRequest, Pruned};
use crate::sample::{SampleRequest, Sampled};
use crate::state::{State, Status};
use crate::store::{
    Backlog, ClaimRequest, Family, Found, Heartbeat, LANES, LaneRequest, Parked, Range, Routed, Routing,
    Scope, Settlement, Store, StoreError, Stub, SweepRequest, Swept, Watch,
};
use pillarbox::Limits;
use pillarbox::clock::{Clock, SystemClock};
use pillarbox::internal::restored;
use pillarbox::{Delivery, Event};

/// An outbox in memory. Clones share it.
#[derive(Debug, Clone)]
pub struct Memory {
    table: Arc<Mutex<Table>>,
    clock: Arc<dyn Clock>,
    limits: Limits,
}

/// The rows by `seq`, each before its siblings, and the last `seq`, which is never reused.
#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<(i64, usize), Row>,
    /// Where each row is, or was.
    places: HashMap<Uuid, (i64, usize)>,
    last_seq: i64,
    lanes: BTreeMap<Backlog, Lanes>,
    workers: BTreeMap<Uuid, Worker>,
    paused: BTreeMap<String, Paused>,
    marks: inbox::Marks,
    audit: Vec<AuditRecord>,
    /// How many rows operators have retried.
    manual_retries: u64,
    /// Changes with every commit of events.
    commits: tokio::sync::watch::Sender<()>,
}

#[derive(Debug, Clone)]
struct Row {
    /// Differs from the event's for siblings.
    id: Uuid,
    seq: i64,
    event: Event,
    lane: Option<u16>,
    state: State,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    delivered_at: Option<OffsetDateTime>,
}

impl Row {
    /// Neither delivered nor unordered.
    fn is_unfinished(&self) -> bool {
        match self.state.status {
            Status::Pending | Status::Processing | Status::Dead => true,
            Status::Delivered | Status::Unknown(_) => false,
        }
    }

    fn is_due(&self, now: OffsetDateTime) -> bool {
        self.state.status == Status::Pending && self.state.due <= now
    }

    /// Is it due since it was inserted?
    fn is_fresh(&self) -> bool {
        self.state.due <= self.created_at
    }

    /// Is it the first row of its event? A sibling has no dedupe key of its own.
    fn is_first(&self) -> bool {
        self.id == self.event.id
    }

    fn is_from(&self, backlog: &Backlog) -> bool {
        self.event.destination == backlog.destination && self.event.namespace == backlog.namespace
    }

    /// Do the two keep the order of the same key?
    fn shares_key(&self, other: &Self) -> bool {
        let ordered = self.lane.is_some() && other.lane.is_some();
        ordered
            && self.event.namespace == other.event.namespace
            && self.event.ordering_key == other.event.ordering_key
    }

    /// Must `other` be finished before this row may go to `destination`?
    fn waits_for(&self, other: &Self, destination: Option<&str>) -> bool {
        let there = other.event.destination.as_deref();
        other.seq < self.seq
            && self.shares_key(other)
            && other.is_unfinished()
            && (there.is_none() || there == destination)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl Memory {
    /// An empty outbox that takes its time from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            table: Arc::default(),
            clock,
            limits: Limits::default(),
        }
    }

    /// Sets the limits of an event.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// All committed events in the order in which they were enqueued, without siblings. Payloads are decompressed. For tests
    /// with [`pillarbox::testing`].
    pub fn events(&self) -> Vec<Event> {
        let events = self.table().events().into_iter().map(|(_, event)| event);
        let restored = |event| restored(event, usize::MAX).expect("it was compressed by this program");
        events.map(restored).collect()
    }

    /// Overwrites a row's state, as another client of the database could. For tests.
    pub fn overwrite(&self, id: Uuid, change: impl FnOnce(&mut State)) {
        if let Some(row) = self.table().find(id) {
            change(&mut row.state);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic never leaves the table half-changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn find(&mut self, id: Uuid) -> Option<&mut Row> {
        let place = self.place(id)?;
        self.rows.get_mut(&place)
    }

    /// The position of a row.
    fn place(&self, id: Uuid) -> Option<(i64, usize)> {
        let place = *self.places.get(&id)?;
        self.rows.get(&place).filter(|row| row.id == id).map(|_| place)
    }

    fn put(&mut self, place: (i64, usize), row: Row) {
        self.places.insert(row.id, place);
        self.rows.insert(place, row);
    }
}

/// The lane of a key. Any hash will do, because it ends with the process.
fn lane(key: &str) -> u16 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    u16::try_from(hasher.finish() % u64::from(LANES)).unwrap_or_default()
}

#[async_trait]
impl Store for Memory {
    async fn find(
        &self,
        scope: &Scope,
        served: Option<&[String]>,
        after: Option<&Backlog>,
        limit: usize,
    ) -> Result<Found, StoreError> {
        Ok(self
            .table()
            .find_due(scope, served, after, limit, self.clock.wall()))
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
        Ok(self.table().claim(request, self.clock.wall()))
    }

    async fn route(&self, worker: Uuid, routings: &[Routing]) -> Result<Routed, StoreError> {
        Ok(self.table().route(worker, routings, self.clock.wall()))
    }

    async fn settle(&self, worker: Uuid, settlements: &[Settlement]) -> Result<Vec<Uuid>, StoreError> {
        Ok(self.table().settle(worker, settlements, self.clock.wall()))
    }

    async fn renew(
        &self,
        worker: Uuid,
        held: &[(Uuid, Uuid)],
        lease: Duration,
    ) -> Result<Vec<Uuid>, StoreError> {
        Ok(self.table().renew(worker, held, lease, self.clock.wall()))
    }

    async fn sweep(&self, request: &SweepRequest) -> Result<Swept, StoreError> {
        Ok(self.table().sweep(request, self.clock.wall()))
    }

    async fn lease_lanes(&self, request: &LaneRequest) -> Result<Vec<Range>, StoreError> {
        Ok(self.table().lease_lanes(request, self.clock.wall()))
    }

    async fn prune_lanes(&self) -> Result<usize, StoreError> {
        Ok(self.table().prune_lanes(self.clock.wall()))
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        self.table().heartbeat(heartbeat, self.clock.wall());
        Ok(())
    }

    async fn deregister(&self, worker: Uuid) -> Result<(), StoreError> {
        self.table().deregister(worker);
        Ok(())
    }

    async fn disable(&self, worker: Uuid, destination: &str, reason: &str) -> Result<(), StoreError> {
        let (now, mut table) = (self.clock.wall(), self.table());
        if table.pause(destination, reason, true, now) {
            table.write(Line::disabled(worker, destination), now);
        }
        Ok(())
    }

    async fn parked(
        &self,
        what: Parked,
        scope: &Scope,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Stub>, StoreError> {
        Ok(self.table().parked(what, scope, after, limit))
    }

    async fn unpark(&self, what: Parked, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        Ok(self.table().unpark(what, ids, self.clock.wall()))
    }

    async fn sample(&self, request: &SampleRequest) -> Result<Option<Sampled>, StoreError> {
        Ok(Some(self.take_sample(request)))
    }

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, StoreError> {
        if request.archive.is_some() {
            return Err(StoreError::Other("rows are not archived from memory".to_owned()));
        }
        Ok(self.table().prune(request, self.clock.wall()))
    }

    async fn families(&self, events: &[Uuid]) -> Result<Vec<Family>, StoreError> {
        Ok(self.table().families(events))
    }

    async fn pending(&self, scope: &Scope) -> Result<Option<u64>, StoreError> {
        Ok(Some(
            self.table()
                .stats(|row| scope.contains(&row.event.namespace), self.clock.wall())
                .pending,
        ))
    }

    async fn watch(&self) -> Result<Option<Box<dyn Watch>>, StoreError> {
        Ok(Some(Box::new(watch::Commits(self.table().commits.subscribe()))))
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
