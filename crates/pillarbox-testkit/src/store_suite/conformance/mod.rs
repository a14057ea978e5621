//! Random operations on a store and on the reference, step by step: both must say the same and look
//! the same afterwards.
//!
//! Waits end in 50 seconds (50, 150, 250) and the steps between operations are hundreds of seconds or
//! almost nothing, so that nothing depends on the real seconds that pass on a slow machine. All lanes of a
//! namespace are one range and a keyed claim has room for every key, so that nothing depends on how a store
//! hashes keys.

mod call;
mod history;

use pillarbox_store::operate::{Filter, Record};
use pillarbox_store::store::{
    ClaimRequest, LANES, LaneRequest, Member, Range, Routing, Settlement, SweepRequest,
};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use uuid::Uuid;

use self::call::{Call, Said, perform};
use self::history::{Has, LIMIT, Op, gaps, ops};
use super::harness::{Capability, Harness};
use super::memory::MemoryHarness;
use super::print_skipped;
use crate::cases;

const CASES: u32 = 40;
/// Where the rows are imported from a table of somebody else: what follows the import is the same store, and there are
/// many such tables.
const CASES_OF_A_LAYOUT: u32 = 10;
const STEPS: usize = 40;

/// Compares a store with the reference; [`cases()`] says how to ask for more histories than usual.
///
/// # Panics
/// With the shortest sequence of operations on which the two differ.
pub fn conformance<H: Harness, F: Future<Output = H>>(fresh: impl Fn() -> F) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (comparable, usual) = runtime.block_on(async {
        let harness = Box::pin(fresh()).await;
        let can = harness.can(Capability::OpenLimit);
        let usual = match harness.can(Capability::OwnTable) {
            Ok(()) => CASES,
            Err(_) => CASES_OF_A_LAYOUT,
        };
        harness.clean_up().await;
        (can, usual)
    });
    if let Err(skipped) = comparable {
        return print_skipped("random_operations_agree_with_the_reference", skipped);
    }
    let config = Config {
        cases: cases(usual),
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
            // Somebody takes care of the lanes, or half of what follows would be about nothing.
            for (op, gap) in std::iter::once(history::begin()).chain(steps) {
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

/// The two, and what they were told so far.
struct Pair<'a> {
    subject: &'a dyn Harness,
    reference: &'a dyn Harness,
    rows: Vec<Uuid>,
    claims: Vec<(Uuid, Uuid)>,
    has: Has,
}

impl<'a> Pair<'a> {
    fn new(subject: &'a dyn Harness, reference: &'a dyn Harness) -> Self {
        Self {
            subject,
            reference,
            rows: Vec::new(),
            claims: Vec::new(),
            has: Has::of(subject),
        }
    }

    async fn step(&mut self, op: &Op, gap: time::Duration) -> Result<(), String> {
        let call = self.prepare(op);
        let said = perform(self.subject, &call).await;
        let expected = perform(self.reference, &call).await;
        if !said.agrees_with(&expected) {
            let rows = find(self.subject).await;
            return Err(format!(
                "{op:?}: it said {said:#?}, the reference {expected:#?}; the rows are {rows:#?}"
            ));
        }
        self.remember(&call, &said);
        let seen = find(self.subject).await;
        let expected = find(self.reference).await;
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
        match op {
            Op::Enqueue(events) => Call::Enqueue(events.iter().map(|event| event.build(&self.has)).collect()),
            Op::Found { shop_only } => Call::Found(history::scope(*shop_only)),
            Op::Claim(claim) => Call::Claim(ClaimRequest {
                worker: Uuid::from_u128(claim.worker),
                claim: Uuid::new_v4(),
                lease: claim.lease,
                take: claim.take(),
                excluded: claim.excluded(),
                first_lane: claim.first_lane,
                max_bytes: if self.has.bytes {
                    claim.max_bytes()
                } else {
                    usize::MAX
                },
                scope: history::scope(claim.shop_only),
                max_attempts: LIMIT,
            }),
            Op::Route {
                worker,
                claims,
                destinations,
            } => Call::Route(
                Uuid::from_u128(*worker),
                self.claimed(claims)
                    .into_iter()
                    .map(|held| routing(held, destinations))
                    .collect(),
            ),
            Op::Settle(settle) => {
                let settlement = |(id, claim)| Settlement {
                    id,
                    claim,
                    verdict: settle.verdict.clone(),
                    destination: settle.destination.map(str::to_owned),
                    max_attempts: settle.limit,
                    unordered: settle.unordered,
                };
                let settlements = self.claimed(&settle.claims).into_iter().map(settlement);
                Call::Settle(Uuid::from_u128(settle.worker), settlements.collect())
            }
            Op::Renew {
                worker,
                claims,
                lease,
            } => Call::Renew(Uuid::from_u128(*worker), self.claimed(claims), *lease),
            Op::Sweep {
                worker,
                grace,
                shop_only,
            } => Call::Sweep(SweepRequest {
                worker: Uuid::from_u128(*worker),
                scope: history::scope(*shop_only),
                max_attempts: LIMIT,
                grace: *grace,
                excluded: Vec::new(),
            }),
            Op::Share {
                worker,
                lease,
                release,
            } => Call::Share(LaneRequest {
                worker: Uuid::from_u128(*worker),
                namespaces: vec!["shop".into(), "till".into()],
                ranges: Some(1),
                lease: *lease,
                release: if *release { everything() } else { Vec::new() },
            }),
            Op::Beat { worker, ttl } => Call::Beat(Uuid::from_u128(*worker), *ttl),
            Op::Leave(worker) => Call::Leave(Uuid::from_u128(*worker)),
            Op::Unpark(what, rows) => Call::Unpark(*what, self.named(rows)),
            Op::Retry(rows) => Call::Retry(self.named(rows)),
            Op::Skip(rows) => Call::Skip(self.named(rows)),
            Op::Delete(row) => Call::Delete(self.named(&[*row])),
            Op::Pause(name, paused) => Call::Pause(name, *paused),
            Op::Operate => Call::Operate,
        }
    }

    fn named(&self, numbers: &[usize]) -> Vec<Uuid> {
        numbers.iter().filter_map(|n| pick(&self.rows, *n)).collect()
    }

    fn claimed(&self, numbers: &[usize]) -> Vec<(Uuid, Uuid)> {
        let mut named: Vec<_> = numbers.iter().filter_map(|n| pick(&self.claims, *n)).collect();
        // One row, one settlement: what two of them in one call mean is not defined.
        named.sort();
        named.dedup_by_key(|(id, _)| *id);
        named
    }

    fn remember(&mut self, call: &Call, said: &Said) {
        match (call, said) {
            (Call::Enqueue(events), _) => self.rows.extend(events.iter().map(|event| event.id)),
            (Call::Claim(request), Said::Claimed(rows)) => {
                self.claims.extend(rows.iter().map(|row| (row.id, request.claim)));
            }
            (Call::Route(_, routings), _) => {
                for routing in routings {
                    for member in &routing.members[1..] {
                        self.rows.push(member.id);
                        self.claims.push((member.id, routing.claim));
                    }
                }
            }
            // The others make no rows and claim none.
            _ => {}
        }
    }
}

/// Ids that grow, so that siblings stand in their order in every store.
fn routing((id, claim): (Uuid, Uuid), destinations: &[&str]) -> Routing {
    let members = destinations
        .iter()
        .enumerate()
        .map(|(place, destination)| Member {
            id: if place == 0 { id } else { Uuid::now_v7() },
            destination: (*destination).to_owned(),
            max_attempts: Some(4),
        });
    Routing {
        id,
        claim,
        members: members.collect(),
    }
}

fn everything() -> Vec<Range> {
    let range = |namespace: &str| Range {
        namespace: namespace.to_owned(),
        first: 0,
        last: LANES - 1,
        leaving: false,
    };
    vec![range("shop"), range("till")]
}

/// The latest more often than the first.
fn pick<T: Copy>(all: &[T], number: usize) -> Option<T> {
    let back = number % all.len().max(1);
    all.iter().rev().nth(back).copied()
}

/// What must be the same in both: all but the absolute times and `seq`.
#[derive(Debug, PartialEq)]
struct Found {
    id: Uuid,
    event: Uuid,
    status: String,
    unordered: bool,
    attempts: i32,
    max_attempts: Option<i32>,
    dedupe_key: Option<String>,
    destination: Option<String>,
    last_error: Option<String>,
    locked_by: Option<Uuid>,
    is_delivered: bool,
    /// In steps of 50 seconds after the row was written.
    due: i64,
    leased: Option<i64>,
}

async fn find(harness: &dyn Harness) -> Vec<Found> {
    let all = Filter {
        limit: 10_000,
        ..Filter::default()
    };
    let rows = harness.operate().list(&all).await.expect("a list");
    let mut rows: Vec<Found> = rows.into_iter().map(Found::from).collect();
    rows.sort_by_key(|row| row.id);
    rows
}

impl From<Record> for Found {
    fn from(row: Record) -> Self {
        // Times are sums of 50 and 100 seconds and of moments: the nearest 50 is what was meant.
        let since = |time: time::OffsetDateTime| {
            (time - row.created_at + time::Duration::seconds(20)).whole_seconds() / 50
        };
        Self {
            id: row.id,
            event: row.event.id,
            unordered: row.unordered,
            attempts: row.attempts,
            max_attempts: row.max_attempts,
            dedupe_key: row.event.dedupe_key,
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
