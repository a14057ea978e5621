//! Two tenants and events without a tenant share an outbox. An actor of one tenant sees and changes nothing of the others.
//!
//! The calls are read from the source of the port. So a new call fails here until it has its arms in this file.

use std::collections::BTreeSet;
use std::time::Duration;

use pillarbox::Event;
use pillarbox::saga::{Ask, AskResult};
use pillarbox_store::actor::{Kind, Missing, Permission, Reach};
use pillarbox_store::audit::AuditFilter;
use pillarbox_store::operate::{Filter, Record, Stats};
use pillarbox_store::retention::{DeleteOld, What};
use pillarbox_store::sagas::SagaFilter;
use pillarbox_store::{Actor, Operate, OperateError, Scope};
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, dead, event, retry};
use super::harness::Field;
use crate::{OPERATOR, operator_of};

/// The calls of the port, in its order.
fn calls() -> Vec<&'static str> {
    let source = include_str!("../../../pillarbox-store/src/operate.rs");
    let (_, port) = source.split_once("\npub trait Operate").expect("the port");
    let (port, _) = port.split_once("\n}\n").expect("its end");
    let lines = port.lines().filter_map(|line| line.strip_prefix("    async fn "));
    let calls: Vec<&str> = lines.filter_map(|line| line.split('(').next()).collect();
    assert!(calls.len() >= 18, "the port was read wrongly: {calls:?}");
    calls
}

/// Makes a call that matches nothing and changes nothing.
async fn call(operate: &dyn Operate, actor: &Actor, name: &str) -> Result<(), OperateError> {
    let ids = [Uuid::new_v4()];
    match name {
        "stats" => operate.stats(actor, &Scope::All).await.map(drop),
        "list" => operate.list(actor, &Filter::default()).await.map(drop),
        "show" => operate.show(actor, ids[0]).await.map(drop),
        "retry" => operate.retry(actor, &ids).await.map(drop),
        "delete" => operate.delete(actor, &ids).await.map(drop),
        "delete_old" => operate.delete_old(actor, &nothing_old()).await.map(drop),
        "restore" => operate.restore(actor, &[], true).await.map(drop),
        "blocked" => operate.blocked(actor, &Scope::All, 10).await.map(drop),
        "skip" => operate.skip(actor, &ids).await.map(drop),
        "destinations" => operate.destinations(actor, &Scope::All, &[]).await.map(drop),
        "pause" => operate.pause(actor, "nowhere", "a test").await,
        "resume" => operate.resume(actor, "elsewhere").await.map(drop),
        "workers" => operate.workers(actor).await.map(drop),
        "adopted_tables" => operate.adopted_tables(actor).await.map(drop),
        "retry_imports" => operate.retry_imports(actor, "none", None).await.map(drop),
        "sagas" => operate.sagas(actor, &SagaFilter::default()).await.map(drop),
        "saga" => operate.saga(actor, "order", "42").await.map(drop),
        "saga_log" => operate.saga_log(actor, "order", "42").await.map(drop),
        "ask_saga" => operate
            .ask_saga(actor, "order", "42", Ask::Resume)
            .await
            .map(drop),
        "audit" => operate.audit(actor, &AuditFilter::default()).await.map(drop),
        other => panic!("`Operate::{other}` has no arm in store_suite/tenants.rs"),
    }
}

/// No row is that old.
fn nothing_old() -> DeleteOld {
    DeleteOld {
        what: What::Delivered,
        older_than: Duration::from_secs(100 * 365 * 24 * 60 * 60),
        scope: Scope::All,
        batch: 100,
        after: None,
        dry_run: true,
        expected: 0,
    }
}

/// The permission that a call needs.
fn permission(name: &str) -> Permission {
    match name {
        "retry" | "skip" | "restore" | "pause" | "resume" | "retry_imports" | "ask_saga" => Permission::Write,
        "delete" | "delete_old" => Permission::Delete,
        "audit" => Permission::Audit,
        _ => Permission::Read,
    }
}

