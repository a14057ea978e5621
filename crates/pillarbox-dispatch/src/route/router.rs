//! Sorts claimed rows: which destinations each goes to, which are siblings, and which cannot go now.
//!
//! **If we die here** leases end. A family that was written is whole, and every member has its own destination.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pillarbox::{Delivery, StoreError, failpoint};
use pillarbox_store::Verdict;
use pillarbox_store::store::{Member, Routing, Settlement, UNROUTED};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::route::route_table::{RouteTable, Target, no_route};
use crate::send::handle::Entrance;
use crate::send::key_queues::{Key, Row, key};
use crate::settings::Unrouted;
use crate::settle::settler::{Settled, hand_over, release};
use crate::worker::Worker;
use crate::worker::in_flight::{Lease, Room};
use crate::worker::store_health::Backoff;

/// About how many (namespace, topic) without a route a warning is remembered.
const MOST_WARNINGS: usize = 1000;
/// How often to try to write families down before they are left to their leases.
const TRIES: usize = 5;

/// See the module.
pub(crate) struct Router {
    worker: Arc<Worker>,
    routes: Arc<RouteTable>,
    entrances: Arc<[Entrance]>,
    settler: UnboundedSender<Vec<Settled>>,
    warned: HashSet<(String, String)>,
    /// Namespaces whose rows say themselves how many attempts they have.
    own_limits: HashSet<String>,
}

/// Rows by destination, and what is given back at once.
struct Sorted {
    bundles: HashMap<usize, Vec<Row>>,
    given_back: Vec<Settled>,
}

impl Sorted {
    fn put(&mut self, target: Target, delivery: Delivery, lease: &Arc<Lease>, now: Duration) {
        let row = Row::new(delivery, lease, target.policy, now);
        self.bundles.entry(target.number).or_default().push(row);
    }
}

/// A row that goes to several places, or has to ask whether it may go.
struct Family {
    delivery: Delivery,
    members: Vec<(Member, Target)>,
}

impl Router {
    pub(crate) fn new(
        worker: Arc<Worker>,
        routes: Arc<RouteTable>,
        entrances: Arc<[Entrance]>,
        settler: UnboundedSender<Vec<Settled>>,
    ) -> Self {
        let importing = worker.store.importing().into_iter();
        let own_limits = importing.filter(|from| from.own_limits).map(|from| from.source);
        Self {
            own_limits: own_limits.collect(),
            worker,
            routes,
            entrances,
            settler,
            warned: HashSet::new(),
        }
    }

