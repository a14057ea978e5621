//! What may happen to an outbox, at random.

use std::time::Duration;

use pillarbox::Event;
use pillarbox_store::store::{Backlog, Parked, Share, Take, UNROUTED};
use pillarbox_store::{Scope, Verdict};
use proptest::option::weighted;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;

use crate::store_suite::harness::{Capability, Field, Harness};

pub(super) const LIMIT: u32 = 3;
/// Between two operations that follow each other at once. More than a millisecond, the finest that
/// every store can tell apart.
const MOMENT: time::Duration = time::Duration::milliseconds(10);
/// Room for every key and every row of it.
const ROOM: usize = 400;

/// One operation. Rows and claims are named by numbers, taken modulo how many there are.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Enqueue(Vec<NewEvent>),
    Found {
        shop_only: bool,
    },
    Claim(Claim),
    Route {
        worker: u128,
        claims: Vec<usize>,
        destinations: Vec<&'static str>,
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
    },
    Share {
        worker: u128,
        lease: Duration,
        release: bool,
    },
    Beat {
        worker: u128,
        ttl: Duration,
    },
    Leave(u128),
    Unpark(Parked, Vec<usize>),
    Retry(Vec<usize>),
    Skip(Vec<usize>),
    Delete(usize),
    Pause(&'static str, bool),
    /// Everything that people can ask.
    Operate,
}

#[derive(Debug, Clone)]
pub(super) struct NewEvent {
    shop: bool,
    dedupe: Option<u8>,
    key: Option<u8>,
    destination: Option<&'static str>,
    bytes: usize,
}

/// From every backlog that these histories know.
#[derive(Debug, Clone)]
enum Kind {
    Free(usize),
    Keyed,
    Recovered(usize),
    Alone,
}

#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) worker: u128,
    take: Kind,
    pub(super) lease: Duration,
    bytes: usize,
    a_is_closed: bool,
    pub(super) shop_only: bool,
    pub(super) first_lane: u16,
}

#[derive(Debug, Clone)]
pub(super) struct Settle {
    pub(super) worker: u128,
    pub(super) claims: Vec<usize>,
    pub(super) verdict: Verdict,
    pub(super) limit: Option<u32>,
    pub(super) destination: Option<&'static str>,
    pub(super) unordered: bool,
}

/// What every history begins with.
pub(super) fn begin() -> (Op, time::Duration) {
    let share = Op::Share {
        worker: 1,
        lease: Duration::from_secs(250),
        release: false,
    };
    (share, MOMENT)
}

pub(super) fn ops() -> impl Strategy<Value = Op> {
    let worker = || 1u128..3;
    prop_oneof![
        8 => proptest::collection::vec(events(), 1..4).prop_map(Op::Enqueue),
        2 => any::<bool>().prop_map(|shop_only| Op::Found { shop_only }),
        12 => claims().prop_map(Op::Claim),
        6 => (worker(), numbers(), families()).prop_map(|(worker, claims, destinations)| Op::Route {
            worker, claims, destinations
        }),
        10 => settlements().prop_map(Op::Settle),
        2 => (worker(), numbers(), waits()).prop_map(|(worker, claims, lease)| Op::Renew { worker, claims, lease }),
        4 => (worker(), waits(), any::<bool>()).prop_map(|(worker, grace, shop_only)| Op::Sweep {
            worker, grace, shop_only
        }),
        6 => (worker(), waits(), weighted(0.3, Just(()))).prop_map(|(worker, lease, release)| Op::Share {
            worker, lease, release: release.is_some()
        }),
        2 => (worker(), waits()).prop_map(|(worker, ttl)| Op::Beat { worker, ttl }),
        1 => worker().prop_map(Op::Leave),
        2 => (prop_oneof![Just(Parked::Unrouted), Just(Parked::Blocking)], numbers())
            .prop_map(|(what, rows)| Op::Unpark(what, rows)),
        2 => numbers().prop_map(Op::Retry),
        1 => numbers().prop_map(Op::Skip),
        1 => (0usize..100).prop_map(Op::Delete),
        1 => (prop_oneof![Just("a"), Just("z")], any::<bool>()).prop_map(|(name, on)| Op::Pause(name, on)),
        2 => Just(Op::Operate),
    ]
}

