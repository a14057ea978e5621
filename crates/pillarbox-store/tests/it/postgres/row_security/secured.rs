//! An outbox with row-level security, whose owner cannot log in, and a role of its own for each duty.

use std::sync::Arc;

use async_trait::async_trait;
use pillarbox::Event;
use pillarbox::saga::{Ask, AskResult};
use pillarbox_store::actor::Reach;
use pillarbox_store::archive::Restored;
use pillarbox_store::audit::{AuditFilter, AuditRecord};
use pillarbox_store::operate::{
    AdoptedTableRecord, BlockedKey, DestinationRecord, Filter, Record, Stats, WorkerRecord,
};
use pillarbox_store::retention::{DeleteOld, Pruned};
use pillarbox_store::sagas::{SagaFilter, SagaLine, SagaRecord};
use pillarbox_store::stores::postgres::{Duty, Postgres};
use pillarbox_store::{Actor, Operate, OperateError, Scope, Store};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::{Capability, Corruption, Harness, Skipped, Tx};
use uuid::Uuid;

use super::super::harness::{Open, PostgresHarness};
use super::super::privileges::{drop_role, on_duty};

pub(super) const TENANT: Uuid = Uuid::from_u128(0x0190_c2a4_8f4e_7c3a_9d51_0f2b_6d1c_7e5a);
pub(super) const OTHER_TENANT: Uuid = Uuid::from_u128(0x0190_c2a4_8f4e_7c3a_9d51_0f2b_6d1c_7e5b);

pub(super) struct Secured {
    pub(super) harness: PostgresHarness,
    pub(super) owner: String,
    pub(super) writer: (String, Postgres),
    pub(super) dispatcher: (String, Postgres),
    /// Bound to the tenant of the transaction.
    pub(super) api: (String, Postgres),
    pub(super) any_tenant: (String, Postgres),
}

impl Secured {
    pub(super) async fn open() -> Self {
        let harness = PostgresHarness::direct().await;
        let owner = format!("o_{}", Uuid::new_v4().simple());
        harness.execute(&format!("create role {owner} nologin")).await;
        let given = harness.store.migrate_for(&OPERATOR, &owner).await;
        given.expect("gives it");
        let secured = Self {
            writer: on_duty(&harness, Duty::Writer).await,
            dispatcher: on_duty(&harness, Duty::Dispatcher).await,
            api: on_duty(&harness, Duty::Api).await,
            any_tenant: on_duty(&harness, Duty::ApiAnyTenant).await,
            owner,
            harness,
        };
        let dispatcher = &secured.dispatcher.0;
        // Some settings delete.
        secured
            .harness
            .execute(&format!(
                "grant delete on pillarbox.outbox_events to {dispatcher}"
            ))
            .await;
        secured
    }

    /// The same with an empty audit.
    pub(super) async fn fresh() -> Self {
        let secured = Self::open().await;
        let forget = "alter table pillarbox.audit disable trigger audit_is_kept;
             delete from pillarbox.audit;
             alter table pillarbox.audit enable trigger audit_is_kept";
        secured.harness.execute(forget).await;
        secured
    }

    /// What such a session begins its transactions with, so that the statement runs as this role for this tenant.
    pub(super) fn as_role(role: &str, tenant: &str) -> String {
        format!("set local role {role}; set local pillarbox.tenant = '{tenant}'")
    }

    /// Rows of two tenants and of none, one after another, in several states.
    pub(super) async fn interleave(&self, each: u32) {
        for _ in 0..each {
            for event in [event(), event().tenant(TENANT), event().tenant(OTHER_TENANT)] {
                self.enqueue(&[event.ordering_key("k"), self::event()])
                    .await
                    .expect("enqueues");
            }
        }
    }
}

pub(super) fn event() -> Event {
    Event::new("shop", "orders")
}

#[async_trait]
impl Harness for Secured {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.dispatcher.1.clone())
    }

    fn operate(&self) -> Arc<dyn Operate> {
        Arc::new(ByReach {
            tenant: self.api.1.clone(),
            system: self.any_tenant.1.clone(),
        })
    }

    async fn begin(&self) -> Box<dyn Tx> {
        let store = &self.writer.1;
        Box::new(Open {
            outbox: store.outbox(),
            session: store.pool().begin().await.expect("begins"),
        })
    }

    async fn age(&self, by: time::Duration) {
        self.harness.age(by).await;
    }

    fn can(&self, what: Capability) -> Result<(), Skipped> {
        if what == Capability::Archive {
            return Err(Skipped("only the owner restores rows"));
        }
        self.harness.can(what)
    }

    async fn corrupt(&self, id: Uuid, corruption: Corruption) {
        self.harness.corrupt(id, corruption).await;
    }

    async fn clean_up(&self) {
        let roles = [&self.writer, &self.dispatcher, &self.api, &self.any_tenant];
        for (_, store) in roles {
            store.close().await;
        }
        self.harness.clean_up().await;
        for (role, _) in roles {
            drop_role(&self.harness, role).await;
        }
        drop_role(&self.harness, &self.owner).await;
    }
}

/// Two logins, as an API has them: the reach of the actor chooses. A flag of one session would be one bug away from the rows of all.
struct ByReach {
    tenant: Postgres,
    system: Postgres,
}

impl ByReach {
    fn of(&self, actor: &Actor) -> &Postgres {
        match actor.reach() {
            Reach::Tenant(_) => &self.tenant,
            Reach::System => &self.system,
        }
    }
}

/// Passes calls on.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)+) => {
        #[async_trait]
        impl Operate for ByReach {
            $(async fn $name(&self, actor: &Actor $(, $argument: $kind)*) -> Result<$answer, OperateError> {
                self.of(actor).$name(actor $(, $argument)*).await
            })+
        }
    };
}

pass_on! {
    stats(scope: &Scope) -> Stats;
    list(filter: &Filter) -> Vec<Record>;
    show(id: Uuid) -> Option<Record>;
    retry(ids: &[Uuid]) -> Vec<Uuid>;
    delete(ids: &[Uuid]) -> Vec<Uuid>;
    delete_old(request: &DeleteOld) -> Pruned;
    restore(rows: &[String], dry_run: bool) -> Restored;
    blocked(scope: &Scope, limit: usize) -> Vec<BlockedKey>;
    skip(ids: &[Uuid]) -> Vec<Uuid>;
    destinations(scope: &Scope, known: &[String]) -> Vec<DestinationRecord>;
    pause(destination: &str, reason: &str) -> ();
    resume(destination: &str) -> bool;
    workers() -> Vec<WorkerRecord>;
    adopted_tables() -> Vec<AdoptedTableRecord>;
    retry_imports(table: &str, rows: Option<&[String]>) -> Vec<String>;
    sagas(filter: &SagaFilter) -> Vec<SagaRecord>;
    saga(name: &str, id: &str) -> Option<SagaRecord>;
    saga_log(name: &str, id: &str) -> Vec<SagaLine>;
    ask_saga(name: &str, id: &str, ask: Ask) -> AskResult;
    audit(filter: &AuditFilter) -> Vec<AuditRecord>;
}
