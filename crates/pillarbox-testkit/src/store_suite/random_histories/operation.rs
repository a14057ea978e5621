//! The operations of a history, at random.

use std::time::Duration;

use pillarbox::Event;
use pillarbox_store::retention::{Keep, Retention};
use pillarbox_store::store::{Backlog, Parked, Serves, Share, Take, UNROUTED};
use pillarbox_store::{Scope, Verdict};
use proptest::bool::weighted as sometimes;
use proptest::option::weighted;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use uuid::Uuid;

use crate::store_suite::harness::{Capability, Field, Harness};

pub(super) const LIMIT: u32 = 3;
/// Between two operations that follow each other at once. More than a millisecond, the resolution of every store.
const MOMENT: time::Duration = time::Duration::milliseconds(10);
/// Room for every key and all of its rows.
const ROOM: usize = 400;

/// One operation. Rows and claims are numbers, modulo how many there are.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Enqueue(Vec<NewEvent>),
    Find {
        shop_only: bool,
    },
    Claim(Claim),
    /// By any worker, whether it holds the claims or not.
    Route {
        worker: u128,
        claims: Vec<usize>,
        destinations: Vec<&'static str>,
    },
    RouteLatestClaim {
        families: Vec<Vec<&'static str>>,
    },
    Settle(Settle),
    Renew {
        worker: u128,
        claims: Vec<usize>,
        lease: Duration,
    },
    Sweep {
        worker: u128,
        grace: Duration,
        shop_only: bool,
        a_is_open: bool,
    },
    LeaseLanes {
        worker: u128,
        lease: Duration,
        release: bool,
    },
    PruneLanes,
    Prune(Retention),
    Heartbeat {
        worker: u128,
        ttl: Duration,
        serves: Serves,
    },
    Deregister(u128),
    Unpark(Parked, Vec<usize>),
    Retry(Vec<usize>),
    Skip(Vec<usize>),
    Delete(usize),
    Pause(&'static str),
    Resume(&'static str),
}

#[derive(Debug, Clone)]
pub(super) struct NewEvent {
    shop: bool,
    dedupe: Option<u8>,
    key: Option<u8>,
    destination: Option<&'static str>,
    tenant: Option<u8>,
    /// With a delivery time that has passed.
    scheduled: bool,
    bytes: usize,
}

/// From every backlog of these histories.
#[derive(Debug, Clone)]
enum Kind {
    Free { limit: usize, fair: bool },
    Keyed,
    Suspects(usize),
    LoneSuspect,
}

#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) worker: u128,
    take: Kind,
    pub(super) lease: Duration,
    bytes: usize,
    pub(super) a_is_open: bool,
    pub(super) shop_only: bool,
    pub(super) first_lane: u16,
}

#[derive(Debug, Clone)]
pub(super) struct Settle {
    /// None for the worker that holds the first of the claims.
    pub(super) worker: Option<u128>,
    pub(super) claims: Vec<usize>,
    pub(super) verdict: Verdict,
    pub(super) limit: Option<u32>,
    pub(super) destination: Option<&'static str>,
    pub(super) unordered: bool,
    pub(super) keep: bool,
}

/// A worker leases lanes, or most histories would claim no keys.
pub(super) fn first_operation() -> (Operation, time::Duration) {
    let lease_lanes = Operation::LeaseLanes {
        worker: 1,
        lease: Duration::from_secs(250),
        release: false,
    };
    (lease_lanes, MOMENT)
}

/// What a worker serves: everything, or some destinations of which it cannot reach one, with or without routes.
fn serves() -> impl Strategy<Value = Serves> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let destinations = prop_oneof![
        2 => Just(None),
        1 => Just(Some(names(&["a"]))),
        2 => Just(Some(names(&["a", "b"]))),
        1 => Just(Some(names(&["b", "c"]))),
    ];
    let unreachable =
        prop_oneof![2 => Just(names(&[])), 1 => Just(names(&["a"])), 1 => Just(names(&["b", "z"]))];
    (destinations, unreachable, any::<bool>()).prop_map(|(destinations, unreachable, routes)| Serves {
        destinations,
        unreachable,
        routes,
        lane_ranges: 1,
    })
}

