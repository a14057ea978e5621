//! An operation with its ids, the same for both stores, and what each answers.

use std::time::Duration;

use pillarbox::{Delivery, Event};
use pillarbox_store::operate::{BlockedKey, DestinationRecord, Stats};
use pillarbox_store::store::{
    Backlog, ClaimRequest, Due, Heartbeat, LaneRequest, Parked, Range, Routed, Routing, Settlement,
    SweepRequest, Swept,
};
use pillarbox_store::{Operate, Scope};
use uuid::Uuid;

use crate::store_suite::harness::Harness;

pub(super) enum Call {
    Enqueue(Vec<Event>),
    Found(Scope),
    Claim(ClaimRequest),
    Route(Uuid, Vec<Routing>),
    Settle(Uuid, Vec<Settlement>),
    Renew(Uuid, Vec<(Uuid, Uuid)>, Duration),
    Sweep(SweepRequest),
    Share(LaneRequest),
    Beat(Uuid, Duration),
    Leave(Uuid),
    Unpark(Parked, Vec<Uuid>),
    Retry(Vec<Uuid>),
    Skip(Vec<Uuid>),
    Delete(Vec<Uuid>),
    Pause(&'static str, bool),
    Operate,
}

/// What a store answered.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    Enqueued(Vec<pillarbox::Enqueued>),
    Looked(Vec<Seen>, Vec<String>),
    Claimed(Vec<Row>),
    Routed(Routed),
    Rows(Vec<Uuid>),
    Swept(Swept),
    Lanes(Vec<Range>),
    Nothing,
    Asked(Box<Asked>),
}

/// A backlog, and whether it has rows without a key that are fresh, that have waited, and rows with a key.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seen {
    backlog: Backlog,
    fresh: bool,
    waited: bool,
    keyed: bool,
}

/// A claimed row.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    pub(super) id: Uuid,
    event: Uuid,
    dedupe_key: Option<String>,
    has_lane: bool,
    attempts: u32,
    max_attempts: Option<u32>,
    suspect: bool,
}

/// What people see.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    stats: Stats,
    blocked: Vec<BlockedKey>,
    destinations: Vec<DestinationRecord>,
    /// Who is alive, and with how many lanes.
    workers: Vec<(Uuid, bool, u32)>,
    unrouted: Vec<Uuid>,
    blocking: Vec<Uuid>,
}

impl Said {
    /// The same, but that a look may name rows with a key that nobody can take.
    pub(super) fn agrees_with(&self, reference: &Self) -> bool {
        match (self, reference) {
            (Self::Looked(said, paused), Self::Looked(expected, expected_paused)) => {
                let without_keyed = |seen: &[Seen]| -> Vec<(Backlog, bool, bool)> {
                    let free = |one: &&Seen| one.fresh || one.waited;
                    seen.iter()
                        .filter(free)
                        .map(|one| (one.backlog.clone(), one.fresh, one.waited))
                        .collect()
                };
                let keyed = |one: &Seen| one.keyed.then(|| one.backlog.clone());
                let said_keyed: Vec<Backlog> = said.iter().filter_map(keyed).collect();
                paused == expected_paused
                    && without_keyed(said) == without_keyed(expected)
                    && expected
                        .iter()
                        .filter_map(keyed)
                        .all(|backlog| said_keyed.contains(&backlog))
            }
            (said, expected) => said == expected,
        }
    }
}