/// And one is enough.
pub async fn every_call_needs_its_permission(bench: Bench) -> Ran {
    let operate = bench.operate();
    let actor = |permissions: &[Permission]| {
        Actor::new(Kind::Service, "api", Reach::System, permissions.iter().copied())
    };
    for name in calls() {
        let needed = permission(name);
        let others: Vec<Permission> = Permission::ALL.into_iter().filter(|it| *it != needed).collect();
        match call(operate.as_ref(), &actor(&others), name).await {
            Err(OperateError::Forbidden(refused)) => {
                assert_eq!(refused.missing, Missing::Permission(needed), "{name}");
            }
            answer => panic!("{name}: {answer:?}"),
        }
        let allowed = call(operate.as_ref(), &actor(&[needed]), name).await;
        assert!(allowed.is_ok(), "{name}: {allowed:?}");
    }
    Ok(())
}

/// An outbox with rows of two tenants and of none, one after another, in every state.
struct Shared {
    bench: Bench,
    operate: std::sync::Arc<dyn Operate>,
    ours: Uuid,
    theirs: Uuid,
    us: Actor,
}

/// Rows of the same kind: ours, theirs, and one without a tenant.
type Trio = [Uuid; 3];

impl Shared {
    async fn fill(bench: Bench) -> Self {
        let (ours, theirs) = (Uuid::new_v4(), Uuid::new_v4());
        let shared = Self {
            operate: bench.operate(),
            us: operator_of(ours),
            ours,
            theirs,
            bench,
        };
        shared.waiting().await;
        shared.dead().await;
        shared.blocking().await;
        for (key, tenant) in [
            ("ours", theirs),
            ("ours", ours),
            ("theirs", ours),
            ("theirs", theirs),
        ] {
            let behind = event().ordering_key(key).tenant(tenant);
            shared.bench.put(behind).await;
        }
        shared.put(&|| event().destination("mail")).await;
        shared.bench.claim(1).await;
        shared
    }

    /// Puts one event for each.
    async fn put(&self, event: &dyn Fn() -> Event) -> Trio {
        let bench = &self.bench;
        [
            bench.put(event().tenant(self.ours)).await,
            bench.put(event().tenant(self.theirs)).await,
            bench.put(event()).await,
        ]
    }

    /// Rows that failed and wait.
    async fn waiting(&self) -> Trio {
        let trio = self.put(&|| event().destination("chat")).await;
        for delivery in self.bench.claim(100).await {
            self.bench.settle(&delivery, retry(100_000)).await;
        }
        trio
    }

    async fn dead(&self) -> Trio {
        let trio = self.put(&event).await;
        for delivery in self.bench.claim(100).await {
            self.bench.settle(&delivery, dead()).await;
        }
        trio
    }

    /// Dead rows that block their keys.
    async fn blocking(&self) -> Trio {
        let bench = &self.bench;
        let trio = [
            bench.put(event().ordering_key("ours").tenant(self.ours)).await,
            bench
                .put(event().ordering_key("theirs").tenant(self.theirs))
                .await,
            bench.put(event().ordering_key("none")).await,
        ];
        for delivery in bench.claim_keyed(100).await {
            bench.settle(&delivery, dead()).await;
        }
        trio
    }

    fn is_ours(&self, row: &Record) -> bool {
        row.tenant_id == Some(self.ours)
    }

    /// Runs a change of these rows as our actor: only ours is changed.
    async fn changes_ours(&self, name: &str, trio: Trio) {
        let bench = &self.bench;
        let before = [bench.show(trio[1]).await, bench.show(trio[2]).await];
        let asked = [trio[1], trio[0], Uuid::new_v4(), trio[2]];
        let changed = match name {
            "retry" => self.operate.retry(&self.us, &asked).await,
            "delete" => self.operate.delete(&self.us, &asked).await,
            _ => self.operate.skip(&self.us, &asked).await,
        };
        assert_eq!(changed.expect(name), [trio[0]], "{name}");
        assert_eq!(
            [bench.show(trio[1]).await, bench.show(trio[2]).await],
            before,
            "{name}"
        );
    }

