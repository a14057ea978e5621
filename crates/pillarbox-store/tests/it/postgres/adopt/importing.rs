//! An outbox that imports before each search and claim, as a dispatcher's importer does in the background.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox::{Delivery, StoreError};
use pillarbox_store::adopt::{Import, ImportRequest, Imported};
use pillarbox_store::archive::Restored;
use pillarbox_store::audit::{AuditFilter, AuditRecord};
use pillarbox_store::operate::{BlockedKey, DestinationRecord, Filter, Record, Stats, WorkerRecord};
use pillarbox_store::retention::{DeleteOld, PruneRequest, Pruned};
use pillarbox_store::store::{
    Backlog, ClaimRequest, Family, Found, Heartbeat, LaneRequest, Parked, Range, Routed, Routing, Settlement,
    Stub, SweepRequest, Swept,
};
use pillarbox_store::stores::postgres::Postgres;
use pillarbox_store::{Actor, Operate, OperateError, Scope, Store};
use uuid::Uuid;

use super::harness::importer;

/// See the module. All other calls pass through.
pub(super) struct Importing {
    under: Postgres,
    importer: Arc<dyn Import>,
    request: ImportRequest,
}

impl Importing {
    pub(super) fn new(under: &Postgres) -> Self {
        Self {
            under: under.clone(),
            importer: importer(under),
            request: ImportRequest {
                worker: Uuid::new_v4(),
                lease: Duration::from_secs(60),
                batch: 100_000,
                max_in_progress: 100_000,
                detect_changes: true,
                prune: true,
            },
        }
    }
}

pub(super) async fn import(outbox: &Importing) -> Imported {
    outbox.importer.import(&outbox.request).await.expect("imports")
}

#[async_trait]
impl Store for Importing {
    async fn find(
        &self,
        scope: &Scope,
        served: Option<&[String]>,
        after: Option<&Backlog>,
        limit: usize,
    ) -> Result<Found, StoreError> {
        import(self).await;
        self.under.find(scope, served, after, limit).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
        import(self).await;
        self.under.claim(request).await
    }

    async fn route(&self, worker: Uuid, routings: &[Routing]) -> Result<Routed, StoreError> {
        self.under.route(worker, routings).await
    }

    async fn settle(&self, worker: Uuid, settlements: &[Settlement]) -> Result<Vec<Uuid>, StoreError> {
        self.under.settle(worker, settlements).await
    }

    async fn renew(
        &self,
        worker: Uuid,
        held: &[(Uuid, Uuid)],
        lease: Duration,
    ) -> Result<Vec<Uuid>, StoreError> {
        self.under.renew(worker, held, lease).await
    }

    async fn families(&self, events: &[Uuid]) -> Result<Vec<Family>, StoreError> {
        self.under.families(events).await
    }

    async fn sweep(&self, request: &SweepRequest) -> Result<Swept, StoreError> {
        self.under.sweep(request).await
    }

    async fn lease_lanes(&self, request: &LaneRequest) -> Result<Vec<Range>, StoreError> {
        self.under.lease_lanes(request).await
    }

    async fn prune_lanes(&self) -> Result<usize, StoreError> {
        self.under.prune_lanes().await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, StoreError> {
        self.under.prune(request).await
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        self.under.heartbeat(heartbeat).await
    }

    async fn deregister(&self, worker: Uuid) -> Result<(), StoreError> {
        self.under.deregister(worker).await
    }

    async fn disable(&self, worker: Uuid, destination: &str, reason: &str) -> Result<(), StoreError> {
        self.under.disable(worker, destination, reason).await
    }

    async fn parked(
        &self,
        what: Parked,
        scope: &Scope,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Stub>, StoreError> {
        self.under.parked(what, scope, after, limit).await
    }

    async fn unpark(&self, what: Parked, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        self.under.unpark(what, ids).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.under.check().await
    }
}

#[async_trait]
impl Operate for Importing {
    async fn stats(&self, actor: &Actor, scope: &Scope) -> Result<Stats, OperateError> {
        import(self).await;
        self.under.stats(actor, scope).await
    }

    async fn list(&self, actor: &Actor, filter: &Filter) -> Result<Vec<Record>, OperateError> {
        import(self).await;
        self.under.list(actor, filter).await
    }

    async fn show(&self, actor: &Actor, id: Uuid) -> Result<Option<Record>, OperateError> {
        import(self).await;
        self.under.show(actor, id).await
    }

    async fn retry(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError> {
        self.under.retry(actor, ids).await
    }

    async fn delete(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError> {
        self.under.delete(actor, ids).await
    }

    async fn delete_old(&self, actor: &Actor, request: &DeleteOld) -> Result<Pruned, OperateError> {
        self.under.delete_old(actor, request).await
    }

    async fn restore(&self, actor: &Actor, rows: &[String], dry_run: bool) -> Result<Restored, OperateError> {
        self.under.restore(actor, rows, dry_run).await
    }

    async fn blocked(
        &self,
        actor: &Actor,
        scope: &Scope,
        limit: usize,
    ) -> Result<Vec<BlockedKey>, OperateError> {
        self.under.blocked(actor, scope, limit).await
    }

    async fn skip(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError> {
        self.under.skip(actor, ids).await
    }

    async fn destinations(
        &self,
        actor: &Actor,
        scope: &Scope,
        known: &[String],
    ) -> Result<Vec<DestinationRecord>, OperateError> {
        self.under.destinations(actor, scope, known).await
    }

    async fn pause(&self, actor: &Actor, destination: &str, reason: &str) -> Result<(), OperateError> {
        self.under.pause(actor, destination, reason).await
    }

    async fn resume(&self, actor: &Actor, destination: &str) -> Result<bool, OperateError> {
        self.under.resume(actor, destination).await
    }

    async fn workers(&self, actor: &Actor) -> Result<Vec<WorkerRecord>, OperateError> {
        self.under.workers(actor).await
    }

    async fn audit(&self, actor: &Actor, filter: &AuditFilter) -> Result<Vec<AuditRecord>, OperateError> {
        self.under.audit(actor, filter).await
    }
}
