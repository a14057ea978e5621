//! Short forms of what the cases do often.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::{Delivery, Event};
use pillarbox_store::operate::{Filter, Record};
use pillarbox_store::store::{
    Backlog, ClaimRequest, Due, Found, Heartbeat, LANE_RANGES, LaneRequest, Range, Serves, Settlement, Share,
    SweepRequest, Swept, Take,
};
use pillarbox_store::{Operate, Scope, Store, Verdict};
use uuid::Uuid;

use super::harness::{Capability, Field, Harness, Skipped};
use crate::OPERATOR;

/// The lease that the cases ask for.
pub(super) const LEASE: Duration = Duration::from_secs(60);
/// How many attempts a row has in the cases.
pub(super) const LIMIT: u32 = 5;

/// No rows.
pub(super) const NO_ROWS: [Uuid; 0] = [];

/// One case's outbox and the worker that works on it.
///
/// Waits in the cases are tens of seconds and ages differ from them by tens of seconds, so that a slow
/// machine, on which real seconds pass during a case, changes no result.
#[derive(Clone)]
pub struct Bench {
    pub(super) harness: Arc<dyn Harness>,
    pub(super) worker: Uuid,
}

impl Bench {
    pub(super) fn new(harness: Arc<dyn Harness>) -> Self {
        Self {
            harness,
            worker: Uuid::new_v4(),
        }
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.harness.store()
    }

    pub(super) fn operate(&self) -> Arc<dyn Operate> {
        self.harness.operate()
    }

    /// Another worker on the same outbox.
    pub(super) fn rival(&self) -> Self {
        Self {
            worker: Uuid::new_v4(),
            ..self.clone()
        }
    }

    /// Skips the case where events cannot have all of these.
    pub(super) fn needs(&self, fields: &[Field]) -> Result<(), Skipped> {
        fields
            .iter()
            .try_for_each(|field| self.harness.can(Capability::Field(*field)))
    }

    pub(super) async fn put_all(&self, events: &[Event]) -> Vec<Uuid> {
        let enqueued = self.harness.enqueue(events).await.expect("accepted");
        enqueued.iter().map(|one| one.id()).collect()
    }

    pub(super) async fn put(&self, event: Event) -> Uuid {
        self.put_all(&[event]).await[0]
    }

    pub(super) async fn put_many(&self, count: usize) -> Vec<Uuid> {
        let events: Vec<Event> = (0..count).map(|_| event()).collect();
        self.put_all(&events).await
    }

    pub(super) fn request(&self, take: Take) -> ClaimRequest {
        ClaimRequest {
            worker: self.worker,
            claim: Uuid::new_v4(),
            lease: LEASE,
            take,
            excluded: Vec::new(),
            first_lane: 0,
            max_bytes: usize::MAX,
            scope: Scope::All,
            max_attempts: LIMIT,
        }
    }

    pub(super) async fn claim_as(&self, request: ClaimRequest) -> Vec<Delivery> {
        self.store().claim(&request).await.expect("a claim")
    }

    /// Rows without a lane, as a dispatcher takes them: searches, claims from each backlog that it finds, and then as many
    /// suspects.
    pub(super) async fn claim(&self, limit: usize) -> Vec<Delivery> {
        self.claim_changed(limit, |request| request).await
    }

    /// The same with another request.
    pub(super) async fn claim_changed(
        &self,
        limit: usize,
        change: impl Fn(ClaimRequest) -> ClaimRequest,
    ) -> Vec<Delivery> {
        let mut claimed = self.claim_free(limit, &change).await;
        let suspect = change(self.request(Take::Suspects(limit)));
        claimed.extend(self.claim_as(suspect).await);
        claimed.sort_by_key(|delivery| delivery.seq);
        claimed
    }

    /// Rows without a lane that are due, within the limit in all.
    pub(super) async fn claim_free(
        &self,
        limit: usize,
        change: impl Fn(ClaimRequest) -> ClaimRequest,
    ) -> Vec<Delivery> {
        let mut claimed = Vec::new();
        let scope = change(self.request(Take::LoneSuspect)).scope;
        for due in self.find_in(&scope).await.due {
            let share = share(due.backlog, limit - claimed.len());
            let request = change(self.request(Take::Free(vec![share])));
            claimed.extend(self.claim_as(request).await);
        }
        claimed
    }

