//! What the cases say often, in few words.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::operate::{Filter, Record};
use pillarbox::store::{ClaimRequest, Settlement, Swept, Take};
use pillarbox::{Delivery, Event, Operate, Scope, Store, Verdict};
use uuid::Uuid;

use super::harness::Harness;

/// The lease that the cases ask for.
pub(super) const LEASE: Duration = Duration::from_secs(60);
/// How many attempts a row has in the cases.
pub(super) const LIMIT: u32 = 5;

/// No row at all.
pub(super) const NOBODY: [Uuid; 0] = [];

/// One case's outbox and the worker that works on it.
///
/// Waits in the cases are tens of seconds and ages differ from them by tens of seconds, so that a slow
/// machine, on which real seconds pass during a case, changes no result.
#[derive(Clone)]
pub struct Bench {
    pub(super) harness: Arc<dyn Harness>,
    pub(super) store: Arc<dyn Store>,
    pub(super) operate: Arc<dyn Operate>,
    pub(super) worker: Uuid,
}

impl Bench {
    pub(super) fn new(harness: Arc<dyn Harness>) -> Self {
        Self {
            store: harness.store(),
            operate: harness.operate(),
            harness,
            worker: Uuid::new_v4(),
        }
    }

    /// The same outbox in another worker's hands.
    pub(super) fn rival(&self) -> Self {
        Self {
            worker: Uuid::new_v4(),
            ..self.clone()
        }
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

    pub(super) fn request(&self, limit: usize) -> ClaimRequest {
        ClaimRequest {
            worker: self.worker,
            claim: Uuid::new_v4(),
            lease: LEASE,
            take: Take::Due {
                limit,
                recovered: limit,
            },
            max_bytes: usize::MAX,
            scope: Scope::All,
            max_attempts: LIMIT,
        }
    }

    pub(super) async fn claim_as(&self, request: ClaimRequest) -> Vec<Delivery> {
        self.store.claim(&request).await.expect("a claim")
    }

    pub(super) async fn claim(&self, limit: usize) -> Vec<Delivery> {
        self.claim_as(self.request(limit)).await
    }

    pub(super) async fn claim_alone(&self) -> Vec<Delivery> {
        self.claim_as(ClaimRequest {
            take: Take::Alone,
            ..self.request(1)
        })
        .await
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

    /// Settles all of these, and says which rows were lost.
    pub(super) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Uuid> {
        self.store
            .settle(self.worker, settlements)
            .await
            .expect("a settle")
    }

    /// Renews, and says which rows were lost.
    pub(super) async fn renew(&self, held: &[(Uuid, Uuid)], lease: Duration) -> Vec<Uuid> {
        self.store
            .renew(self.worker, held, lease)
            .await
            .expect("a renewal")
    }

    /// Settles, and says which rows were lost.
    pub(super) async fn try_settle(&self, delivery: &Delivery, verdict: Verdict) -> Vec<Uuid> {
        self.settle_all(&[settlement(delivery, verdict)]).await
    }

    /// Settles a row that is ours.
    pub(super) async fn settle(&self, delivery: &Delivery, verdict: Verdict) {
        assert_eq!(
            self.try_settle(delivery, verdict).await,
            NOBODY,
            "the row is ours"
        );
    }

    pub(super) async fn sweep(&self) -> Swept {
        self.store
            .sweep(&Scope::All, LIMIT, LEASE)
            .await
            .expect("a sweep")
    }

    pub(super) async fn is_due(&self) -> bool {
        self.store.is_due(&Scope::All).await.expect("a look")
    }

    pub(super) async fn show(&self, id: Uuid) -> Record {
        self.operate
            .show(id)
            .await
            .expect("a look")
            .expect("the row is there")
    }

    pub(super) async fn list(&self, filter: Filter) -> Vec<Record> {
        self.operate.list(&filter).await.expect("a list")
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
        reason: "closed under us".into(),
    }
}

pub(super) fn dead() -> Verdict {
    Verdict::Dead {
        reason: "refused".into(),
    }
}
