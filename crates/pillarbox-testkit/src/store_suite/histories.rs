//! Random histories of keys, routes, families, lanes and people, on a store and on the reference, step by step: both
//! must say the same and look the same afterwards.
//!
//! Lanes are one range, so that it does not matter which lane a store gives to a key, and a keyed claim asks for more
//! than there is, so that it does not matter at which key a store begins. Waits end in 50 seconds and the steps
//! between operations are hundreds of seconds or almost nothing, as in the other comparison.

use std::time::Duration;

use pillarbox::{Delivery, Event};
use pillarbox_store::operate::{Filter, Record};
use pillarbox_store::store::{
    Backlog, ClaimRequest, Heartbeat, LaneRequest, Member, Parked, Range, Routed, Routing, Settlement, Share,
    Stub, SweepRequest, Swept, Take,
};
use pillarbox_store::{Scope, Verdict};
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use uuid::Uuid;

use super::harness::Harness;
use super::memory::MemoryHarness;
use crate::cases;

const CASES: u32 = 40;
const STEPS: usize = 40;
const LIMIT: u32 = 3;
const LEASE: Duration = Duration::from_secs(150);
const MOMENT: time::Duration = time::Duration::milliseconds(10);
const DESTINATIONS: [&str; 3] = ["broker", "chat", "unrouted"];