pub(super) fn operations() -> impl Strategy<Value = Operation> {
    let parked = || prop_oneof![Just(Parked::Unrouted), Just(Parked::Blocking)];
    let pausable = || prop_oneof![2 => Just("a"), 1 => Just("b"), 1 => Just("z")];
    prop_oneof![
        8 => proptest::collection::vec(events(), 1..4).prop_map(Operation::Enqueue),
        1 => any::<bool>().prop_map(|shop_only| Operation::Find { shop_only }),
        14 => claims().prop_map(Operation::Claim),
        3 => (workers(), numbers(), families()).prop_map(|(worker, claims, destinations)| Operation::Route {
            worker, claims, destinations
        }),
        4 => proptest::collection::vec(families(), 1..4)
            .prop_map(|families| Operation::RouteLatestClaim { families }),
        11 => settlements().prop_map(Operation::Settle),
        2 => (workers(), numbers(), waits())
            .prop_map(|(worker, claims, lease)| Operation::Renew { worker, claims, lease }),
        4 => (workers(), waits(), any::<bool>(), any::<bool>())
            .prop_map(|(worker, grace, shop_only, a_is_open)| Operation::Sweep {
                worker, grace, shop_only, a_is_open
            }),
        6 => (workers(), waits(), sometimes(0.3))
            .prop_map(|(worker, lease, release)| Operation::LeaseLanes { worker, lease, release }),
        1 => Just(Operation::PruneLanes),
        3 => retentions().prop_map(Operation::Prune),
        3 => (workers(), waits(), serves()).prop_map(|(worker, ttl, serves)| Operation::Heartbeat {
            worker, ttl, serves
        }),
        1 => workers().prop_map(Operation::Deregister),
        2 => (parked(), numbers()).prop_map(|(what, rows)| Operation::Unpark(what, rows)),
        2 => numbers().prop_map(Operation::Retry),
        1 => numbers().prop_map(Operation::Skip),
        1 => (0usize..100).prop_map(Operation::Delete),
        1 => pausable().prop_map(Operation::Pause),
        1 => pausable().prop_map(Operation::Resume),
    ]
}

/// Of the namespace `shop`, and of all others.
fn retentions() -> impl Strategy<Value = Retention> {
    let keep = || {
        (weighted(0.8, waits()), weighted(0.8, waits()))
            .prop_map(|(delivered, dead)| Keep { delivered, dead })
    };
    (keep(), weighted(0.5, keep())).prop_map(|(keep, shop)| Retention {
        keep,
        namespaces: shop.map(|keep| ("shop".to_owned(), keep)).into_iter().collect(),
        ..Retention::default()
    })
}

fn workers() -> impl Strategy<Value = u128> {
    1u128..3
}

fn events() -> impl Strategy<Value = NewEvent> {
    let destination = prop_oneof![3 => Just(None), 1 => Just(Some("a")), 1 => Just(Some("b"))];
    (
        any::<bool>(),
        weighted(0.2, 0u8..4),
        weighted(0.6, 0u8..3),
        destination,
        weighted(0.5, 0u8..3),
        any::<bool>(),
        1usize..60,
    )
        .prop_map(
            |(shop, dedupe, key, destination, tenant, scheduled, bytes)| NewEvent {
                shop,
                dedupe,
                key,
                destination,
                tenant,
                scheduled,
                bytes,
            },
        )
}

fn claims() -> impl Strategy<Value = Claim> {
    let take = prop_oneof![
        4 => (1usize..7, any::<bool>()).prop_map(|(limit, fair)| Kind::Free { limit, fair }),
        5 => Just(Kind::Keyed),
        2 => (0usize..4).prop_map(Kind::Suspects),
        1 => Just(Kind::LoneSuspect),
    ];
    let bytes = prop_oneof![Just(40usize), Just(100), Just(usize::MAX)];
    (
        workers(),
        take,
        waits(),
        bytes,
        any::<bool>(),
        any::<bool>(),
        0u16..4096,
    )
        .prop_map(
            |(worker, take, lease, bytes, a_is_open, shop_only, first_lane)| Claim {
                worker,
                take,
                lease,
                bytes,
                a_is_open,
                shop_only,
                first_lane,
            },
        )
}

impl Claim {
    /// Keyed and fair claims have no limit: which keys and tenants it cuts off depends on the store.
    pub(super) fn max_bytes(&self, supported: &Supported) -> usize {
        match self.take {
            Kind::Keyed | Kind::Free { fair: true, .. } => usize::MAX,
            Kind::Free { .. } | Kind::Suspects(_) | Kind::LoneSuspect if supported.bytes => self.bytes,
            Kind::Free { .. } | Kind::Suspects(_) | Kind::LoneSuspect => usize::MAX,
        }
    }

    pub(super) fn take(&self) -> Take {
        match self.take {
            // Where the tenants' turns begin depends on the store.
            Kind::Free { limit, fair } => Take::Free(shares(if fair { ROOM } else { limit }, fair)),
            Kind::Keyed => Take::Keyed(shares(ROOM, false)),
            Kind::Suspects(limit) => Take::Suspects(limit),
            Kind::LoneSuspect => Take::LoneSuspect,
        }
    }
}

fn settlements() -> impl Strategy<Value = Settle> {
    let destination = prop_oneof![
        4 => Just(None),
        2 => Just(Some("a")),
        1 => Just(Some("b")),
        1 => Just(Some(UNROUTED)),
    ];
    (
        weighted(0.5, workers()),
        numbers(),
        verdicts(),
        weighted(0.2, 1u32..5),
        destination,
        sometimes(0.2),
        any::<bool>(),
    )
        .prop_map(
            |(worker, claims, verdict, limit, destination, unordered, keep)| Settle {
                worker,
                claims,
                verdict,
                limit,
                destination,
                unordered,
                keep,
            },
        )
}

fn numbers() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0usize..100, 1..5)
}

