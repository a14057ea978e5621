//! Finds the destinations of claimed rows and passes the rows to their senders.
//!
//! A row with one destination goes straight to its sender. A row with several becomes a family: first the store writes one
//! row per destination. A row with a key may also have to ask the store whether it may go. An earlier row of its key may be
//! unfinished at its destination.
//!
//! When the store fails, the router keeps the batch and the claimer's next tick resumes it. After some failures the
//! families are released, so that a statement that always fails cannot stop the claimer.
//!
//! **If we die here** leases expire. A family was written whole or not at all, and each member has its own destination.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

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
use crate::worker::line_limit::LineLimit;

/// About how many namespaces and topics without a route are logged.
const MOST_WARNINGS: usize = 1000;
/// How often families may fail to be written before they are released.
const MOST_FAILURES: usize = 5;

/// See the module.
pub(crate) struct Router {
    worker: Arc<Worker>,
    routes: Arc<RouteTable>,
    destinations: Arc<[DestinationHandle]>,
    settler: UnboundedSender<Vec<Decided>>,
    /// Rows that wait for the store to write their families.
    pending: Option<Batch>,
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
    families: Vec<Family>,
    failures: usize,
}

/// A row with several destinations, or one that has to ask whether it may go.
struct Family {
    delivery: Delivery,
    members: Vec<(Member, Target)>,
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
            pending: None,
            warned: HashSet::new(),
            dead_lines: LineLimit::default(),
        }
    }

    /// Passes each row to its destinations, and releases rows that cannot go there now.
    ///
    /// # Errors
    /// When the store failed to write families: [`resume`](Self::resume) continues.
    pub(crate) async fn route(
        &mut self,
        deliveries: Vec<Delivery>,
        lease: Arc<Lease>,
    ) -> Result<(), StoreError> {
        let batch = self.batch(deliveries, lease);
        self.pending = Some(batch);
        self.resume().await
    }

    /// Continues with rows whose families could not be written.
    ///
    /// # Errors
    /// When the store failed again.
    pub(crate) async fn resume(&mut self) -> Result<(), StoreError> {
        let Some(mut batch) = self.pending.take() else {
            return Ok(());
        };
        if !batch.families.is_empty() {
            failpoint::hit("before_route");
            match self.worker.store.route(self.worker.id, &batch.routings()).await {
                Ok(routed) => self.routed(&mut batch, routed),
                Err(error) => {
                    self.failed(batch, &error);
                    return Err(error);
                }
            }
        }
        failpoint::hit("after_route");
        self.pass_on(batch);
        Ok(())
    }

    /// Releases rows that were not passed on: the worker shuts down.
    pub(crate) fn release(&mut self) {
        let Some(mut batch) = self.pending.take() else {
            return;
        };
        batch.release_families();
        let mut decided = batch.decided;
        for (number, rows) in batch.rows {
            let name = &self.destinations[number].name;
            decided.extend(rows.iter().map(|row| release_row(row, name)));
        }
        hand_over(&self.worker, &self.settler, decided);
    }

    fn batch(&mut self, deliveries: Vec<Delivery>, lease: Arc<Lease>) -> Batch {
        let mut batch = Batch {
            lease,
            arrived: self.worker.now(),
            rows: HashMap::new(),
            decided: Vec::new(),
            families: Vec::new(),
            failures: 0,
        };
        let rows: Vec<(Delivery, Vec<Target>)> =
            deliveries.into_iter().map(|row| self.targets(row)).collect();
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
                    batch.families.push(self.family(delivery, targets));
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
        }
    }

    /// Families are written. Members that may go now join the other rows of the batch.
    fn routed(&self, batch: &mut Batch, routed: Routed) {
        let lost: HashSet<Uuid> = routed.lost.into_iter().collect();
        let waiting: HashSet<Uuid> = routed.waiting.into_iter().collect();
        self.worker.counters.lost(lost.len());
        // A row behind a lost one of its key must not overtake it.
        let broken_keys: HashSet<Key> = batch
            .families
            .iter()
            .filter(|family| lost.contains(&family.delivery.id))
            .filter_map(|family| key(&family.delivery))
            .collect();
        for family in std::mem::take(&mut batch.families) {
            let id = family.delivery.id;
            if lost.contains(&id) {
                self.drop_row(&family.delivery);
            } else if key(&family.delivery).is_some_and(|key| broken_keys.contains(&key)) {
                batch.decided.extend(family.release());
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
        let Family { delivery, members } = family;
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

    fn failed(&mut self, mut batch: Batch, error: &StoreError) {
        batch.failures += 1;
        if batch.failures < MOST_FAILURES {
            self.pending = Some(batch);
            return;
        }
        let rows = batch.families.len();
        tracing::warn!(%error, rows, "routing failed, rows released");
        batch.release_families();
        self.pass_on(batch);
    }

    /// The row is lost, or waits in the store again.
    fn drop_row(&self, delivery: &Delivery) {
        self.worker
            .in_flight
            .decided(std::iter::once((delivery.claim, delivery.id)));
        self.worker.in_flight.free(Room::of(delivery));
    }

    fn pass_on(&self, batch: Batch) {
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
        let event = &delivery.event;
        let reason = no_route(event);
        let action = self.worker.settings.unrouted;
        let topic = (event.namespace.clone(), event.topic.clone());
        if self.warned.len() < MOST_WARNINGS && self.warned.insert(topic) {
            tracing::warn!(reason, ?action, "no route matches");
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

    fn routings(&self) -> Vec<Routing> {
        let routings = self.families.iter().map(|family| Routing {
            id: family.delivery.id,
            claim: self.lease.claim,
            members: family.members.iter().map(|(member, _)| member.clone()).collect(),
        });
        routings.collect()
    }

    fn release_families(&mut self) {
        for family in std::mem::take(&mut self.families) {
            self.decided.extend(family.release());
        }
    }
}

impl Family {
    /// Releases all members. Those that were not written are unknown to the store, which ignores them.
    fn release(&self) -> Vec<Decided> {
        let members = self.members.iter().map(|(member, _)| {
            let mut decided = Decided::new(&self.delivery, release());
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