    async fn counts(&self) {
        let stats = self.operate.stats(&self.us, &Scope::All).await.expect("stats");
        let ours = self.bench.rows().await;
        let count = |status: &str| {
            let ours = ours
                .iter()
                .filter(|row| self.is_ours(row) && row.status == status);
            ours.count() as u64
        };
        let expected = Stats {
            pending: count("pending"),
            processing: count("processing"),
            delivered: count("delivered"),
            dead: count("dead"),
            exact: true,
            ..Stats::default()
        };
        assert!(expected.pending > 0 && expected.dead > 0, "{expected:?}");
        let oldest = stats.oldest_pending_seconds;
        assert_eq!(
            stats,
            Stats {
                oldest_pending_seconds: oldest,
                ..expected
            }
        );
    }

    async fn lists(&self) {
        let all = self.bench.rows().await;
        let ours: BTreeSet<Uuid> = all
            .iter()
            .filter(|row| self.is_ours(row))
            .map(|row| row.id)
            .collect();
        let list = async |filter: Filter| -> BTreeSet<Uuid> {
            let listed = self.operate.list(&self.us, &filter).await.expect("a list");
            listed.iter().map(|row| row.id).collect()
        };
        let all_pages = Filter {
            limit: 1000,
            ..Filter::default()
        };
        assert_eq!(list(all_pages.clone()).await, ours);
        for row in &all {
            let by_event = Filter {
                event: Some(row.event.id),
                ..all_pages.clone()
            };
            assert_eq!(!list(by_event).await.is_empty(), self.is_ours(row), "{row:?}");
            let by_status = Filter {
                status: Some(row.status.as_str().into()),
                ..all_pages.clone()
            };
            assert_eq!(
                list(by_status).await.contains(&row.id),
                self.is_ours(row),
                "{row:?}"
            );
        }
    }

    async fn shows(&self) {
        for row in self.bench.rows().await {
            let shown = self.operate.show(&self.us, row.id).await.expect("a look");
            assert_eq!(shown.is_some(), self.is_ours(&row), "{row:?}");
        }
        let unknown = self.operate.show(&self.us, Uuid::new_v4()).await;
        assert_eq!(unknown.expect("a look"), None);
    }

    /// Rows of others behind ours are not counted.
    async fn lists_blocked_keys(&self) {
        let blocked = self.operate.blocked(&self.us, &Scope::All, 100).await;
        let blocked = blocked.expect("keys");
        let seen: Vec<(&str, u64)> = blocked
            .iter()
            .map(|key| (key.ordering_key.as_str(), key.behind))
            .collect();
        assert_eq!(seen, [("ours", 1)]);
        let all = self.operate.blocked(&OPERATOR, &Scope::All, 100).await;
        assert_eq!(all.expect("keys").len(), 3);
    }

    /// A pause is seen where we have rows, without its reason.
    async fn lists_destinations(&self) {
        for name in ["chat", "nowhere"] {
            let paused = self.operate.pause(&OPERATOR, name, "secret migration").await;
            paused.expect("pauses");
        }
        let found = self.operate.destinations(&self.us, &Scope::All, &[]).await;
        let found = found.expect("destinations");
        let seen: Vec<(&str, u64, Option<&str>)> = found
            .iter()
            .map(|to| {
                let reason = to.paused.as_ref().map(|paused| paused.reason.as_str());
                (to.name.as_str(), to.pending, reason)
            })
            .collect();
        let rows = self.bench.rows().await;
        let mail = rows
            .iter()
            .filter(|row| self.is_ours(row) && row.destination.as_deref() == Some("mail"))
            .filter(|row| row.status == "pending")
            .count() as u64;
        let expected = [("chat", 1, Some("")), ("mail", mail, None)];
        let expected: Vec<_> = expected
            .into_iter()
            .filter(|(_, pending, _)| *pending > 0)
            .collect();
        assert_eq!(seen, expected);
    }

    /// What all tenants share is forbidden, whether it exists or not.
    async fn is_forbidden(&self, name: &str) {
        match call(self.operate.as_ref(), &self.us, name).await {
            Err(OperateError::Forbidden(refused)) => {
                assert_eq!(refused.missing, Missing::SystemReach, "{name}");
            }
            answer => panic!("{name}: {answer:?}"),
        }
    }