fn families() -> impl Strategy<Value = Vec<&'static str>> {
    prop_oneof![
        Just(vec!["a"]),
        Just(vec!["b"]),
        Just(vec!["a", "b"]),
        Just(vec!["b", "a"]),
        Just(vec!["c", "a", "b"]),
    ]
}

fn waits() -> impl Strategy<Value = Duration> {
    (0u64..3).prop_map(|n| Duration::from_secs(50 + 100 * n))
}

pub(super) fn gaps() -> impl Strategy<Value = time::Duration> {
    prop_oneof![
        2 => Just(MOMENT),
        1 => (1i64..4).prop_map(|n| MOMENT + time::Duration::seconds(100 * n)),
    ]
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    let delays = || prop_oneof![Just(Duration::ZERO), waits()];
    prop_oneof![
        3 => Just(Verdict::Delivered),
        2 => Just(Verdict::Dead { reason: "no".into() }),
        3 => delays().prop_map(|after| Verdict::Retry { after, reason: "again".into() }),
        2 => (delays(), proptest::option::of(Just("later".to_owned())))
            .prop_map(|(after, reason)| Verdict::Release { after, reason }),
        2 => waits().prop_map(|after| Verdict::Suspect { after, reason: "connection_lost".into() }),
        1 => Just(Verdict::Delete),
    ]
}

/// From every backlog of these histories.
fn shares(limit: usize, fair: bool) -> Vec<Share> {
    let mut shares = Vec::new();
    for destination in [None, Some("a"), Some("b"), Some("c")] {
        for namespace in ["shop", "till"] {
            shares.push(Share {
                backlog: Backlog {
                    destination: destination.map(str::to_owned),
                    namespace: namespace.to_owned(),
                },
                limit,
                floor: 0,
                fair,
                resume: false,
            });
        }
    }
    shares
}

pub(super) fn scope(shop_only: bool) -> Scope {
    if shop_only {
        Scope::of(["shop"])
    } else {
        Scope::All
    }
}

/// Destinations from which nothing is taken.
pub(super) fn excluded(a_is_open: bool) -> Vec<String> {
    (!a_is_open).then(|| "a".to_owned()).into_iter().collect()
}

/// What the events of both stores can have, by what those of the subject can.
pub(super) struct Supported {
    namespaces: bool,
    dedupe_keys: bool,
    ordering_keys: bool,
    destinations: bool,
    tenants: bool,
    delivery_times: bool,
    bytes: bool,
    /// Rows are in the order of the calls, not in that of an import, and have the content of the enqueued event.
    pub(super) own_table: bool,
    /// A store finds only keys that a claim can take.
    pub(super) exact_keys: bool,
}

impl Supported {
    pub(super) fn by(subject: &dyn Harness) -> Self {
        let has = |field| subject.can(Capability::Field(field)).is_ok();
        let own_table = subject.can(Capability::OwnTable).is_ok();
        Self {
            namespaces: has(Field::Namespace),
            // A row that stays in an adopted table keeps its dedupe key.
            dedupe_keys: has(Field::DedupeKey) && own_table,
            ordering_keys: has(Field::OrderingKey),
            destinations: has(Field::Destination),
            tenants: has(Field::Tenant),
            delivery_times: has(Field::DeliverAt),
            bytes: has(Field::Bytes),
            own_table,
            exact_keys: subject.can(Capability::ExactFind).is_ok(),
        }
    }
}

impl Supported {
    /// The fields that both stores must have in common. A layout adds its own, such as a type from a column.
    pub(super) fn comparable(&self, mut event: Event) -> Event {
        if !self.own_table {
            let mut common = Event::new(&event.namespace, "orders").id(event.id);
            common.tenant_id = event.tenant_id;
            common.dedupe_key = event.dedupe_key.clone();
            common.ordering_key = event.ordering_key.clone();
            common.destination = event.destination.clone();
            return common;
        }
        event.deliver_at = None;
        event
    }
}

impl NewEvent {
    pub(super) fn build(&self, supported: &Supported) -> Event {
        let till = supported.namespaces && !self.shop;
        let mut event = Event::new(if till { "till" } else { "shop" }, "orders");
        if supported.bytes {
            event = event.bytes(vec![7; self.bytes], "application/octet-stream");
        }
        let dedupe = self.dedupe.filter(|_| supported.dedupe_keys);
        let key = self.key.filter(|_| supported.ordering_keys);
        event.dedupe_key = dedupe.map(|key| format!("k{key}"));
        event.ordering_key = key.map(|key| format!("o{key}"));
        event.destination = self
            .destination
            .filter(|_| supported.destinations)
            .map(str::to_owned);
        // A dedupe key names its tenant, or no tenant may be set.
        let tenant = self.tenant.filter(|_| supported.tenants && dedupe.is_none());
        event.tenant_id = tenant.map(|tenant| Uuid::from_u128(tenant.into()));
        // Only without a key: a key is delivered in its order, whatever the times.
        if self.scheduled && supported.delivery_times && key.is_none() {
            event.deliver_at = Some(time::OffsetDateTime::UNIX_EPOCH);
        }
        event
    }
}
