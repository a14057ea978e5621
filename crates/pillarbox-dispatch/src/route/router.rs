//! Finds the destinations of claimed rows and passes the rows to their senders.
//!
//! A row with one destination goes straight to its sender. A row with several becomes a family: first the store writes one
//! row per destination. A row with a key may also have to ask the store whether it may go. An earlier row of its key may be
//! unfinished at its destination.
//!
//! Families are written in chunks that one statement can write, as many as there is room for. The others are released.
//!
//! The claimer has the store write the families of one claim while it makes the next. Claims are written in their order.
//!
//! When the store fails, the router keeps the batch and the claimer's next tick continues with half of the chunk. A family
//! that cannot be written alone is released for a while, so that it cannot stop the claimer.
//!
//! **If we die here** leases expire. A family was written whole or not at all, and each member has its own destination.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pillarbox::internal::LineLimit;
use pillarbox::{Delivery, StoreError, failpoint};
use pillarbox_store::Verdict;
use pillarbox_store::store::{Member, Routed, Routing, UNROUTED};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::route::route_table::{RouteTable, Target, no_route};
use crate::send::handle::DestinationHandle;
use crate::send::key_queues::{Key, Row, key};
use crate::settings::Unrouted;
use crate::settle::settler::{Decided, hand_over, release};
use crate::worker::Worker;
use crate::worker::in_flight::{Lease, Room};

/// About how many namespaces and topics without a route are logged.
const MOST_WARNINGS: usize = 1000;
/// How often a family may fail to be written before it is released.
const MOST_FAILURES: usize = 5;
/// How long it is released for.
const ROUTE_AGAIN: Duration = Duration::from_secs(10);
/// How many rows one statement writes, and how many bytes. Both are far from what takes as long as a statement may. A family
/// is never divided.
const CHUNK_ROWS: usize = 2_000;
const CHUNK_BYTES: usize = 16 * 1024 * 1024;

/// See the module.
pub(crate) struct Router {
    worker: Arc<Worker>,
    routes: Arc<RouteTable>,
    destinations: Arc<[DestinationHandle]>,
    settler: UnboundedSender<Vec<Decided>>,
    /// Claims that wait for the store to write their families, in the order in which they came.
    pending: VecDeque<Batch>,
    /// How many rows the next statement writes at most: fewer after a failure.
    chunk_rows: usize,
    /// How many destinations an event of the last batch had, about.
    fan_out: usize,
    /// Namespaces and topics without a route that were logged.
    warned: HashSet<(String, String)>,
    /// Limits the lines about dead events.
    dead_lines: LineLimit,
    /// Namespaces of adopted tables whose rows have their own limit of attempts.
    own_limits: HashSet<String>,
}

/// The rows of one claim.
struct Batch {
    lease: Arc<Lease>,
    arrived: Duration,
    /// Rows by the number of their destination.
    rows: HashMap<usize, Vec<Row>>,
    /// Rows that have a verdict without an attempt.
    decided: Vec<Decided>,
    families: VecDeque<Family>,
    /// Keys of rows that were lost: a row behind such a row must not overtake it.
    broken_keys: HashSet<Key>,
    has_routed: bool,
    failures: usize,
}

/// A row with several destinations, or one that has to ask whether it may go.
struct Family {
    delivery: Delivery,
    members: Vec<(Member, Target)>,
    /// May it be written? Perhaps it is, even if the store failed.
    may_be_written: bool,
}

impl Router {
    pub(crate) fn new(
        worker: Arc<Worker>,
        routes: Arc<RouteTable>,
        destinations: Arc<[DestinationHandle]>,
        settler: UnboundedSender<Vec<Decided>>,
    ) -> Self {
        let importers = worker.store.importers();
        let tables = importers.iter().map(|import| import.table());
        let own_limits = tables.filter(|table| table.own_limits);
        Self {
            own_limits: own_limits.map(|table| table.name.clone()).collect(),
            worker,
            routes,
            destinations,
            settler,
            pending: VecDeque::new(),
            chunk_rows: CHUNK_ROWS,
            fan_out: 1,
            warned: HashSet::new(),
            dead_lines: LineLimit::default(),
        }
    }

    /// Passes each row to its destinations, and releases rows that cannot go there now. Rows with families wait until those
    /// are written.
    ///
    /// It overtakes no waiting claim with a row of the same key: that row would have to be in the same claim.
    pub(crate) fn accept(&mut self, deliveries: Vec<Delivery>, lease: Arc<Lease>) {
        let batch = self.batch(deliveries, lease);
        if batch.families.is_empty() {
            self.pass_on(batch);
        } else {
            self.pending.push_back(batch);
        }
    }