pub(super) async fn perform(harness: &dyn Harness, call: &Call) -> Said {
    let (store, operate) = (harness.store(), harness.operate());
    match call {
        Call::Enqueue(events) => Said::Enqueued(harness.enqueue(events).await.expect("accepted")),
        Call::Found(scope) => {
            let look = store.find(scope, None, 1_000).await.expect("a look");
            assert!(!look.more, "a thousand are enough");
            Said::Looked(look.due.into_iter().map(Seen::from).collect(), look.paused)
        }
        Call::Claim(request) => {
            let claimed = store.claim(request).await.expect("a claim");
            let mut rows: Vec<Row> = claimed.into_iter().map(Row::from).collect();
            rows.sort_by_key(|row| row.id);
            Said::Claimed(rows)
        }
        Call::Route(worker, routings) => {
            let mut routed = store.route(*worker, routings).await.expect("routes");
            routed.lost.sort();
            routed.waiting.sort();
            Said::Routed(routed)
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
        Call::Share(request) => Said::Lanes(store.lease_lanes(request).await.expect("lanes")),
        Call::Beat(worker, ttl) => {
            let heartbeat = heartbeat(*worker, *ttl);
            store.heartbeat(&heartbeat).await.expect("a heartbeat");
            Said::Nothing
        }
        Call::Leave(worker) => {
            store.deregister(*worker).await.expect("leaves");
            Said::Nothing
        }
        Call::Unpark(what, ids) => rows(store.unpark(*what, ids).await.expect("lets go")),
        Call::Retry(ids) => rows(operate.retry(ids).await.expect("a retry")),
        Call::Skip(ids) => rows(operate.skip(ids).await.expect("a skip")),
        Call::Delete(ids) => rows(operate.delete(ids).await.expect("a delete")),
        Call::Pause(name, true) => {
            operate.pause(name, "a person").await.expect("pauses");
            Said::Nothing
        }
        Call::Pause(name, false) => {
            let resumed = operate.resume(name).await.expect("resumes");
            Said::Rows(vec![Uuid::from_u128(resumed.into())])
        }
        Call::Operate => Said::Asked(Box::new(ask(harness, operate.as_ref()).await)),
    }
}

fn rows(mut ids: Vec<Uuid>) -> Said {
    ids.sort();
    ids.dedup();
    Said::Rows(ids)
}

fn heartbeat(worker: Uuid, ttl: Duration) -> Heartbeat {
    Heartbeat {
        worker,
        host: "here".into(),
        version: "1".into(),
        scope: Scope::All,
        ttl,
        claimed: 0,
        delivered: 0,
        failed: 0,
    }
}

async fn ask(harness: &dyn Harness, operate: &dyn Operate) -> Asked {
    let mut stats = operate.stats(&Scope::All).await.expect("stats");
    stats.oldest_pending_seconds = stats.oldest_pending_seconds.map(fifties);
    let mut blocked = operate.blocked(&Scope::All, 100).await.expect("blocked keys");
    for key in &mut blocked {
        key.seq = 0;
        key.age_seconds = fifties(key.age_seconds);
        key.next_attempt_at = None;
    }
    blocked.sort_by_key(|key| key.head);
    let mut destinations = operate.destinations(&Scope::All).await.expect("destinations");
    for destination in &mut destinations {
        if let Some(paused) = &mut destination.paused {
            paused.since = time::OffsetDateTime::UNIX_EPOCH;
        }
    }
    let workers = operate.workers().await.expect("workers");
    let mut workers: Vec<_> = workers.iter().map(|one| (one.id, one.alive, one.lanes)).collect();
    workers.sort();
    Asked {
        stats,
        blocked,
        destinations,
        workers,
        unrouted: parked(harness, Parked::Unrouted).await,
        blocking: parked(harness, Parked::Blocking).await,
    }
}

async fn parked(harness: &dyn Harness, what: Parked) -> Vec<Uuid> {
    let stubs = harness.store().parked(what, &Scope::All, None, 1_000).await;
    let mut ids: Vec<Uuid> = stubs.expect("a look").iter().map(|stub| stub.id).collect();
    ids.sort();
    ids
}

/// Real time passes on a slow machine; the histories know hundreds of seconds.
fn fifties(seconds: f64) -> f64 {
    ((seconds + 5.0) / 50.0).floor()
}

impl From<Due> for Seen {
    fn from(due: Due) -> Self {
        Self {
            fresh: due.lowest.is_some(),
            waited: due.waited,
            keyed: due.keyed,
            backlog: due.backlog,
        }
    }
}

impl From<Delivery> for Row {
    fn from(delivery: Delivery) -> Self {
        Self {
            id: delivery.id,
            event: delivery.event.id,
            dedupe_key: delivery.event.dedupe_key.clone(),
            has_lane: delivery.lane.is_some(),
            attempts: delivery.attempts,
            max_attempts: delivery.max_attempts,
            suspect: delivery.suspect,
        }
    }
}
