//! A store that passes calls on to another, with faults that a test plans.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use pillarbox::{Delivery, StoreError};
use pillarbox_store::adopt::{AdoptedTable, Import, ImportRequest, Imported};
use pillarbox_store::quotas::{Counted, Holder};
use pillarbox_store::retention::{PruneRequest, Pruned};
use pillarbox_store::sample::{SampleRequest, Sampled};
use pillarbox_store::store::{
    Backlog, Change, ClaimRequest, Family, Found, Heartbeat, LaneRequest, Parked, Range, Routed, Routing,
    Settlement, Stub, SweepRequest, Swept, Watch,
};
use pillarbox_store::{Scope, Store};
use uuid::Uuid;

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The call fails and changes nothing.
    Before,
    /// The call fails after its change was made: the answer was lost.
    After,
    /// The call takes this long.
    Slow(Duration),
}

/// How often each method was called.
pub type Calls = BTreeMap<&'static str, usize>;

type Plan = dyn Fn(&'static str) -> Fault + Send + Sync;

/// Passes every call on, with the faults that a plan asks for. Clones are the same store.
#[derive(Clone)]
pub struct FlakyStore {
    under: Arc<dyn Store>,
    plan: Arc<Plan>,
    calls: Arc<Mutex<Calls>>,
    has_unreadable: Arc<AtomicBool>,
}

impl FlakyStore {
    /// In front of `under`; the plan is asked at every call, with the method's name.
    pub fn new(under: Arc<dyn Store>, plan: impl Fn(&'static str) -> Fault + Send + Sync + 'static) -> Self {
        Self {
            under,
            plan: Arc::new(plan),
            calls: Arc::default(),
            has_unreadable: Arc::default(),
        }
    }

    /// Reports once that a claim made rows dead, because they cannot be read.
    pub fn report_unreadable(&self) {
        self.has_unreadable.store(true, Ordering::SeqCst);
    }

    /// How often each method was called so far.
    pub fn calls(&self) -> Calls {
        self.counts().clone()
    }

    /// How many calls there were in all.
    pub fn total(&self) -> usize {
        self.counts().values().sum()
    }

    fn counts(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call<T: Send>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        *self.counts().entry(method).or_default() += 1;
        let failed =
            |when: &str| StoreError::Unavailable(format!("the test made {method} fail {when} the call"));
        match (self.plan)(method) {
            Fault::None => call.await,
            Fault::Before => Err(failed("before")),
            Fault::After => call.await.and_then(|_| Err(failed("after"))),
            Fault::Slow(wait) => {
                tokio::time::sleep(wait).await;
                call.await
            }
        }
    }
}

#[async_trait]
impl Store for FlakyStore {
    async fn find(
        &self,
        scope: &Scope,
        served: Option<&[String]>,
        after: Option<&Backlog>,
        limit: usize,
    ) -> Result<Found, StoreError> {
        self.call("find", self.under.find(scope, served, after, limit))
            .await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
        self.call("claim", self.under.claim(request)).await
    }

    fn take_unreadable(&self) -> bool {
        self.has_unreadable.swap(false, Ordering::SeqCst) || self.under.take_unreadable()
    }

    async fn route(&self, worker: Uuid, routings: &[Routing]) -> Result<Routed, StoreError> {
        self.call("route", self.under.route(worker, routings)).await
    }

    async fn settle(&self, worker: Uuid, settlements: &[Settlement]) -> Result<Vec<Uuid>, StoreError> {
        self.call("settle", self.under.settle(worker, settlements)).await
    }

    async fn renew(
        &self,
        worker: Uuid,
        held: &[(Uuid, Uuid)],
        lease: Duration,
    ) -> Result<Vec<Uuid>, StoreError> {
        self.call("renew", self.under.renew(worker, held, lease)).await
    }

    async fn sweep(&self, request: &SweepRequest) -> Result<Swept, StoreError> {
        self.call("sweep", self.under.sweep(request)).await
    }

    async fn lease_lanes(&self, request: &LaneRequest) -> Result<Vec<Range>, StoreError> {
        self.call("lease_lanes", self.under.lease_lanes(request)).await
    }

    async fn prune_lanes(&self) -> Result<usize, StoreError> {
        self.call("prune_lanes", self.under.prune_lanes()).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, StoreError> {
        self.call("prune", self.under.prune(request)).await
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        self.call("heartbeat", self.under.heartbeat(heartbeat)).await
    }

    async fn deregister(&self, worker: Uuid) -> Result<(), StoreError> {
        self.call("deregister", self.under.deregister(worker)).await
    }

    async fn pending(&self, scope: &Scope) -> Result<Option<u64>, StoreError> {
        self.call("pending", self.under.pending(scope)).await
    }

    async fn count_quotas(
        &self,
        worker: Uuid,
        after: Option<&Holder>,
    ) -> Result<Option<Counted>, StoreError> {
        self.call("count_quotas", self.under.count_quotas(worker, after))
            .await
    }

    async fn sample(&self, request: &SampleRequest) -> Result<Option<Sampled>, StoreError> {
        self.call("sample", self.under.sample(request)).await
    }

    async fn families(&self, events: &[Uuid]) -> Result<Vec<Family>, StoreError> {
        self.call("families", self.under.families(events)).await
    }

    async fn disable(&self, worker: Uuid, destination: &str, reason: &str) -> Result<(), StoreError> {
        self.call("disable", self.under.disable(worker, destination, reason))
            .await
    }

    async fn parked(
        &self,
        what: Parked,
        scope: &Scope,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Stub>, StoreError> {
        self.call("parked", self.under.parked(what, scope, after, limit))
            .await
    }

    async fn unpark(&self, what: Parked, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        self.call("unpark", self.under.unpark(what, ids)).await
    }

    fn importers(&self) -> Vec<Arc<dyn Import>> {
        let flaky = |under| -> Arc<dyn Import> {
            let store = self.clone();
            Arc::new(FlakyImport { store, under })
        };
        self.under.importers().into_iter().map(flaky).collect()
    }

    async fn watch(&self) -> Result<Option<Box<dyn Watch>>, StoreError> {
        let under = self.call("watch", self.under.watch()).await?;
        let flaky = |under| -> Box<dyn Watch> {
            let store = self.clone();
            Box::new(FlakyWatch { store, under })
        };
        Ok(under.map(flaky))
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.call("check", self.under.check()).await
    }
}

struct FlakyWatch {
    store: FlakyStore,
    under: Box<dyn Watch>,
}

#[async_trait]
impl Watch for FlakyWatch {
    async fn next(&mut self, until_ended: bool) -> Result<Change, StoreError> {
        self.store.call("watch_next", self.under.next(until_ended)).await
    }
}

struct FlakyImport {
    store: FlakyStore,
    under: Arc<dyn Import>,
}

#[async_trait]
impl Import for FlakyImport {
    fn table(&self) -> &AdoptedTable {
        self.under.table()
    }

    async fn import(&self, request: &ImportRequest) -> Result<Imported, StoreError> {
        self.store.call("import", self.under.import(request)).await
    }
}