fn events() -> impl Strategy<Value = NewEvent> {
    let destination = prop_oneof![3 => Just(None), 1 => Just(Some("a")), 1 => Just(Some("b"))];
    (
        any::<bool>(),
        weighted(0.2, 0u8..4),
        weighted(0.6, 0u8..3),
        destination,
        1usize..60,
    )
        .prop_map(|(shop, dedupe, key, destination, bytes)| NewEvent {
            shop,
            dedupe,
            key,
            destination,
            bytes,
        })
}

fn claims() -> impl Strategy<Value = Claim> {
    let take = prop_oneof![
        4 => (1usize..6).prop_map(Kind::Free),
        5 => Just(Kind::Keyed),
        2 => (0usize..4).prop_map(Kind::Recovered),
        1 => Just(Kind::Alone),
    ];
    let bytes = prop_oneof![Just(40usize), Just(100), Just(usize::MAX)];
    (
        1u128..3,
        take,
        waits(),
        bytes,
        any::<bool>(),
        any::<bool>(),
        0u16..4096,
    )
        .prop_map(
            |(worker, take, lease, bytes, a_is_closed, shop_only, first_lane)| Claim {
                worker,
                take,
                lease,
                bytes,
                a_is_closed,
                shop_only,
                first_lane,
            },
        )
}

impl Claim {
    pub(super) fn excluded(&self) -> Vec<String> {
        self.a_is_closed.then(|| "a".to_owned()).into_iter().collect()
    }

    /// Which keys come first depends on the store, and so does which a limit cuts off.
    pub(super) fn max_bytes(&self) -> usize {
        match self.take {
            Kind::Keyed => usize::MAX,
            Kind::Free(_) | Kind::Recovered(_) | Kind::Alone => self.bytes,
        }
    }

    pub(super) fn take(&self) -> Take {
        match self.take {
            Kind::Free(limit) => Take::Free(shares(limit)),
            Kind::Keyed => Take::Keyed(shares(ROOM)),
            Kind::Recovered(limit) => Take::Suspects(limit),
            Kind::Alone => Take::LoneSuspect,
        }
    }
}

fn settlements() -> impl Strategy<Value = Settle> {
    let destination = prop_oneof![
        4 => Just(None),
        2 => Just(Some("a")),
        1 => Just(Some(UNROUTED)),
    ];
    (
        1u128..3,
        numbers(),
        verdicts(),
        weighted(0.2, 1u32..5),
        destination,
        weighted(0.2, Just(())),
    )
        .prop_map(
            |(worker, claims, verdict, limit, destination, unordered)| Settle {
                worker,
                claims,
                verdict,
                limit,
                destination,
                unordered: unordered.is_some(),
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
        Just(vec!["c", "a", "b"]),
    ]
}

fn waits() -> impl Strategy<Value = Duration> {
    (0u64..3).prop_map(|n| Duration::from_secs(50 + 100 * n))
}

pub(super) fn gaps() -> impl Strategy<Value = time::Duration> {
    prop_oneof![
        3 => Just(MOMENT),
        2 => (1i64..4).prop_map(|n| MOMENT + time::Duration::seconds(100 * n)),
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

/// From every backlog that these histories know.
fn shares(limit: usize) -> Vec<Share> {
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
                fair: false,
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

/// What the events of both stores can have, by what the subject's can.
pub(super) struct Has {
    namespaces: bool,
    dedupe_keys: bool,
    ordering_keys: bool,
    destinations: bool,
    pub(super) bytes: bool,
}

impl Has {
    pub(super) fn of(subject: &dyn Harness) -> Self {
        let has = |field| subject.can(Capability::Field(field)).is_ok();
        Self {
            namespaces: has(Field::Namespace),
            // Where a row is left in somebody else's table, its key outlives it.
            dedupe_keys: has(Field::DedupeKey) && subject.can(Capability::OwnTable).is_ok(),
            ordering_keys: has(Field::OrderingKey),
            destinations: has(Field::Destination),
            bytes: has(Field::Bytes),
        }
    }
}

impl NewEvent {
    pub(super) fn build(&self, has: &Has) -> Event {
        let till = has.namespaces && !self.shop;
        let mut event = Event::new(if till { "till" } else { "shop" }, "orders");
        if has.bytes {
            event = event.bytes(vec![7; self.bytes], "application/octet-stream");
        }
        let dedupe = self.dedupe.filter(|_| has.dedupe_keys);
        let key = self.key.filter(|_| has.ordering_keys);
        event.dedupe_key = dedupe.map(|key| format!("k{key}"));
        event.ordering_key = key.map(|key| format!("o{key}"));
        event.destination = self.destination.filter(|_| has.destinations).map(str::to_owned);
        event
    }
}
