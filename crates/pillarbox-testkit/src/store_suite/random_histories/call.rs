//! An operation with its ids, the same for both stores, and the answer of each.

use std::time::Duration;

use pillarbox::{Delivery, Enqueued, Event};
use pillarbox_store::Scope;
use pillarbox_store::retention::{PruneRequest, Retention, What};
use pillarbox_store::store::{
    ClaimRequest, Heartbeat, LaneRequest, Parked, Range, Routed, Routing, Serves, Settlement, SweepRequest,
    Swept,
};
use uuid::Uuid;

use super::operation::Supported;
use crate::OPERATOR;
use crate::store_suite::harness::Harness;

pub(super) enum Call {
    Enqueue(Vec<Event>),
    Find(Scope),
    Claim(ClaimRequest),
    Route(Uuid, Vec<Routing>),
    Settle(Uuid, Vec<Settlement>),
    Renew(Uuid, Vec<(Uuid, Uuid)>, Duration),
    Sweep(SweepRequest),
    LeaseLanes(LaneRequest),
    PruneLanes,
    /// Whole passes, in small batches.
    Prune(Retention),
    Heartbeat(Uuid, Duration, Serves),
    Deregister(Uuid),
    Unpark(Parked, Vec<Uuid>),
    Retry(Vec<Uuid>),
    Skip(Vec<Uuid>),
    Delete(Vec<Uuid>),
    Pause(&'static str),
    Resume(&'static str),
}

/// What a store answered.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Nothing,
    Enqueued(Vec<Enqueued>),
    /// Backlogs with rows without a key: `(backlog, fresh, waited)`, and paused destinations.
    Found(Vec<String>, Vec<String>),
    Claimed(Vec<Delivery>),
    Routed(Routed),
    Rows(Vec<Uuid>),
    Swept(Swept),
    Lanes(Vec<Range>),
    Resumed(bool),
    Pruned(u64, u64),
}

pub(super) async fn perform(harness: &dyn Harness, call: &Call, supported: &Supported) -> Answer {
    let (store, operate) = (harness.store(), harness.operate());
    match call {
        Call::Enqueue(events) => Answer::Enqueued(harness.enqueue(events).await.expect("accepted")),
        Call::Find(scope) => {
            let found = store.find(scope, None, None, 1_000).await.expect("a search");
            assert!(!found.more, "a thousand are enough");
            let free = found.due.iter().filter(|due| due.lowest.is_some() || due.waited);
            let free = free.map(|due| format!("{:?} {} {}", due.backlog, due.lowest.is_some(), due.waited));
            Answer::Found(free.collect(), found.paused)
        }
        Call::Claim(request) => {
            let claimed = store.claim(request).await.expect("a claim");
            let mut claimed: Vec<Delivery> = claimed
                .into_iter()
                .map(|delivery| comparable(delivery, supported))
                .collect();
            claimed.sort_by_key(|delivery| delivery.id);
            Answer::Claimed(claimed)
        }
        Call::Route(worker, routings) => {
            let mut routed = store.route(*worker, routings).await.expect("a routing");
            routed.lost.sort();
            routed.waiting.sort();
            Answer::Routed(routed)
        }
        Call::Settle(worker, settlements) => {
            rows(store.settle(*worker, settlements).await.expect("a settle"))
        }
        Call::Renew(worker, claimed, lease) => {
            rows(store.renew(*worker, claimed, *lease).await.expect("a renewal"))
        }
        Call::Sweep(request) => {
            let mut swept = store.sweep(request).await.expect("a sweep");
            swept.dead.sort();
            swept.rows.sort();
            Answer::Swept(swept)
        }
        Call::LeaseLanes(request) => {
            let mut lanes = store.lease_lanes(request).await.expect("lanes");
            lanes.sort_by_key(|range| (range.backlog.clone(), range.first));
            Answer::Lanes(lanes)
        }
        Call::PruneLanes => {
            store.prune_lanes().await.expect("prunes");
            Answer::Nothing
        }
        Call::Prune(retention) => {
            let (mut delivered, mut dead) = (0, 0);
            for what in [What::Delivered, What::Dead] {
                let mut request = PruneRequest {
                    worker: Uuid::nil(),
                    lease: Duration::from_secs(1),
                    what,
                    scope: Scope::All,
                    retention: retention.clone(),
                    batch: 3,
                    after: None,
                    dry_run: false,
                    archive: None,
                };
                loop {
                    let pruned = store.prune(&request).await.expect("prunes");
                    delivered += pruned.delivered;
                    dead += pruned.dead;
                    request.after = pruned.after;
                    if request.after.is_none() {
                        break;
                    }
                }
            }
            Answer::Pruned(delivered, dead)
        }
        Call::Heartbeat(worker, ttl, serves) => {
            let heartbeat = heartbeat(*worker, *ttl, serves.clone());
            store.heartbeat(&heartbeat).await.expect("a heartbeat");
            Answer::Nothing
        }
        Call::Deregister(worker) => {
            store.deregister(*worker).await.expect("deregisters");
            Answer::Nothing
        }
        Call::Unpark(what, ids) => rows(store.unpark(*what, ids).await.expect("unparks")),
        Call::Retry(ids) => rows(operate.retry(&OPERATOR, ids).await.expect("a retry")),
        Call::Skip(ids) => rows(operate.skip(&OPERATOR, ids).await.expect("a skip")),
        Call::Delete(ids) => rows(operate.delete(&OPERATOR, ids).await.expect("a delete")),
        Call::Pause(name) => {
            operate
                .pause(&OPERATOR, name, "maintenance")
                .await
                .expect("pauses");
            Answer::Nothing
        }
        Call::Resume(name) => Answer::Resumed(operate.resume(&OPERATOR, name).await.expect("resumes")),
    }
}

fn rows(mut ids: Vec<Uuid>) -> Answer {
    ids.sort();
    Answer::Rows(ids)
}

fn heartbeat(worker: Uuid, ttl: Duration, serves: Serves) -> Heartbeat {
    Heartbeat {
        worker,
        host: "host".into(),
        version: "1".into(),
        scope: Scope::All,
        ttl,
        claimed: 1,
        delivered: 2,
        failed: 3,
        serves,
        ..Heartbeat::default()
    }
}

/// Without times, `seq` and the number of the lane, which differ between stores.
fn comparable(mut delivery: Delivery, supported: &Supported) -> Delivery {
    delivery.seq = 0;
    delivery.created_at = time::OffsetDateTime::UNIX_EPOCH;
    delivery.lane = delivery.lane.map(|_| 0);
    delivery.event = supported.comparable(delivery.event);
    delivery
}