/// Compares a store with the reference.
///
/// # Panics
/// With the shortest history on which the two differ.
pub fn histories<H: Harness, F: Future<Output = H>>(fresh: impl Fn() -> F) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config = Config {
        cases: cases(CASES),
        failure_persistence: None,
        max_shrink_iters: 500,
        ..Config::default()
    };
    let steps = proptest::collection::vec((ops(), gaps()), 1..STEPS);
    let outcome = TestRunner::new(config).run(&steps, |steps| {
        runtime.block_on(async {
            let subject = Box::pin(fresh()).await;
            let reference = MemoryHarness::fresh().await;
            let mut held = Vec::new();
            let mut rows = Vec::new();
            let begin = Op::ShareLanes {
                worker: 1,
                release: false,
            };
            for (op, gap) in std::iter::once((begin, MOMENT)).chain(steps) {
                let call = op.prepare(&rows, &held);
                let said = Box::pin(step(&subject, &reference, &call))
                    .await
                    .map_err(TestCaseError::fail)?;
                remember(&call, &said, &mut rows, &mut held);
                subject.age(gap).await;
                reference.age(gap).await;
            }
            subject.clean_up().await;
            Ok(())
        })
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// One operation. Rows are named by numbers, taken modulo how many there are.
#[derive(Debug, Clone)]
enum Op {
    Enqueue(Vec<NewEvent>),
    Claim {
        worker: u128,
        take: Take,
        excluded: bool,
    },
    Route {
        destinations: Vec<usize>,
    },
    Settle {
        rows: Vec<usize>,
        verdict: Verdict,
        destination: Option<usize>,
        unordered: bool,
    },
    Sweep {
        worker: u128,
        excluded: bool,
    },
    ShareLanes {
        worker: u128,
        release: bool,
    },
    Beat(u128),
    Leave(u128),
    Unpark(Parked, Vec<usize>),
    Retry(Vec<usize>),
    Skip(Vec<usize>),
    Delete(usize),
    Pause(usize),
    Resume(usize),
}

#[derive(Debug, Clone)]
struct NewEvent {
    key: Option<u8>,
    destination: Option<usize>,
    later: bool,
}

fn ops() -> impl Strategy<Value = Op> {
    let event = (
        proptest::option::weighted(0.8, 0u8..2),
        proptest::option::weighted(0.5, 0usize..2),
        any::<bool>(),
    )
        .prop_map(|(key, destination, later)| NewEvent {
            key,
            destination,
            later,
        });
    let worker = || 1u128..3;
    let rows = || proptest::collection::vec(0usize..100, 1..4);
    let destination = || 0usize..2;
    let parked = prop_oneof![Just(Parked::Unrouted), Just(Parked::Blocking)];
    let settle = (
        rows(),
        verdicts(),
        proptest::option::weighted(0.5, 0usize..3),
        proptest::bool::weighted(0.1),
    );
    prop_oneof![
        4 => proptest::collection::vec(event, 1..4).prop_map(Op::Enqueue),
        8 => (worker(), takes(), any::<bool>())
            .prop_map(|(worker, take, excluded)| Op::Claim { worker, take, excluded }),
        4 => proptest::collection::vec(0usize..4, 1..4).prop_map(|destinations| Op::Route { destinations }),
        6 => settle.prop_map(|(rows, verdict, destination, unordered)| {
            Op::Settle { rows, verdict, destination, unordered }
        }),
        1 => (worker(), any::<bool>()).prop_map(|(worker, excluded)| Op::Sweep { worker, excluded }),
        4 => (worker(), proptest::bool::weighted(0.2))
            .prop_map(|(worker, release)| Op::ShareLanes { worker, release }),
        1 => worker().prop_map(Op::Beat),
        1 => worker().prop_map(Op::Leave),
        1 => (parked, rows()).prop_map(|(what, rows)| Op::Unpark(what, rows)),
        1 => rows().prop_map(Op::Retry),
        1 => rows().prop_map(Op::Skip),
        1 => (0usize..100).prop_map(Op::Delete),
        1 => destination().prop_map(Op::Pause),
        1 => destination().prop_map(Op::Resume),
    ]
}

fn takes() -> impl Strategy<Value = Take> {
    prop_oneof![
        2 => any::<bool>().prop_map(|fair| Take::Free(shares(6, fair))),
        5 => Just(Take::Keyed(shares(60, false))),
        2 => (1usize..4).prop_map(Take::Suspects),
        1 => Just(Take::LoneSuspect),
    ]
}

fn shares(limit: usize, fair: bool) -> Vec<Share> {
    let share = |destination: Option<&str>| Share {
        backlog: Backlog {
            destination: destination.map(str::to_owned),
            namespace: "shop".to_owned(),
        },
        limit,
        floor: 0,
        fair,
    };
    [None, Some("broker"), Some("chat")].map(share).into()
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    let after = || {
        prop_oneof![
            Just(Duration::ZERO),
            (0u64..3).prop_map(|n| Duration::from_secs(50 + 100 * n))
        ]
    };
    prop_oneof![
        4 => Just(Verdict::Delivered),
        2 => Just(Verdict::Dead { reason: "no".into() }),
        1 => Just(Verdict::Delete),
        3 => after().prop_map(|after| Verdict::Retry { after, reason: "again".into() }),
        2 => after().prop_map(|after| Verdict::Release { after, reason: None }),
        1 => after().prop_map(|after| Verdict::Suspect { after: after + Duration::from_secs(50), reason: "connection_lost".into() }),
    ]
}

fn gaps() -> impl Strategy<Value = time::Duration> {
    prop_oneof![
        5 => Just(MOMENT),
        2 => (1i64..4).prop_map(|n| MOMENT + time::Duration::seconds(100 * n)),
    ]
}

/// A row that a worker was given.
#[derive(Debug, Clone)]
struct Held {
    worker: Uuid,
    id: Uuid,
    claim: Uuid,
    is_routed: bool,
}

/// An operation with its ids, the same for both.
#[derive(Debug)]
enum Call {
    Enqueue(Vec<Event>),
    Claim(ClaimRequest),
    Route(Uuid, Vec<Routing>),
    Settle(Uuid, Vec<Settlement>),
    Sweep(SweepRequest),
    ShareLanes(LaneRequest),
    Beat(Heartbeat),
    Leave(Uuid),
    Unpark(Parked, Vec<Uuid>),
    Retry(Vec<Uuid>),
    Skip(Vec<Uuid>),
    Delete(Vec<Uuid>),
    Pause(String),
    Resume(String),
}

impl Op {
    fn prepare(&self, rows: &[Uuid], held: &[Held]) -> Call {
        let worker = |number: &u128| Uuid::from_u128(*number);
        let named = |numbers: &[usize]| -> Vec<Uuid> {
            let mut ids: Vec<Uuid> = numbers.iter().filter_map(|number| pick(rows, *number)).collect();
            ids.sort();
            ids.dedup();
            ids
        };
        let excluded = |excluded: &bool| {
            if *excluded {
                vec!["chat".to_owned()]
            } else {
                Vec::new()
            }
        };
        match self {
            Self::Enqueue(events) => Call::Enqueue(events.iter().map(NewEvent::build).collect()),
            Self::Claim {
                worker: by,
                take,
                excluded: some,
            } => Call::Claim(ClaimRequest {
                worker: worker(by),
                claim: Uuid::new_v4(),
                lease: LEASE,
                take: take.clone(),
                excluded: excluded(some),
                first_lane: 0,
                max_bytes: usize::MAX,
                scope: Scope::All,
                max_attempts: LIMIT,
            }),
            Self::Route { destinations } => route(held, destinations),
            Self::Settle {
                rows,
                verdict,
                destination,
                unordered,
            } => settle(held, rows, verdict, *destination, *unordered),
            Self::Sweep {
                worker: by,
                excluded: some,
            } => Call::Sweep(SweepRequest {
                worker: worker(by),
                scope: Scope::All,
                max_attempts: LIMIT,
                grace: LEASE,
                excluded: excluded(some),
            }),
            Self::ShareLanes { worker: by, release } => Call::ShareLanes(LaneRequest {
                worker: worker(by),
                namespaces: vec!["shop".to_owned()],
                ranges: Some(1),
                lease: LEASE,
                release: Vec::from_iter(release.then(everything)),
            }),
            Self::Beat(by) => Call::Beat(heartbeat(worker(by))),
            Self::Leave(by) => Call::Leave(worker(by)),
            Self::Unpark(what, numbers) => Call::Unpark(*what, named(numbers)),
            Self::Retry(numbers) => Call::Retry(named(numbers)),
            Self::Skip(numbers) => Call::Skip(named(numbers)),
            Self::Delete(number) => Call::Delete(named(&[*number])),
            Self::Pause(number) => Call::Pause(DESTINATIONS[*number].to_owned()),
            Self::Resume(number) => Call::Resume(DESTINATIONS[*number].to_owned()),
        }
    }
}

/// All rows of the latest claim that know no destination; where each goes depends on its place.
fn route(held: &[Held], destinations: &[usize]) -> Call {
    let Some(last) = held.last() else {
        return Call::Route(Uuid::nil(), Vec::new());
    };
    let ours = held
        .iter()
        .filter(|one| one.claim == last.claim && !one.is_routed);
    let routing = |(place, one): (usize, &Held)| {
        let names: &[&str] = match destinations[place % destinations.len()] {
            0 => &["broker"],
            1 => &["chat"],
            2 => &["broker", "chat"],
            _ => &["chat", "broker"],
        };
        let member = |(number, name): (usize, &&str)| Member {
            id: if number == 0 { one.id } else { Uuid::new_v4() },
            destination: (*name).to_owned(),
            max_attempts: Some(4),
        };
        Routing {
            id: one.id,
            claim: one.claim,
            members: names.iter().enumerate().map(member).collect(),
        }
    };
    Call::Route(last.worker, ours.enumerate().map(routing).collect())
}

fn settle(
    held: &[Held],
    rows: &[usize],
    verdict: &Verdict,
    destination: Option<usize>,
    unordered: bool,
) -> Call {
    let mut ours: Vec<&Held> = rows.iter().filter_map(|number| pick_ref(held, *number)).collect();
    let worker = ours.first().map_or(Uuid::nil(), |one| one.worker);
    // One row, one settlement: what two of them in one call mean is not defined.
    ours.sort_by_key(|one| one.id);
    ours.dedup_by_key(|one| one.id);
    let settlement = |one: &&Held| Settlement {
        id: one.id,
        claim: one.claim,
        verdict: verdict.clone(),
        destination: destination.map(|number| DESTINATIONS[number].to_owned()),
        max_attempts: None,
        unordered,
    };
    Call::Settle(worker, ours.iter().map(settlement).collect())
}

fn everything() -> Range {
    Range {
        namespace: "shop".to_owned(),
        first: 0,
        last: pillarbox_store::store::LANES - 1,
        leaving: false,
    }
}

fn heartbeat(worker: Uuid) -> Heartbeat {
    Heartbeat {
        worker,
        host: "bench".into(),
        version: "1".into(),
        scope: Scope::All,
        ttl: LEASE,
        claimed: 1,
        delivered: 2,
        failed: 3,
    }
}

impl NewEvent {
    fn build(&self) -> Event {
        let mut event = Event::new("shop", "orders");
        event.tenant_id = Some(Uuid::from_u128(u128::from(self.later)));
        event.ordering_key = self.key.map(|key| format!("k{key}"));
        event.destination = self.destination.map(|number| DESTINATIONS[number].to_owned());
        if self.later && self.key.is_none() {
            event.deliver_at = Some(time::OffsetDateTime::UNIX_EPOCH);
        }
        event
    }
}

/// The latest more often than the first.
fn pick_ref<T>(all: &[T], number: usize) -> Option<&T> {
    let back = number % all.len().max(1);
    all.iter().rev().nth(back)
}

fn pick(all: &[Uuid], number: usize) -> Option<Uuid> {
    pick_ref(all, number).copied()
}

/// Makes the call on both, and gives what both said.
async fn step(subject: &dyn Harness, reference: &dyn Harness, call: &Call) -> Result<Said, String> {
    let said = perform(subject, call).await;
    let expected = perform(reference, call).await;
    if said != expected {
        return Err(format!(
            "{call:#?}: it said {said:#?}, the reference {expected:#?}"
        ));
    }
    let seen = see(subject).await;
    let expected = see(reference).await;
    if seen != expected {
        return Err(format!(
            "{call:#?}: it holds {seen:#?}, the reference {expected:#?}"
        ));
    }
    Ok(said)
}

/// What a store answered, in an order of its own.
#[derive(Debug, PartialEq)]
enum Said {
    Nothing,
    Claimed(Vec<Delivery>),
    Routed(Routed),
    Rows(Vec<Uuid>),
    Swept(Swept),
    Lanes(Vec<Range>),
    Resumed(bool),
}

async fn perform(harness: &dyn Harness, call: &Call) -> Said {
    let (store, operate) = (harness.store(), harness.operate());
    match call {
        Call::Enqueue(events) => {
            harness.enqueue(events).await.expect("accepted");
            Said::Nothing
        }
        Call::Claim(request) => {
            let claimed = store.claim(request).await.expect("a claim");
            let mut claimed: Vec<Delivery> = claimed.into_iter().map(without_times).collect();
            claimed.sort_by_key(|delivery| delivery.id);
            Said::Claimed(claimed)
        }
        Call::Route(worker, routings) => {
            let mut routed = store.route(*worker, routings).await.expect("a route");
            routed.lost.sort();
            routed.waiting.sort();
            Said::Routed(routed)
        }
        Call::Settle(worker, settlements) => {
            rows(store.settle(*worker, settlements).await.expect("a settle"))
        }
        Call::Sweep(request) => {
            let mut swept = store.sweep(request).await.expect("a sweep");
            swept.dead.sort();
            Said::Swept(swept)
        }
        Call::ShareLanes(request) => Said::Lanes(store.lease_lanes(request).await.expect("lanes")),
        Call::Beat(heartbeat) => {
            store.heartbeat(heartbeat).await.expect("a heartbeat");
            Said::Nothing
        }
        Call::Leave(worker) => {
            store.deregister(*worker).await.expect("a leave");
            Said::Nothing
        }
        Call::Unpark(what, ids) => rows(store.unpark(*what, ids).await.expect("let go")),
        Call::Retry(ids) => rows(operate.retry(ids).await.expect("a retry")),
        Call::Skip(ids) => rows(operate.skip(ids).await.expect("a skip")),
        Call::Delete(ids) => rows(operate.delete(ids).await.expect("a delete")),
        Call::Pause(name) => {
            operate.pause(name, "for now").await.expect("a pause");
            Said::Nothing
        }
        Call::Resume(name) => Said::Resumed(operate.resume(name).await.expect("a resume")),
    }
}

fn rows(mut ids: Vec<Uuid>) -> Said {
    ids.sort();
    Said::Rows(ids)
}

/// Times and `seq` are each store's own, and so is whether a lane has one number or another.
fn without_times(mut delivery: Delivery) -> Delivery {
    delivery.seq = 0;
    delivery.created_at = time::OffsetDateTime::UNIX_EPOCH;
    delivery.lane = delivery.lane.map(|_| 0);
    delivery.event.deliver_at = None;
    delivery
}

/// Everything that can be seen of a store, line by line.
async fn see(harness: &dyn Harness) -> Vec<String> {
    let (store, operate) = (harness.store(), harness.operate());
    let all = Filter {
        limit: 10_000,
        ..Filter::default()
    };
    let mut lines = Vec::new();
    for row in operate.list(&all).await.expect("a list") {
        lines.push(row_line(&row));
    }
    let look = store.find(&Scope::All, None, 100).await.expect("a look");
    for due in look.due {
        let fresh = due.lowest.is_some();
        lines.push(format!(
            "due {:?} {fresh} {} {}",
            due.backlog, due.waited, due.keyed
        ));
    }
    lines.push(format!("paused {:?} more {}", look.paused, look.more));
    for what in [Parked::Unrouted, Parked::Blocking] {
        let stubs = store.parked(what, &Scope::All, None, 100).await.expect("a look");
        lines.extend(stubs.into_iter().map(|stub| stub_line(what, stub)));
    }
    for key in operate.blocked(&Scope::All, 100).await.expect("blocked keys") {
        lines.push(format!(
            "blocked {:?} {} {} {} {} {:?}",
            key.destination, key.ordering_key, key.head, key.status, key.attempts, key.reason
        ));
    }
    for record in operate.destinations(&Scope::All).await.expect("destinations") {
        let paused = record.paused.map(|paused| paused.reason);
        lines.push(format!(
            "{} {paused:?} {} {}",
            record.name, record.pending, record.dead
        ));
    }
    for worker in operate.workers().await.expect("workers") {
        lines.push(format!("worker {} {} {}", worker.id, worker.alive, worker.lanes));
    }
    lines
}

fn row_line(row: &Record) -> String {
    // Times are sums of 50 and 100 seconds and of moments: the nearest 50 is what was meant.
    let since = |time: time::OffsetDateTime| {
        (time - row.created_at + time::Duration::seconds(20)).whole_seconds() / 50
    };
    format!(
        "row {} of {} {:?} {:?} {} attempts {}/{:?} due {} until {:?} unordered {} {:?}",
        row.id,
        row.event.id,
        row.destination,
        row.ordering_key,
        row.status,
        row.attempts,
        row.max_attempts,
        since(row.next_attempt_at),
        row.locked_until.map(since),
        row.unordered,
        row.last_error
    )
}

fn stub_line(what: Parked, mut stub: Stub) -> String {
    stub.event.deliver_at = None;
    format!("{what:?} {} {:?}", stub.id, stub.event)
}

/// Adds new rows, and what a worker has in its hands now.
fn remember(call: &Call, said: &Said, rows: &mut Vec<Uuid>, held: &mut Vec<Held>) {
    match (call, said) {
        (Call::Enqueue(events), _) => rows.extend(events.iter().map(|event| event.id)),
        (Call::Claim(request), Said::Claimed(claimed)) => held.extend(claimed.iter().map(|delivery| Held {
            worker: request.worker,
            id: delivery.id,
            claim: delivery.claim,
            is_routed: delivery.event.destination.is_some(),
        })),
        (Call::Route(worker, routings), Said::Routed(routed)) => {
            for routing in routings
                .iter()
                .filter(|routing| !routed.lost.contains(&routing.id))
            {
                let siblings = routing.members.iter().skip(1).map(|member| member.id);
                rows.extend(siblings.clone());
                held.extend(siblings.map(|id| Held {
                    worker: *worker,
                    id,
                    claim: routing.claim,
                    is_routed: true,
                }));
            }
        }
        (_, _) => {}
    }
}