    /// The families that the store writes next. Give its answer to [`written`](Self::written).
    pub(crate) fn next_families(&mut self) -> Option<Vec<Routing>> {
        loop {
            let count = self.chunk(self.pending.front()?);
            if count > 0 {
                failpoint::hit("before_route");
                return Some(self.pending.front_mut()?.routings(count));
            }
            let mut batch = self.pending.pop_front()?;
            batch.release_families();
            self.pass_on(batch);
        }
    }

    /// The store has written the first `count` families, or has failed.
    ///
    /// # Errors
    /// When the store failed. The same families are written again, half as many at once.
    pub(crate) fn written(
        &mut self,
        count: usize,
        routed: Result<Routed, StoreError>,
    ) -> Result<(), StoreError> {
        let Some(mut batch) = self.pending.pop_front() else {
            return Ok(());
        };
        match routed {
            Ok(routed) => self.routed(&mut batch, count, routed),
            Err(error) => {
                self.failed(batch, count, &error);
                return Err(error);
            }
        }
        if batch.families.is_empty() {
            self.pass_on(batch);
        } else {
            self.pending.push_front(batch);
        }
        Ok(())
    }

    /// Do claims wait?
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// May the worker claim while families are written? Not while another claim waits, or after the store has failed.
    pub(crate) fn may_claim(&self) -> bool {
        self.pending.len() == 1 && self.pending.iter().all(|batch| batch.failures == 0)
    }

    /// The room that siblings will take that are not written yet.
    pub(crate) fn reserved(&self) -> Room {
        let mut reserved = Room::default();
        for family in self.pending.iter().flat_map(|batch| &batch.families) {
            let (rows, bytes) = family.more();
            reserved.rows += rows;
            reserved.bytes = reserved.bytes.saturating_add(bytes);
        }
        reserved
    }

    /// How many rows an event without a destination becomes, about.
    pub(crate) fn fan_out(&self) -> usize {
        self.fan_out
    }

    /// How many families the next statement writes: what it can write, and what there is room for. The first family of a batch
    /// always has room.
    fn chunk(&self, batch: &Batch) -> usize {
        let settings = &self.worker.settings;
        let used = self.worker.in_flight.used();
        let room_rows = settings.max_in_flight.saturating_sub(used.rows);
        let room_bytes = settings.max_bytes.saturating_sub(used.bytes);
        let (mut rows, mut bytes, mut more_rows, mut more_bytes) = (0usize, 0usize, 0usize, 0usize);
        let fits = |family: &&Family| {
            let (members, size) = (family.members.len(), family.delivery.event.payload.len());
            rows += members;
            bytes = bytes.saturating_add(size.saturating_mul(members));
            let (siblings, sibling_bytes) = family.more();
            more_rows += siblings;
            more_bytes = more_bytes.saturating_add(sibling_bytes);
            let is_first = rows == members;
            let is_writable = is_first || (rows <= self.chunk_rows && bytes <= CHUNK_BYTES);
            let has_room = more_rows <= room_rows && more_bytes <= room_bytes;
            is_writable && (has_room || more_rows == 0 || (is_first && !batch.has_routed))
        };
        batch.families.iter().take_while(fits).count()
    }

    /// Releases rows that were not passed on: the worker shuts down.
    pub(crate) fn release(&mut self) {
        for mut batch in std::mem::take(&mut self.pending) {
            batch.release_families();
            let mut decided = batch.decided;
            for (number, rows) in batch.rows {
                let name = &self.destinations[number].name;
                decided.extend(rows.iter().map(|row| release_row(row, name)));
            }
            hand_over(&self.worker, &self.settler, decided);
        }
    }

    fn batch(&mut self, deliveries: Vec<Delivery>, lease: Arc<Lease>) -> Batch {
        let mut batch = Batch {
            lease,
            arrived: self.worker.now(),
            rows: HashMap::new(),
            decided: Vec::new(),
            families: VecDeque::new(),
            broken_keys: HashSet::new(),
            has_routed: false,
            failures: 0,
        };
        let rows: Vec<(Delivery, Vec<Target>)> =
            deliveries.into_iter().map(|row| self.targets(row)).collect();
        let unrouted = || rows.iter().filter(|(row, _)| row.event.destination.is_none());
        let members: usize = unrouted().map(|(_, targets)| targets.len()).sum();
        if let events @ 1.. = unrouted().count() {
            self.fan_out = members.div_ceil(events).max(1);
        }
        // Rows with a key stay together: if one of them is a family or has to ask, all of them ask.
        let keys_ask = rows
            .iter()
            .any(|(row, targets)| may_ask(row) && (row.contested || targets.len() > 1));
        for (delivery, mut targets) in rows {
            let asks = keys_ask && may_ask(&delivery);
            match (targets.pop(), targets.is_empty()) {
                (None, _) => batch.decided.push(self.unrouted(&delivery)),
                (Some(target), true) if !asks => batch.push(target, delivery),
                (Some(target), _) => {
                    targets.push(target);
                    batch.families.push_back(self.family(delivery, targets));
                }
            }
        }
        batch
    }

