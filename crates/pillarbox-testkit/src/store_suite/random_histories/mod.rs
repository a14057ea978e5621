//! Random histories: the same operations on a store and on the reference, step by step. After each step both have given the
//! same answer and show the same state.
//!
//! Nothing depends on the real seconds that pass on a slow machine: waits end in 50 seconds (50, 150, 250), and the time
//! between two operations is hundreds of seconds or almost nothing. Nothing depends on how a store hashes keys: all lanes of
//! a namespace are one range, and keyed and fair claims have room for every row.

mod call;
mod operation;
mod state;

use std::fmt::Debug;

use pillarbox_store::store::{
    Backlog, ClaimRequest, LANES, LaneRequest, Member, Range, Routing, Settlement, SweepRequest,
};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use uuid::Uuid;

use self::call::{Answer, Call, perform};
use self::operation::{LIMIT, Operation, Supported, first_operation, gaps, operations};
use self::state::{State, differences};
use super::harness::{Capability, Harness};
use super::memory::MemoryHarness;
use super::print_skipped;
use crate::cases;

const CASES: u32 = 30;
/// For an adopted table: after the import the store is the same, and there are several such tables.
const CASES_OF_A_LAYOUT: u32 = 10;
const STEPS: usize = 40;

/// Tries a test on random input, [`cases()`] times, and shrinks the input on which it fails.
///
/// # Panics
/// With the smallest input on which the test fails.
pub fn check<S: Strategy<Value: Debug>, F: Future<Output = Result<(), String>>>(
    usual_cases: u32,
    input: &S,
    test: impl Fn(S::Value) -> F,
) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config = Config {
        cases: cases(usual_cases),
        failure_persistence: None,
        max_shrink_iters: 300,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(input, |input| {
        // On the heap: the future of a history is large.
        runtime
            .block_on(Box::pin(test(input)))
            .map_err(TestCaseError::fail)
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// Compares a store with the reference.
///
/// # Panics
/// With the shortest history on which the two differ.
pub fn random_histories<H: Harness, F: Future<Output = H>>(fresh: impl Fn() -> F) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (comparable, usual_cases) = runtime.block_on(async {
        let harness = Box::pin(fresh()).await;
        let comparable = harness.can(Capability::OpenLimit);
        let usual_cases = match harness.can(Capability::OwnTable) {
            Ok(()) => CASES,
            Err(_) => CASES_OF_A_LAYOUT,
        };
        harness.clean_up().await;
        (comparable, usual_cases)
    });
    if let Err(skipped) = comparable {
        return print_skipped("random_histories_agree_with_the_reference", skipped);
    }
    let steps = proptest::collection::vec((operations(), gaps()), 1..STEPS);
    check(usual_cases, &steps, async |steps| {
        let subject = Box::pin(fresh()).await;
        let reference = MemoryHarness::fresh().await;
        let mut history = History::new(&subject, &reference);
        for (operation, gap) in std::iter::once(first_operation()).chain(steps) {
            history.step(&operation, gap).await?;
        }
        subject.clean_up().await;
        Ok(())
    });
}

/// A row that a worker has claimed.
#[derive(Debug, Clone, Copy)]
struct Claimed {
    worker: Uuid,
    id: Uuid,
    claim: Uuid,
    is_routed: bool,
}

/// Both stores, and the rows and claims of the history so far.
struct History<'a> {
    subject: &'a dyn Harness,
    reference: &'a dyn Harness,
    rows: Vec<Uuid>,
    claims: Vec<Claimed>,
    supported: Supported,
}

impl<'a> History<'a> {
    fn new(subject: &'a dyn Harness, reference: &'a dyn Harness) -> Self {
        Self {
            subject,
            reference,
            rows: Vec::new(),
            claims: Vec::new(),
            supported: Supported::by(subject),
        }
    }

    async fn step(&mut self, operation: &Operation, gap: time::Duration) -> Result<(), String> {
        let call = self.prepare(operation);
        let answer = perform(self.subject, &call, &self.supported).await;
        let expected = perform(self.reference, &call, &self.supported).await;
        if answer != expected {
            return Err(format!(
                "{operation:?}: the answer is {answer:#?}, that of the reference {expected:#?}"
            ));
        }
        self.remember(&call, &answer);
        let state = State::of(self.subject, &self.supported).await;
        let expected = State::of(self.reference, &self.supported).await;
        let differences = differences(&state, &expected, &self.supported);
        if !differences.is_empty() {
            return Err(format!("{operation:?}:\n{differences}"));
        }
        self.subject.age(gap).await;
        self.reference.age(gap).await;
        Ok(())
    }

    /// Replaces numbers by ids.
    fn prepare(&self, operation: &Operation) -> Call {
        let worker = |number: u128| Uuid::from_u128(number);
        match operation {
            Operation::Enqueue(events) => {
                let events = events.iter().map(|event| event.build(&self.supported));
                Call::Enqueue(events.collect())
            }
            Operation::Find { shop_only } => Call::Find(operation::scope(*shop_only)),
            Operation::Claim(claim) => Call::Claim(ClaimRequest {
                worker: worker(claim.worker),
                claim: Uuid::new_v4(),
                lease: claim.lease,
                take: claim.take(),
                excluded: operation::excluded(claim.a_is_open),
                first_lane: claim.first_lane,
                max_bytes: claim.max_bytes(&self.supported),
                scope: operation::scope(claim.shop_only),
                max_attempts: LIMIT,
            }),
            Operation::Route {
                worker: by,
                claims,
                destinations,
            } => {
                let routings = self.claimed(claims).into_iter();
                let routings = routings.map(|claimed| routing(&claimed, destinations));
                Call::Route(worker(*by), routings.collect())
            }
            Operation::RouteLatestClaim { families } => self.route_latest_claim(families),
            Operation::Settle(settle) => {
                let claimed = self.claimed(&settle.claims);
                let holder = claimed.first().map_or(Uuid::nil(), |claimed| claimed.worker);
                let settlement = |claimed: Claimed| Settlement {
                    id: claimed.id,
                    claim: claimed.claim,
                    verdict: settle.verdict.clone(),
                    destination: settle.destination.map(str::to_owned),
                    max_attempts: settle.limit,
                    unordered: settle.unordered,
                    // Rows of an adopted table are kept; the reference has none.
                    keep: settle.keep || !self.supported.own_table,
                };
                let by = settle.worker.map_or(holder, worker);
                Call::Settle(by, claimed.into_iter().map(settlement).collect())
            }
            Operation::Renew {
                worker: by,
                claims,
                lease,
            } => {
                let claimed = self.claimed(claims).into_iter();
                let claimed = claimed.map(|claimed| (claimed.id, claimed.claim));
                Call::Renew(worker(*by), claimed.collect(), *lease)
            }
            Operation::Sweep {
                worker: by,
                grace,
                shop_only,
                a_is_open,
            } => Call::Sweep(SweepRequest {
                worker: worker(*by),
                scope: operation::scope(*shop_only),
                max_attempts: LIMIT,
                grace: *grace,
                excluded: operation::excluded(*a_is_open),
            }),
            Operation::LeaseLanes {
                worker: by,
                lease,
                release,
            } => Call::LeaseLanes(LaneRequest {
                worker: worker(*by),
                backlogs: backlogs(),
                ranges: 1,
                new_ranges: 1,
                lease: *lease,
                release: if *release { all_lanes() } else { Vec::new() },
            }),
            Operation::PruneLanes => Call::PruneLanes,
            // The copy of an adopted row is kept for longer; the reference has none.
            Operation::Prune(_) if !self.supported.own_table => Call::PruneLanes,
            Operation::Prune(retention) => Call::Prune(retention.clone()),
            Operation::Heartbeat {
                worker: by,
                ttl,
                serves,
            } => Call::Heartbeat(worker(*by), *ttl, serves.clone()),
            Operation::Deregister(by) => Call::Deregister(worker(*by)),
            Operation::Unpark(what, rows) => Call::Unpark(*what, self.named(rows)),
            Operation::Retry(rows) => Call::Retry(self.named(rows)),
            Operation::Skip(rows) => Call::Skip(self.named(rows)),
            Operation::Delete(row) => Call::Delete(self.named(&[*row])),
            Operation::Pause(name) => Call::Pause(name),
            Operation::Resume(name) => Call::Resume(name),
        }
    }

    /// Its holder routes all rows of the latest claim that have no destination. The family depends on the place of a row.
    fn route_latest_claim(&self, families: &[Vec<&'static str>]) -> Call {
        let Some(latest) = self.claims.last() else {
            return Call::Route(Uuid::nil(), Vec::new());
        };
        let unrouted = self
            .claims
            .iter()
            .filter(|one| one.claim == latest.claim && !one.is_routed);
        let routings = unrouted.zip(families.iter().cycle());
        let routings = routings.map(|(claimed, family)| routing(claimed, family));
        Call::Route(latest.worker, routings.collect())
    }

    fn named(&self, numbers: &[usize]) -> Vec<Uuid> {
        let mut ids: Vec<Uuid> = numbers.iter().filter_map(|n| pick(&self.rows, *n)).collect();
        ids.sort();
        ids.dedup();
        ids
    }

    fn claimed(&self, numbers: &[usize]) -> Vec<Claimed> {
        let mut claimed: Vec<Claimed> = numbers.iter().filter_map(|n| pick(&self.claims, *n)).collect();
        // One settlement per row and call: the result of two is not defined.
        claimed.sort_by_key(|one| (one.id, one.claim));
        claimed.dedup_by_key(|one| one.id);
        claimed
    }

    fn remember(&mut self, call: &Call, answer: &Answer) {
        match (call, answer) {
            (Call::Enqueue(events), _) => self.rows.extend(events.iter().map(|event| event.id)),
            (Call::Claim(request), Answer::Claimed(deliveries)) => {
                self.claims.extend(deliveries.iter().map(|delivery| Claimed {
                    worker: request.worker,
                    id: delivery.id,
                    claim: delivery.claim,
                    is_routed: delivery.event.destination.is_some(),
                }));
            }
            (Call::Route(worker, routings), _) => {
                for routing in routings {
                    for member in &routing.members[1..] {
                        self.rows.push(member.id);
                        self.claims.push(Claimed {
                            worker: *worker,
                            id: member.id,
                            claim: routing.claim,
                            is_routed: true,
                        });
                    }
                }
            }
            // The others write no rows and claim none.
            _ => {}
        }
    }
}

/// Ids that grow, so that siblings have the same order in every store.
fn routing(claimed: &Claimed, destinations: &[&str]) -> Routing {
    let members = destinations
        .iter()
        .enumerate()
        .map(|(place, destination)| Member {
            id: if place == 0 { claimed.id } else { Uuid::now_v7() },
            destination: (*destination).to_owned(),
            max_attempts: Some(4),
        });
    Routing {
        id: claimed.id,
        claim: claimed.claim,
        members: members.collect(),
    }
}

fn backlogs() -> Vec<Backlog> {
    let mut backlogs = Vec::new();
    for namespace in ["shop", "till"] {
        for destination in [None, Some("a"), Some("b"), Some("c")] {
            backlogs.push(Backlog {
                destination: destination.map(str::to_owned),
                namespace: namespace.to_owned(),
            });
        }
    }
    backlogs
}

fn all_lanes() -> Vec<Range> {
    let range = |backlog| Range {
        backlog,
        first: 0,
        last: LANES - 1,
        leaving: false,
    };
    backlogs().into_iter().map(range).collect()
}

/// The latest more often than the first.
fn pick<T: Copy>(all: &[T], number: usize) -> Option<T> {
    let back = number % all.len().max(1);
    all.iter().rev().nth(back).copied()
}