    /// Hands each row to its destinations, and gives back what cannot go there now.
    pub(crate) async fn sort(&mut self, deliveries: Vec<Delivery>, lease: &Arc<Lease>) {
        let now = self.worker.now();
        let mut sorted = Sorted {
            bundles: HashMap::new(),
            given_back: Vec::new(),
        };
        let rows: Vec<(Delivery, Vec<Target>)> =
            deliveries.into_iter().map(|row| self.targets(row)).collect();
        // Rows with a key go one target together: straight on, if none has siblings or has to ask.
        let keys_ask = rows
            .iter()
            .any(|(row, targets)| asks(row) && (row.contested || targets.len() > 1));
        let mut families = Vec::new();
        for (delivery, mut targets) in rows {
            let straight = !(keys_ask && asks(&delivery));
            match (targets.pop(), targets.is_empty()) {
                (None, _) => sorted.given_back.push(self.no_route(&delivery)),
                (Some(target), true) if straight => sorted.put(target, delivery, lease, now),
                (Some(target), _) => {
                    targets.push(target);
                    families.push(self.family(delivery, targets));
                }
            }
        }
        self.route(families, lease, &mut sorted, now).await;
        failpoint::hit("after_route");
        self.hand_out(sorted, now);
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
                target.policy = Arc::new(target.policy.limited(attempts));
            }
        }
        (delivery, targets)
    }

    fn family(&self, delivery: Delivery, targets: Vec<Target>) -> Family {
        let members = targets.into_iter().enumerate().map(|(number, target)| {
            let member = Member {
                id: if number == 0 { delivery.id } else { Uuid::now_v7() },
                destination: self.entrances[target.number].name.clone(),
                max_attempts: Some(target.policy.limit()),
            };
            (member, target)
        });
        Family {
            members: members.collect(),
            delivery,
        }
    }

    /// Writes families down, and puts the members that may go now where they belong.
    async fn route(&mut self, families: Vec<Family>, lease: &Arc<Lease>, sorted: &mut Sorted, now: Duration) {
        if families.is_empty() {
            return;
        }
        let routings: Vec<Routing> = families
            .iter()
            .map(|family| Routing {
                id: family.delivery.id,
                claim: lease.claim,
                members: family.members.iter().map(|(member, _)| member.clone()).collect(),
            })
            .collect();
        let routed = match self.write(&routings).await {
            Ok(routed) => routed,
            Err(error) => {
                tracing::warn!(%error, rows = routings.len(), "routes could not be written; the rows are given back");
                for family in families {
                    sorted.given_back.extend(give_back_family(&family));
                }
                return;
            }
        };
        let lost: HashSet<Uuid> = routed.lost.into_iter().collect();
        let waiting: HashSet<Uuid> = routed.waiting.into_iter().collect();
        self.worker.counters.lost(lost.len());
        // What comes after a lost row of its key must not go before it.
        let torn: HashSet<Key> = families
            .iter()
            .filter(|family| lost.contains(&family.delivery.id))
            .filter_map(|family| key(&family.delivery))
            .collect();
        for family in families {
            let is_lost = lost.contains(&family.delivery.id);
            if !is_lost && key(&family.delivery).is_some_and(|key| torn.contains(&key)) {
                sorted.given_back.extend(give_back_family(&family));
                continue;
            }
            let Family { delivery, members } = family;
            let alone = members.len() == 1;
            if is_lost || waiting.contains(&delivery.id) {
                self.forget(&delivery);
            }
            if is_lost {
                continue;
            }
            for (member, target) in members {
                if waiting.contains(&member.id) {
                    continue;
                }
                let mut delivery = delivery.clone();
                if member.id != delivery.id {
                    delivery.id = member.id;
                    self.worker.in_flight.join(lease, &delivery);
                }
                if !alone {
                    delivery.event.destination = Some(member.destination);
                    delivery.max_attempts = member.max_attempts;
                }
                sorted.put(target, delivery, lease, now);
            }
        }
    }

    /// Tries a few times: a store that is gone for a moment should not cost these rows a lease.
    async fn write(&self, routings: &[Routing]) -> Result<pillarbox_store::store::Routed, StoreError> {
        let mut backoff = Backoff::for_store();
        let mut tries = 0;
        loop {
            failpoint::hit("before_route");
            match self.worker.store.route(self.worker.id, routings).await {
                Ok(routed) => {
                    self.worker.store_health.worked("router");
                    return Ok(routed);
                }
                Err(error) => {
                    self.worker.store_failed("router", &error);
                    tries += 1;
                    if tries == TRIES {
                        // The others will say when the store is back.
                        self.worker.store_health.worked("router");
                        return Err(error);
                    }
                    tokio::time::sleep(backoff.failed(fastrand::f64())).await;
                }
            }
        }
    }

    /// The row is not ours any more, or not now.
    fn forget(&self, delivery: &Delivery) {
        self.worker
            .in_flight
            .answered(std::iter::once((delivery.claim, delivery.id)));
        self.worker.in_flight.free(Room::of(delivery));
    }

    fn hand_out(&self, sorted: Sorted, now: Duration) {
        let Sorted {
            bundles,
            mut given_back,
        } = sorted;
        for (number, rows) in bundles {
            let entrance = &self.entrances[number];
            for row in entrance.admit(rows, now) {
                given_back.push(turn_away(&row, &entrance.name));
            }
        }
        hand_over(&self.worker, &self.settler, given_back);
    }

    /// No route leads anywhere: the configuration says what becomes of it.
    fn no_route(&mut self, delivery: &Delivery) -> Settled {
        if delivery.event.destination.is_some() {
            // It came back because its lease ran out, and its destination is not configured any more.
            return settled(delivery, release());
        }
        self.worker.counters.unrouted(1);
        let event = &delivery.event;
        let reason = no_route(event);
        let what = self.worker.settings.unrouted;
        let about = (event.namespace.clone(), event.topic.clone());
        if self.warned.len() < MOST_WARNINGS && self.warned.insert(about) {
            tracing::warn!(reason, ?what, "events lead nowhere");
        }
        let verdict = match what {
            Unrouted::Hold => Verdict::Release {
                after: Duration::ZERO,
                reason: Some(reason),
            },
            Unrouted::Delete => Verdict::Delete,
            Unrouted::Dead => Verdict::Dead { reason },
        };
        let held = what == Unrouted::Hold;
        let mut settled = settled(delivery, verdict);
        settled.settlement.destination = held.then(|| UNROUTED.to_owned());
        settled.settlement.unordered = true;
        settled
    }
}

/// A row whose destination takes nothing now: it waits there, not in the target of the others.
fn turn_away(row: &Row, destination: &str) -> Settled {
    let mut settled = settled(&row.delivery, release());
    if !row.ticket.knows_destination {
        settled.settlement.destination = Some(destination.to_owned());
        settled.settlement.max_attempts = Some(row.ticket.policy.limit());
    }
    settled
}

/// It is not known which of them were written: those that were not are nobody's concern.
fn give_back_family(family: &Family) -> Vec<Settled> {
    let members = family.members.iter().map(|(member, _)| {
        let mut settled = settled(&family.delivery, release());
        settled.settlement.id = member.id;
        if member.id != family.delivery.id {
            settled.room = Room::default();
        }
        settled
    });
    members.collect()
}

/// May a row have to ask whether it may go? One that has a key, and no destination yet.
fn asks(delivery: &Delivery) -> bool {
    delivery.lane.is_some() && delivery.event.destination.is_none()
}

fn settled(delivery: &Delivery, verdict: Verdict) -> Settled {
    Settled {
        settlement: Settlement {
            id: delivery.id,
            claim: delivery.claim,
            verdict,
            destination: None,
            max_attempts: None,
            unordered: false,
        },
        room: Room::of(delivery),
    }
}