    /// Where a row goes.
    fn targets(&self, delivery: Delivery) -> (Delivery, Vec<Target>) {
        let mut targets: Vec<Target> = match &delivery.event.destination {
            Some(name) => self.routes.target_at(name, &delivery.event).into_iter().collect(),
            None => self.routes.targets(&delivery.event),
        };
        if let Some(attempts) = delivery.max_attempts
            && self.own_limits.contains(&delivery.event.namespace)
        {
            for target in &mut targets {
                target.policy = Arc::new(target.policy.with_max_attempts(attempts));
            }
        }
        (delivery, targets)
    }

    fn family(&self, delivery: Delivery, targets: Vec<Target>) -> Family {
        let members = targets.into_iter().enumerate().map(|(number, target)| {
            let member = Member {
                id: if number == 0 { delivery.id } else { Uuid::now_v7() },
                destination: self.destinations[target.number].name.clone(),
                max_attempts: Some(target.policy.max_attempts()),
            };
            (member, target)
        });
        Family {
            members: members.collect(),
            delivery,
            may_be_written: false,
        }
    }

    /// So many families are written. Members that may go now join the other rows of the batch.
    fn routed(&mut self, batch: &mut Batch, count: usize, routed: Routed) {
        batch.has_routed = true;
        batch.failures = 0;
        self.chunk_rows = self.chunk_rows.saturating_mul(2).min(CHUNK_ROWS);
        let lost: HashSet<Uuid> = routed.lost.into_iter().collect();
        let waiting: HashSet<Uuid> = routed.waiting.into_iter().collect();
        self.worker.lost(lost.len());
        let written: Vec<Family> = batch.families.drain(..count).collect();
        let broken = written.iter().filter(|family| lost.contains(&family.delivery.id));
        batch
            .broken_keys
            .extend(broken.filter_map(|family| key(&family.delivery)));
        for family in written {
            let id = family.delivery.id;
            if lost.contains(&id) {
                self.drop_row(&family.delivery);
            } else if key(&family.delivery).is_some_and(|key| batch.broken_keys.contains(&key)) {
                batch.decided.extend(family.release(release()));
            } else {
                let waits = waiting.contains(&id).then(|| family.delivery.clone());
                self.join(batch, family, &waiting);
                // After its siblings have joined: a claim without rows is dropped.
                if let Some(delivery) = waits {
                    self.drop_row(&delivery);
                }
            }
        }
    }

    fn join(&self, batch: &mut Batch, family: Family, waiting: &HashSet<Uuid>) {
        let Family {
            delivery, members, ..
        } = family;
        let has_siblings = members.len() > 1;
        for (member, target) in members {
            if waiting.contains(&member.id) {
                continue;
            }
            let mut delivery = delivery.clone();
            if member.id != delivery.id {
                delivery.id = member.id;
                self.worker.in_flight.add_sibling(&batch.lease, &delivery);
            }
            if has_siblings {
                delivery.event.destination = Some(member.destination);
                delivery.max_attempts = member.max_attempts;
            }
            batch.push(target, delivery);
        }
    }

    /// So many families could not be written. Rows without a key need not wait for them.
    fn failed(&mut self, mut batch: Batch, count: usize, error: &StoreError) {
        let rows: usize = batch
            .families
            .iter()
            .take(count)
            .map(|family| family.members.len())
            .sum();
        self.chunk_rows = (rows / 2).max(1);
        batch.failures += 1;
        if count == 1
            && batch.failures >= MOST_FAILURES
            && let Some(family) = batch.families.pop_front()
        {
            tracing::warn!(%error, event_id = %family.delivery.event.id, rows, "routing failed, event released");
            let verdict = Verdict::Release {
                after: ROUTE_AGAIN,
                reason: Some(format!("routing failed: {error}")),
            };
            batch.failures = 0;
            batch.broken_keys.extend(key(&family.delivery));
            batch.decided.extend(family.release(verdict));
        }
        self.pending.push_front(batch);
        let free: Vec<Batch> = self.pending.iter_mut().map(Batch::take_free).collect();
        for batch in free {
            self.pass_on(batch);
        }
    }

    /// The row is lost, or waits in the store again.
    fn drop_row(&self, delivery: &Delivery) {
        self.worker
            .in_flight
            .decided(std::iter::once((delivery.claim, delivery.id)));
        self.worker.in_flight.free([(delivery.claim, Room::of(delivery))]);
    }