    /// Rows with a lane, of every backlog that is seen, with all lanes that this worker can get.
    pub(super) async fn claim_keyed(&self, limit: usize) -> Vec<Delivery> {
        let due = self.find().await.due;
        let keyed = || due.iter().filter(|due| due.keyed).map(|due| due.backlog.clone());
        self.heartbeat().await;
        self.lease_backlogs(keyed()).await;
        self.claim_as(self.request(keyed_from(keyed(), limit))).await
    }

    pub(super) async fn claim_alone(&self) -> Vec<Delivery> {
        self.claim_as(self.request(Take::LoneSuspect)).await
    }

    /// Sends a heartbeat of this worker.
    pub(super) async fn heartbeat(&self) {
        let heartbeat = Heartbeat {
            worker: self.worker,
            host: "bench".into(),
            version: "1.2.3".into(),
            scope: Scope::All,
            ttl: LEASE,
            claimed: 3,
            delivered: 2,
            failed: 1,
            ..Heartbeat::default()
        };
        self.store().heartbeat(&heartbeat).await.expect("a heartbeat");
    }

    /// Sends a heartbeat with the destinations that this worker serves, and those that it cannot reach.
    pub(super) async fn heartbeat_serving(&self, destinations: &[&str], unreachable: &[&str]) {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let heartbeat = Heartbeat {
            worker: self.worker,
            ttl: LEASE,
            serves: Serves {
                destinations: Some(names(destinations)),
                unreachable: names(unreachable),
                ..Serves::default()
            },
            ..Heartbeat::default()
        };
        self.store().heartbeat(&heartbeat).await.expect("a heartbeat");
    }

    /// For the rows of these namespaces that have no destination.
    pub(super) fn lane_request<S: Into<String>>(
        &self,
        namespaces: impl IntoIterator<Item = S>,
    ) -> LaneRequest {
        let backlog = |name: S| Backlog {
            destination: None,
            namespace: name.into(),
        };
        self.lane_request_for(namespaces.into_iter().map(backlog))
    }

    pub(super) fn lane_request_for(&self, backlogs: impl IntoIterator<Item = Backlog>) -> LaneRequest {
        LaneRequest {
            worker: self.worker,
            backlogs: backlogs.into_iter().collect(),
            ranges: LANE_RANGES,
            new_ranges: LANE_RANGES,
            lease: LEASE,
            release: Vec::new(),
        }
    }

    /// Asks for lanes.
    pub(super) async fn lease_lanes_as(&self, request: LaneRequest) -> Vec<Range> {
        self.store().lease_lanes(&request).await.expect("lanes")
    }

    pub(super) async fn lease_lanes<S: Into<String>>(
        &self,
        namespaces: impl IntoIterator<Item = S>,
    ) -> Vec<Range> {
        self.lease_lanes_as(self.lane_request(namespaces)).await
    }

    pub(super) async fn lease_backlogs(&self, backlogs: impl IntoIterator<Item = Backlog>) -> Vec<Range> {
        self.lease_lanes_as(self.lane_request_for(backlogs)).await
    }

    /// The one row that can be claimed.
    pub(super) async fn claim_one(&self) -> Delivery {
        let mut claimed = self.claim(10).await;
        assert_eq!(claimed.len(), 1, "one row was expected: {claimed:?}");
        claimed.remove(0)
    }

    /// Enqueues one event and claims it.
    pub(super) async fn put_and_claim(&self) -> Delivery {
        let id = self.put(event()).await;
        let delivery = self.claim_one().await;
        assert_eq!(delivery.id, id);
        delivery
    }

    /// Settles all of these, and returns the lost rows.
    pub(super) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Uuid> {
        self.store()
            .settle(self.worker, settlements)
            .await
            .expect("a settle")
    }

    /// Renews, and returns the lost rows.
    pub(super) async fn renew(&self, held: &[(Uuid, Uuid)], lease: Duration) -> Vec<Uuid> {
        self.store()
            .renew(self.worker, held, lease)
            .await
            .expect("a renewal")
    }

    /// Settles, and returns the lost rows.
    pub(super) async fn try_settle(&self, delivery: &Delivery, verdict: Verdict) -> Vec<Uuid> {
        self.settle_all(&[settlement(delivery, verdict)]).await
    }