    /// Each tenant sees what its own actors did.
    async fn lists_the_audit(&self) {
        let them = operator_of(self.theirs);
        let [ours, theirs, _] = self.dead().await;
        for (actor, id) in [(&self.us, ours), (&them, theirs)] {
            assert_eq!(self.operate.retry(actor, &[id]).await.expect("a retry"), [id]);
        }
        for (actor, id) in [(&self.us, ours), (&them, theirs)] {
            let lines = self.operate.audit(actor, &AuditFilter::default()).await;
            let lines = lines.expect("lines");
            assert!(lines.iter().all(|line| line.tenant_id == lines[0].tenant_id));
            assert_eq!(lines[0].objects, [id.to_string()]);
        }
    }
}

/// With the same answer as for a row that does not exist.
pub async fn an_actor_of_a_tenant_sees_and_changes_nothing_of_another(bench: Bench) -> Ran {
    bench.needs(&[Field::Tenant, Field::OrderingKey, Field::Destination])?;
    let shared = Shared::fill(bench).await;
    for name in calls() {
        match name {
            "stats" => shared.counts().await,
            "list" => shared.lists().await,
            "show" => shared.shows().await,
            "blocked" => shared.lists_blocked_keys().await,
            "retry" => shared.changes_ours(name, shared.dead().await).await,
            "delete" => shared.changes_ours(name, shared.waiting().await).await,
            "skip" => {
                let (us, scope) = (&shared.us, &Scope::All);
                let all = shared.operate.blocked(&OPERATOR, scope, 100).await.expect("keys");
                let head = |key: &str| all.iter().find(|it| it.ordering_key == key).expect(key).head;
                let trio = [head("ours"), head("theirs"), head("none")];
                shared.changes_ours(name, trio).await;
                let rest = shared.operate.blocked(us, scope, 100).await.expect("keys");
                assert!(rest.iter().all(|key| key.head != trio[0]), "{rest:?}");
            }
            "destinations" => shared.lists_destinations().await,
            "delete_old" | "restore" | "pause" | "resume" | "workers" | "adopted_tables"
            | "retry_imports" => {
                shared.is_forbidden(name).await;
            }
            // A saga has no tenant. The suite of sagas has the case with one that exists.
            "sagas" | "saga" | "saga_log" => {
                let found = call(shared.operate.as_ref(), &shared.us, name).await;
                assert!(found.is_ok(), "{name}: {found:?}");
            }
            "ask_saga" => {
                let asked = shared
                    .operate
                    .ask_saga(&shared.us, "order", "42", Ask::Resume)
                    .await;
                assert_eq!(asked.expect("asks"), AskResult::NotFound);
            }
            "audit" => shared.lists_the_audit().await,
            other => panic!("`Operate::{other}` has no arm in store_suite/tenants.rs"),
        }
    }
    Ok(())
}

/// Payload, headers and error texts.
pub async fn without_the_permission_content_is_hidden(bench: Bench) -> Ran {
    bench.needs(&[Field::Headers, Field::Json])?;
    let id = bench
        .put(
            event()
                .header("secret", "1")
                .json(&serde_json::json!({ "secret": 1 }))
                .expect("JSON"),
        )
        .await;
    let delivery = bench.claim_one().await;
    bench.settle(&delivery, retry(100)).await;
    let all = bench.show(id).await;
    assert!(all.payload.is_some() && all.last_error.is_some() && !all.headers.is_empty());
    let reader = Actor::new(Kind::Service, "api", Reach::System, [Permission::Read]);
    let operate = bench.operate();
    let shown = operate.show(&reader, id).await.expect("a look").expect("a row");
    let listed = operate.list(&reader, &Filter::default()).await.expect("a list");
    for row in [&shown, &listed[0]] {
        assert!(
            row.payload.is_none() && row.last_error.is_none() && row.headers.is_empty(),
            "{row:?}"
        );
        assert_eq!((row.id, row.attempts), (id, 1));
    }
    Ok(())
}
