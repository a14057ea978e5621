//! Cases of the suite of stores, as the roles of an API, a dispatcher and a writer, with row-level security on.

mod suite {
    use super::super::secured::Secured;

    pillarbox_testkit::store_suite! { @cases Secured::fresh;
        tenants::every_call_needs_its_permission
        tenants::an_actor_of_a_tenant_sees_and_changes_nothing_of_another
        tenants::without_the_permission_content_is_hidden
        auditing::a_change_writes_one_line
        auditing::each_kind_of_change_has_its_line
        auditing::lines_are_filtered_and_come_in_pages
        operating::stats_count_each_state
        operating::list_gives_the_newest_first_in_pages
        operating::list_filters
        operating::show_gives_the_payload
        operating::a_manual_retry_makes_dead_and_pending_rows_due
        operating::a_manual_retry_leaves_delivered_and_leased_rows_alone
        operating::delete_leaves_leased_rows_alone
        operating::check_accepts_a_fresh_outbox
    }
}

use pillarbox::saga::{Ask, AskResult, Saga, Step};
use pillarbox_store::actor::{Kind, Permission, Reach};
use pillarbox_store::audit::AuditFilter;
use pillarbox_store::operate::{Filter, Stats};
use pillarbox_store::sagas::SagaFilter;
use pillarbox_store::stores::postgres::{Bounds, Duty};
use pillarbox_store::{Actor, Operate, OperateError, Scope};
use pillarbox_testkit::store_suite::Harness;
use pillarbox_testkit::{OPERATOR, operator_of};
use uuid::Uuid;

use super::super::privileges::{bound, drop_role};
use super::secured::{OTHER_TENANT, Secured, TENANT, event};

#[tokio::test]
async fn an_api_that_sets_no_tenant_sees_no_row_and_changes_none() {
    let secured = Secured::open().await;
    secured.interleave(2).await;
    let ids = [secured
        .enqueue(&[event().tenant(TENANT)])
        .await
        .expect("enqueues")[0]
        .id()];
    // An actor for all tenants, by mistake on the connection of a tenant.
    let store = &secured.api.1;
    let stats = store.stats(&OPERATOR, &Scope::All).await.expect("counts");
    assert_eq!(
        stats,
        Stats {
            exact: true,
            ..Stats::default()
        }
    );
    assert_eq!(
        store.list(&OPERATOR, &Filter::default()).await.expect("lists"),
        []
    );
    assert_eq!(store.show(&OPERATOR, ids[0]).await.expect("looks"), None);
    let none: [Uuid; 0] = [];
    assert_eq!(store.retry(&OPERATOR, &ids).await.expect("retries nothing"), none);
    assert_eq!(store.skip(&OPERATOR, &ids).await.expect("skips nothing"), none);
    assert_eq!(
        store.delete(&OPERATOR, &ids).await.expect("deletes nothing"),
        none
    );
    let lines = store.audit(&OPERATOR, &AuditFilter::default()).await;
    assert_eq!(lines.expect("lists"), []);
    let nobody = Actor::new(Kind::Service, "api", Reach::Tenant(Uuid::nil()), Permission::ALL);
    let refused = store.stats(&nobody, &Scope::All).await.expect_err("is refused");
    assert!(matches!(refused, OperateError::Forbidden(_)), "{refused}");
    secured.clean_up().await;
}

#[tokio::test]
async fn a_tenant_of_a_large_outbox_counts_its_own_rows() {
    let secured = Secured::open().await;
    secured
        .harness
        .execute(&format!(
            "insert into pillarbox.outbox_events (namespace, topic, payload, tenant_id, status, delivered_at)
             select 'shop', 'orders', '{{}}', '{OTHER_TENANT}', 'delivered', now() from generate_series(1, 110000);
             insert into pillarbox.outbox_events (namespace, topic, payload, tenant_id)
             select 'shop', 'orders', '{{}}', '{TENANT}' from generate_series(1, 3)"
        ))
        .await;
    let operate = secured.operate();
    let ours = operate.stats(&operator_of(TENANT), &Scope::All).await;
    let ours = ours.expect("counts");
    assert_eq!((ours.pending, ours.delivered, ours.exact), (3, 0, true));
    let theirs = operate.stats(&operator_of(OTHER_TENANT), &Scope::All).await;
    let theirs = theirs.expect("counts");
    assert_eq!((theirs.pending, theirs.exact), (0, false));
    assert!((100_000..=110_000).contains(&theirs.delivered), "{theirs:?}");
    secured.clean_up().await;
}

#[tokio::test]
async fn the_role_for_all_tenants_sees_sagas_and_sends_requests_to_them() {
    let secured = Secured::open().await;
    let harness = &secured.harness;
    // From this grant on, the policies of orchestrators count.
    let (role, store) = bound(harness, Duty::Orchestrator, &Bounds::names(["order"])).await;
    let producer = Bounds::namespaces(["shop", "sagas"]);
    let granted = harness
        .store
        .grant(&OPERATOR, Duty::Producer, &producer, &role, false)
        .await;
    granted.expect("grants");
    let step = Step::new("payment", |_: &u32| event());
    let saga = Saga::define("order")
        .step(step)
        .build(&harness.outbox().by_function());
    let mut transaction = store.pool().begin().await.expect("begins");
    let started = saga.expect("sound").start(&mut transaction, 1, &1).await;
    started.expect("starts");
    transaction.commit().await.expect("commits");

    let operate = secured.operate();
    let sagas = operate.sagas(&OPERATOR, &SagaFilter::default()).await;
    assert_eq!(sagas.expect("lists").len(), 1);
    let log = operate.saga_log(&OPERATOR, "order", "1").await;
    assert!(!log.expect("lists").is_empty());
    let asked = operate.ask_saga(&OPERATOR, "order", "1", Ask::Compensate).await;
    assert!(matches!(asked, Ok(AskResult::Enqueued(_))), "{asked:?}");
    store.close().await;
    drop_role(harness, &role).await;
    secured.clean_up().await;
}