    /// Settles a row that is ours.
    pub(super) async fn settle(&self, delivery: &Delivery, verdict: Verdict) {
        assert_eq!(
            self.try_settle(delivery, verdict).await,
            NO_ROWS,
            "the row is ours"
        );
    }

    pub(super) fn sweep_request(&self) -> SweepRequest {
        SweepRequest {
            worker: self.worker,
            scope: Scope::All,
            max_attempts: LIMIT,
            grace: LEASE,
            excluded: Vec::new(),
        }
    }

    pub(super) async fn sweep_as(&self, request: SweepRequest) -> Swept {
        self.store().sweep(&request).await.expect("a sweep")
    }

    pub(super) async fn sweep(&self) -> Swept {
        self.sweep_as(self.sweep_request()).await
    }

    pub(super) async fn find_in(&self, scope: &Scope) -> Found {
        self.store()
            .find(scope, None, None, 1_000)
            .await
            .expect("a search")
    }

    pub(super) async fn find(&self) -> Found {
        self.find_in(&Scope::All).await
    }

    /// Does a search find anything?
    pub(super) async fn is_due(&self) -> bool {
        self.find().await.due.iter().any(has_work)
    }

    pub(super) async fn show(&self, id: Uuid) -> Record {
        self.operate()
            .show(&OPERATOR, id)
            .await
            .expect("a search")
            .expect("the row is there")
    }

    pub(super) async fn list(&self, filter: Filter) -> Vec<Record> {
        self.operate().list(&OPERATOR, &filter).await.expect("a list")
    }

    pub(super) async fn rows(&self) -> Vec<Record> {
        self.list(Filter {
            limit: 10_000,
            ..Filter::default()
        })
        .await
    }

    pub(super) async fn age(&self, seconds: i64) {
        self.harness.age(time::Duration::seconds(seconds)).await;
    }

    /// A row that fails until its attempts stand at `attempts`, and is due again.
    pub(super) async fn put_tried(&self, attempts: u32) -> Uuid {
        let id = self.put(event()).await;
        for _ in 0..attempts {
            let delivery = self.claim_one().await;
            assert_eq!(delivery.id, id);
            self.settle(&delivery, retry(0)).await;
        }
        id
    }
}

/// Does it have rows that a claim may take?
pub(super) fn has_work(due: &Due) -> bool {
    due.lowest.is_some() || due.waited || due.keyed
}

/// The backlog of a destination, or of rows without one.
pub(super) fn backlog(destination: Option<&str>) -> Backlog {
    Backlog {
        destination: destination.map(str::to_owned),
        namespace: "shop".into(),
    }
}

pub(super) fn share(backlog: Backlog, limit: usize) -> Share {
    Share {
        backlog,
        limit,
        floor: 0,
        fair: false,
        resume: false,
    }
}

pub(super) fn free_from(backlogs: impl IntoIterator<Item = Backlog>, limit: usize) -> Take {
    Take::Free(
        backlogs
            .into_iter()
            .map(|backlog| share(backlog, limit))
            .collect(),
    )
}

pub(super) fn keyed_from(backlogs: impl IntoIterator<Item = Backlog>, limit: usize) -> Take {
    Take::Keyed(
        backlogs
            .into_iter()
            .map(|backlog| share(backlog, limit))
            .collect(),
    )
}

pub(super) fn event() -> Event {
    Event::new("shop", "orders")
}

pub(super) fn ids(deliveries: &[Delivery]) -> Vec<Uuid> {
    deliveries.iter().map(|delivery| delivery.id).collect()
}

pub(super) fn settlement(delivery: &Delivery, verdict: Verdict) -> Settlement {
    Settlement {
        id: delivery.id,
        claim: delivery.claim,
        verdict,
        destination: None,
        max_attempts: None,
        unordered: false,
        keep: true,
    }
}

pub(super) fn retry(seconds: u64) -> Verdict {
    Verdict::Retry {
        after: Duration::from_secs(seconds),
        reason: "connection reset".into(),
    }
}

pub(super) fn release(seconds: u64) -> Verdict {
    Verdict::Release {
        after: Duration::from_secs(seconds),
        reason: None,
    }
}

pub(super) fn suspect(seconds: u64) -> Verdict {
    Verdict::Suspect {
        after: Duration::from_secs(seconds),
        reason: "connection lost".into(),
    }
}

pub(super) fn dead() -> Verdict {
    Verdict::Dead {
        reason: "refused".into(),
    }
}
