//! Random operations on a store and on the reference, step by step: both must say the same and look
//! the same afterwards.
//!
//! Waits end in 50 seconds (50, 150, 250) and the steps between operations are hundreds of seconds or
//! almost nothing, so that nothing depends on the real seconds that pass on a slow machine.

use std::time::Duration;

use pillarbox::operate::{Filter, Record};
use pillarbox::store::{ClaimRequest, Settlement, Share, Source, SweepRequest, Swept, Take};
use pillarbox::{Event, Scope, Verdict};
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use uuid::Uuid;

use super::harness::Harness;
use super::memory::MemoryHarness;

const CASES: u32 = 40;
const STEPS: usize = 30;
const LIMIT: u32 = 3;
/// Between two operations that follow each other at once. More than a millisecond, the finest that
/// every store can tell apart.
const MOMENT: time::Duration = time::Duration::milliseconds(10);

/// Compares a store with the reference.
///
/// # Panics
/// With the shortest sequence of operations on which the two differ.
pub fn conformance<H: Harness, F: Future<Output = H>>(fresh: impl Fn() -> F) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        max_shrink_iters: 300,
        ..Config::default()
    };
    let steps = proptest::collection::vec((ops(), gaps()), 1..STEPS);
    let outcome = TestRunner::new(config).run(&steps, |steps| {
        runtime.block_on(async {
            let subject = Box::pin(fresh()).await;
            let reference = MemoryHarness::fresh().await;
            let mut pair = Pair::new(&subject, &reference);
            for (op, gap) in steps {
                Box::pin(pair.step(&op, gap)).await.map_err(TestCaseError::fail)?;
            }
            subject.clean_up().await;
            Ok(())
        })
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// One operation. Rows and claims are named by numbers, taken modulo how many there are.
#[derive(Debug, Clone)]
enum Op {
    Enqueue(Vec<NewEvent>),
    Claim {
        worker: u128,
        take: Take,
        lease: Duration,
        max_bytes: usize,
        shop_only: bool,
    },
    Settle {
        worker: u128,
        claims: Vec<usize>,
        verdict: Verdict,
        limit: Option<u32>,
        routed: bool,
    },
    Renew {
        worker: u128,
        claims: Vec<usize>,
        lease: Duration,
    },
    Sweep {
        grace: Duration,
        shop_only: bool,
    },
    Retry(Vec<usize>),
    Delete(usize),
}

#[derive(Debug, Clone)]
struct NewEvent {
    shop: bool,
    key: Option<u8>,
    bytes: usize,
}

fn ops() -> impl Strategy<Value = Op> {
    let event = (any::<bool>(), proptest::option::weighted(0.2, 0u8..4), 1usize..60)
        .prop_map(|(shop, key, bytes)| NewEvent { shop, key, bytes });
    let worker = 1u128..3;
    let take = prop_oneof![
        4 => (1usize..6).prop_map(free),
        2 => (0usize..4).prop_map(Take::Recovered),
        1 => Just(Take::Alone),
    ];
    let max_bytes = prop_oneof![Just(40usize), Just(100), Just(usize::MAX)];
    let claims = || proptest::collection::vec(0usize..100, 1..4);
    prop_oneof![
        3 => proptest::collection::vec(event, 1..4).prop_map(Op::Enqueue),
        5 => (worker.clone(), take, waits(), max_bytes, any::<bool>()).prop_map(
            |(worker, take, lease, max_bytes, shop_only)| Op::Claim { worker, take, lease, max_bytes, shop_only }
        ),
        5 => (worker.clone(), claims(), verdicts(), proptest::option::weighted(0.2, 1u32..5), any::<bool>()).prop_map(
            |(worker, claims, verdict, limit, routed)| Op::Settle { worker, claims, verdict, limit, routed }
        ),
        2 => (worker, claims(), waits()).prop_map(|(worker, claims, lease)| Op::Renew { worker, claims, lease }),
        2 => (waits(), any::<bool>()).prop_map(|(grace, shop_only)| Op::Sweep { grace, shop_only }),
        1 => claims().prop_map(Op::Retry),
        1 => (0usize..100).prop_map(Op::Delete),
    ]
}

fn waits() -> impl Strategy<Value = Duration> {
    (0u64..3).prop_map(|n| Duration::from_secs(50 + 100 * n))
}

fn gaps() -> impl Strategy<Value = time::Duration> {
    prop_oneof![
        3 => Just(MOMENT),
        2 => (1i64..4).prop_map(|n| MOMENT + time::Duration::seconds(100 * n)),
    ]
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    let delays = || prop_oneof![Just(Duration::ZERO), waits()];
    prop_oneof![
        2 => Just(Verdict::Delivered),
        1 => Just(Verdict::Dead { reason: "no".into() }),
        3 => delays().prop_map(|after| Verdict::Retry { after, reason: "again".into() }),
        2 => (delays(), proptest::option::of(Just("later".to_owned())))
            .prop_map(|(after, reason)| Verdict::Release { after, reason }),
        2 => waits().prop_map(|after| Verdict::Suspect { after, reason: "cut".into() }),
    ]
}

/// The two, and what they were told so far.
struct Pair<'a> {
    subject: &'a dyn Harness,
    reference: &'a dyn Harness,
    rows: Vec<Uuid>,
    claims: Vec<(Uuid, Uuid)>,
}

impl<'a> Pair<'a> {
    fn new(subject: &'a dyn Harness, reference: &'a dyn Harness) -> Self {
        Self {
            subject,
            reference,
            rows: Vec::new(),
            claims: Vec::new(),
        }
    }

    async fn step(&mut self, op: &Op, gap: time::Duration) -> Result<(), String> {
        let done = self.prepare(op);
        let said = perform(self.subject, &done).await;
        let expected = perform(self.reference, &done).await;
        if said != expected {
            return Err(format!("{op:?}: it said {said:#?}, the reference {expected:#?}"));
        }
        self.remember(&done, &said);
        let seen = look(self.subject).await;
        let expected = look(self.reference).await;
        for (row, expected) in seen.iter().zip(&expected) {
            if row != expected {
                return Err(format!(
                    "{op:?}: a row is {row:#?}, in the reference {expected:#?}"
                ));
            }
        }
        if seen.len() != expected.len() {
            return Err(format!(
                "{op:?}: {} rows, in the reference {}",
                seen.len(),
                expected.len()
            ));
        }
        self.subject.age(gap).await;
        self.reference.age(gap).await;
        Ok(())
    }

    /// Turns numbers into ids.
    fn prepare(&self, op: &Op) -> Call {
        let claims = |numbers: &[usize]| -> Vec<(Uuid, Uuid)> {
            let mut named: Vec<_> = numbers.iter().filter_map(|n| pick(&self.claims, *n)).collect();
            // One row, one settlement: what two of them in one call mean is not defined.
            named.sort();
            named.dedup_by_key(|(id, _)| *id);
            named
        };
        match op {
            Op::Enqueue(events) => Call::Enqueue(events.iter().map(NewEvent::build).collect()),
            Op::Claim {
                worker,
                take,
                lease,
                max_bytes,
                shop_only,
            } => Call::Claim(ClaimRequest {
                worker: Uuid::from_u128(*worker),
                claim: Uuid::new_v4(),
                lease: *lease,
                take: take.clone(),
                closed: Vec::new(),
                first_lane: 0,
                max_bytes: *max_bytes,
                scope: scope(*shop_only),
                max_attempts: LIMIT,
            }),
            Op::Settle {
                worker,
                claims: numbers,
                verdict,
                limit,
                routed,
            } => {
                let settle = |(id, claim)| Settlement {
                    id,
                    claim,
                    verdict: verdict.clone(),
                    destination: routed.then(|| "broker".to_owned()),
                    max_attempts: *limit,
                    unordered: false,
                };
                Call::Settle(
                    Uuid::from_u128(*worker),
                    claims(numbers).into_iter().map(settle).collect(),
                )
            }
            Op::Renew {
                worker,
                claims: numbers,
                lease,
            } => Call::Renew(Uuid::from_u128(*worker), claims(numbers), *lease),
            Op::Sweep { grace, shop_only } => Call::Sweep(SweepRequest {
                worker: Uuid::from_u128(1),
                scope: scope(*shop_only),
                max_attempts: LIMIT,
                grace: *grace,
                closed: Vec::new(),
            }),
            Op::Retry(numbers) => Call::Retry(numbers.iter().filter_map(|n| pick(&self.rows, *n)).collect()),
            Op::Delete(number) => Call::Delete(pick(&self.rows, *number).into_iter().collect()),
        }
    }

    fn remember(&mut self, call: &Call, said: &Said) {
        match (call, said) {
            (Call::Enqueue(events), _) => self.rows.extend(events.iter().map(|event| event.id)),
            (Call::Claim(request), Said::Claimed(rows)) => {
                self.claims.extend(rows.iter().map(|row| (row.0, request.claim)));
            }
            (
                Call::Claim(_)
                | Call::Settle(..)
                | Call::Renew(..)
                | Call::Sweep(..)
                | Call::Retry(_)
                | Call::Delete(_),
                _,
            ) => {}
        }
    }
}

/// From every source that these histories know.
fn free(limit: usize) -> Take {
    let sources = [
        (None, "shop"),
        (None, "till"),
        (Some("broker"), "shop"),
        (Some("broker"), "till"),
    ];
    let share = |(destination, namespace): (Option<&str>, &str)| Share {
        source: Source {
            destination: destination.map(str::to_owned),
            namespace: namespace.to_owned(),
        },
        limit,
        floor: 0,
        fair: false,
    };
    Take::Free(sources.into_iter().map(share).collect())
}

/// The latest more often than the first.
fn pick<T: Copy>(all: &[T], number: usize) -> Option<T> {
    let back = number % all.len().max(1);
    all.iter().rev().nth(back).copied()
}

fn scope(shop_only: bool) -> Scope {
    if shop_only {
        Scope::of(["shop"])
    } else {
        Scope::All
    }
}

impl NewEvent {
    fn build(&self) -> Event {
        let event = Event::new(if self.shop { "shop" } else { "till" }, "orders")
            .bytes(vec![7; self.bytes], "application/octet-stream");
        match self.key {
            Some(key) => event.dedupe_key(format!("k{key}")),
            None => event,
        }
    }
}

/// An operation with its ids, the same for both.
enum Call {
    Enqueue(Vec<Event>),
    Claim(ClaimRequest),
    Settle(Uuid, Vec<Settlement>),
    Renew(Uuid, Vec<(Uuid, Uuid)>, Duration),
    Sweep(SweepRequest),
    Retry(Vec<Uuid>),
    Delete(Vec<Uuid>),
}

/// What a store answered.
#[derive(Debug, PartialEq)]
enum Said {
    Enqueued(Vec<pillarbox::Enqueued>),
    /// Row, attempts, own limit, recovered.
    Claimed(Vec<(Uuid, u32, Option<u32>, bool)>),
    Rows(Vec<Uuid>),
    Swept(Swept),
}

async fn perform(harness: &dyn Harness, call: &Call) -> Said {
    let (store, operate) = (harness.store(), harness.operate());
    let rows = |mut ids: Vec<Uuid>| {
        ids.sort();
        ids.dedup();
        Said::Rows(ids)
    };
    match call {
        Call::Enqueue(events) => Said::Enqueued(harness.enqueue(events).await.expect("accepted")),
        Call::Claim(request) => {
            let claimed = store.claim(request).await.expect("a claim");
            let row = |d: &pillarbox::Delivery| (d.id, d.attempts, d.max_attempts, d.recovered);
            Said::Claimed(claimed.iter().map(row).collect())
        }
        Call::Settle(worker, settlements) => {
            rows(store.settle(*worker, settlements).await.expect("a settle"))
        }
        Call::Renew(worker, held, lease) => {
            rows(store.renew(*worker, held, *lease).await.expect("a renewal"))
        }
        Call::Sweep(request) => {
            let mut swept = store.sweep(request).await.expect("a sweep");
            swept.dead.sort();
            Said::Swept(swept)
        }
        Call::Retry(ids) => rows(operate.retry(ids).await.expect("a retry")),
        Call::Delete(ids) => rows(operate.delete(ids).await.expect("a delete")),
    }
}

/// What must be the same in both: all but the absolute times and `seq`.
#[derive(Debug, PartialEq)]
struct Look {
    id: Uuid,
    status: String,
    attempts: i32,
    max_attempts: Option<i32>,
    destination: Option<String>,
    last_error: Option<String>,
    locked_by: Option<Uuid>,
    is_delivered: bool,
    /// In steps of 50 seconds after the row was written.
    due: i64,
    leased: Option<i64>,
}

async fn look(harness: &dyn Harness) -> Vec<Look> {
    let all = Filter {
        limit: 10_000,
        ..Filter::default()
    };
    let rows = harness.operate().list(&all).await.expect("a list");
    rows.into_iter().map(Look::from).collect()
}

impl From<Record> for Look {
    fn from(row: Record) -> Self {
        // Times are sums of 50 and 100 seconds and of moments: the nearest 50 is what was meant.
        let since = |time: time::OffsetDateTime| {
            (time - row.created_at + time::Duration::seconds(20)).whole_seconds() / 50
        };
        Self {
            id: row.id,
            attempts: row.attempts,
            max_attempts: row.max_attempts,
            locked_by: row.locked_by.filter(|worker| !worker.is_nil()),
            is_delivered: row.delivered_at.is_some(),
            due: since(row.next_attempt_at),
            leased: row.locked_until.map(since),
            status: row.status,
            destination: row.destination,
            last_error: row.last_error,
        }
    }
}