    fn pass_on(&self, batch: Batch) {
        failpoint::hit("after_route");
        let mut decided = batch.decided;
        for (number, rows) in batch.rows {
            let destination = &self.destinations[number];
            for row in destination.admit(rows) {
                decided.push(release_row(&row, &destination.name));
            }
        }
        hand_over(&self.worker, &self.settler, decided);
    }

    /// No route matches: the settings decide what becomes of the row.
    fn unrouted(&mut self, delivery: &Delivery) -> Decided {
        if delivery.event.destination.is_some() {
            // A suspect whose destination is no longer configured.
            return Decided::new(delivery, release());
        }
        self.worker.counters.unrouted(1);
        self.worker.metrics.unrouted.increment(1);
        let event = &delivery.event;
        let reason = no_route(event);
        let action = self.worker.settings.unrouted;
        let topic = (event.namespace.clone(), event.topic.clone());
        if self.warned.len() < MOST_WARNINGS && self.warned.insert(topic) {
            tracing::warn!(reason, action = action.as_str(), "no route matches");
        }
        let verdict = match action {
            Unrouted::Hold => Verdict::Release {
                after: Duration::ZERO,
                reason: Some(reason),
            },
            Unrouted::Delete => Verdict::Delete,
            Unrouted::Dead => {
                if let Some(suppressed) = self.dead_lines.allow(self.worker.now()) {
                    tracing::error!(event_id = %event.id, error = reason, suppressed = (suppressed > 0).then_some(suppressed), "event is dead");
                }
                Verdict::Dead { reason }
            }
        };
        let is_held = action == Unrouted::Hold;
        let mut decided = Decided::new(delivery, verdict);
        decided.settlement.destination = is_held.then(|| UNROUTED.to_owned());
        decided.settlement.unordered = true;
        decided
    }
}

impl Batch {
    fn push(&mut self, target: Target, delivery: Delivery) {
        let row = Row::new(delivery, &self.lease, target.policy, self.arrived);
        self.rows.entry(target.number).or_default().push(row);
    }

    fn routings(&mut self, count: usize) -> Vec<Routing> {
        let claim = self.lease.claim;
        let routings = self.families.iter_mut().take(count).map(|family| {
            family.may_be_written = true;
            Routing {
                id: family.delivery.id,
                claim,
                members: family.members.iter().map(|(member, _)| member.clone()).collect(),
            }
        });
        routings.collect()
    }

    /// Takes out what need not wait for families: verdicts, and rows without a key.
    fn take_free(&mut self) -> Self {
        let mut free = Self {
            lease: Arc::clone(&self.lease),
            arrived: self.arrived,
            rows: HashMap::new(),
            decided: std::mem::take(&mut self.decided),
            families: VecDeque::new(),
            broken_keys: HashSet::new(),
            has_routed: true,
            failures: 0,
        };
        for (number, rows) in &mut self.rows {
            let (keyed, others) = std::mem::take(rows)
                .into_iter()
                .partition(|row| row.ticket.key.is_some());
            *rows = keyed;
            free.rows.insert(*number, others);
        }
        free
    }

    fn release_families(&mut self) {
        for family in std::mem::take(&mut self.families) {
            self.decided.extend(family.release(release()));
        }
    }
}

impl Family {
    /// The rows and bytes that its siblings add. The row itself is in flight already.
    fn more(&self) -> (usize, usize) {
        let siblings = self.members.len() - 1;
        (
            siblings,
            self.delivery.event.payload.len().saturating_mul(siblings),
        )
    }

    /// Releases all members that may be written. The store reports those that are not as lost.
    fn release(&self, verdict: Verdict) -> Vec<Decided> {
        let members = self.members.iter().filter(|(member, _)| {
            let is_row = member.id == self.delivery.id;
            is_row || self.may_be_written
        });
        let members = members.map(|(member, _)| {
            let mut decided = Decided::new(&self.delivery, verdict.clone());
            decided.settlement.id = member.id;
            if member.id != self.delivery.id {
                decided.room = Room::default();
            }
            decided
        });
        members.collect()
    }
}

/// Releases a row whose destination takes nothing now. It waits in the backlog of that destination.
fn release_row(row: &Row, destination: &str) -> Decided {
    let mut decided = Decided::new(&row.delivery, release());
    if !row.ticket.has_destination {
        decided.settlement.destination = Some(destination.to_owned());
        decided.settlement.max_attempts = Some(row.ticket.policy.max_attempts());
    }
    decided
}

/// May a row have to ask whether it may go? One with a key and without a stored destination.
fn may_ask(delivery: &Delivery) -> bool {
    delivery.lane.is_some() && delivery.event.destination.is_none()
}
