//! Whose bounds count: of memberships, of SET ROLE and inside functions of others; and what an answer tells.

use pillarbox_store::stores::postgres::{Bounds, Duty};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::super::harness::PostgresHarness;
use super::super::privileges::{as_role, bound, drop_role, on_duty};
use super::{code, leave, shop};

const SHOP: &str = "select id from pillarbox.enqueue('shop', 'orders')";
const BILLING: &str = "select id from pillarbox.enqueue('billing', 'orders')";

#[tokio::test]
async fn a_member_of_producers_has_the_bounds_of_each() {
    let harness = PostgresHarness::direct().await;
    let (shop, shop_store) = bound(&harness, Duty::Producer, &Bounds::namespaces(["shop"])).await;
    let (billing, billing_store) = bound(&harness, Duty::Producer, &Bounds::namespaces(["billing"])).await;
    let (member, store) = as_role(&harness, &format!("grant {shop}, {billing} to ROLE")).await;
    assert_eq!(code(&harness, &store, SHOP).await, None);
    assert_eq!(code(&harness, &store, BILLING).await, None);
    let other = "select id from pillarbox.enqueue('other', 'orders')";
    assert_eq!(code(&harness, &store, other).await.as_deref(), Some("42501"));

    // As one of them it is only that one.
    let as_shop = |call: &str| format!("set local role {shop}; {call}");
    assert_eq!(code(&harness, &store, &as_shop(SHOP)).await, None);
    assert_eq!(
        code(&harness, &store, &as_shop(BILLING)).await.as_deref(),
        Some("42501")
    );
    leave(&harness, &member, store).await;
    leave(&harness, &shop, shop_store).await;
    leave(&harness, &billing, billing_store).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn a_superuser_that_sets_its_role_is_bound_as_that_role() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Producer).await;
    assert_eq!(code(&harness, &harness.store, BILLING).await, None);
    let bound = format!("set local role {role}; {BILLING}");
    assert_eq!(
        code(&harness, &harness.store, &bound).await.as_deref(),
        Some("42501")
    );
    leave(&harness, &role, store).await;
    harness.clean_up().await;
}

/// Behind a pooler the bounds are those of the role with which the pooler logs in, unless the transaction sets its role.
#[tokio::test]
async fn a_role_behind_a_pooler_is_the_one_that_the_transaction_sets() {
    let harness = PostgresHarness::behind_pgbouncer().await;
    let (role, store) = on_duty(&harness, Duty::Producer).await;
    let bound = format!("set local role {role}; {BILLING}");
    assert_eq!(
        code(&harness, &harness.store, &bound).await.as_deref(),
        Some("42501")
    );
    let bound = format!("set local role {role}; {SHOP}");
    assert_eq!(code(&harness, &harness.store, &bound).await, None);
    assert_eq!(
        code(&harness, &harness.store, BILLING).await,
        None,
        "it lasts no longer"
    );
    leave(&harness, &role, store).await;
    harness.clean_up().await;
}

/// A function of others that runs as its owner needs both: the owner's permission to call, and the caller's bounds.
#[tokio::test]
async fn a_function_that_runs_as_another_producer_does_not_lend_its_bounds() {
    let harness = PostgresHarness::direct().await;
    let (billing, billing_store) = bound(&harness, Duty::Producer, &Bounds::namespaces(["billing"])).await;
    let (shop, store) = on_duty(&harness, Duty::Producer).await;
    let home = format!("home_{billing}");
    harness
        .execute(&format!(
            "create schema {home} authorization {billing}; grant usage on schema {home} to {shop};
             create function {home}.bill() returns uuid language sql security definer as 'select id from pillarbox.enqueue(''billing'', ''orders'')';
             alter function {home}.bill owner to {billing}"
        ))
        .await;
    let lent = code(&harness, &store, &format!("select {home}.bill()")).await;
    assert_eq!(lent.as_deref(), Some("42501"));
    assert_eq!(
        code(&harness, &billing_store, &format!("select {home}.bill()")).await,
        None
    );
    harness.execute(&format!("drop schema {home} cascade")).await;
    leave(&harness, &shop, store).await;
    leave(&harness, &billing, billing_store).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn the_answer_about_a_duplicate_tells_nothing_of_other_namespaces() {
    let harness = PostgresHarness::direct().await;
    let (id, own) = (Uuid::now_v7(), Uuid::now_v7());
    harness
        .execute(&format!(
            "insert into pillarbox.outbox_events (id, namespace, topic, payload, dedupe_key, tenant_id)
             values ('{id}', 'billing', 'orders', '{{}}', 'there', null), ('{own}', 'shop', 'orders', '{{}}', null, '{}')",
            super::TENANT
        ))
        .await;
    let (role, store) = shop(&harness).await;
    let ask = async |call: &str| {
        let answer = sqlx::raw_sql(AssertSqlSafe(harness.sql(call)))
            .execute(&store.pool())
            .await;
        answer.expect_err("is denied").to_string()
    };
    for call in [
        "select * from pillarbox.enqueue('billing', 'orders', dedupe_key => 'there')",
        r#"select * from pillarbox.enqueue_many('[{"namespace": "billing", "topic": "orders", "dedupe_key": "there"}]')"#,
    ] {
        let denied = ask(call).await;
        assert!(
            denied.contains("may not enqueue in namespace \"billing\" without a tenant"),
            "{denied}"
        );
        assert_eq!(denied, ask(&call.replace("there", "not-there")).await);
    }
    let taken: Vec<Uuid> = sqlx::query_scalar(AssertSqlSafe(harness.sql("select pillarbox.ids_taken($1)")))
        .bind(vec![id, own, Uuid::now_v7()])
        .fetch_all(&store.pool())
        .await
        .expect("may ask");
    assert_eq!(taken, [own]);
    leave(&harness, &role, store).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn a_grant_replaces_bounds_and_a_revoke_leaves_the_other_duties() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Producer).await;
    let grant = async |duty, bounds: &Bounds| {
        let granted = harness.store.grant(&OPERATOR, duty, bounds, &role, false).await;
        assert!(!granted.expect("grants"));
    };
    grant(Duty::Producer, &Bounds::namespaces(["billing"])).await;
    assert_eq!(code(&harness, &store, SHOP).await.as_deref(), Some("42501"));
    assert_eq!(code(&harness, &store, BILLING).await, None);

    grant(Duty::Consumer, &Bounds::names(["c"])).await;
    let mark = "insert into pillarbox.inbox (consumer, event_id) values ('c', gen_random_uuid())";
    assert_eq!(code(&harness, &store, mark).await, None);
    harness
        .store
        .revoke(&OPERATOR, Duty::Producer, &role)
        .await
        .expect("revokes");
    assert_eq!(code(&harness, &store, BILLING).await.as_deref(), Some("42501"));
    assert_eq!(code(&harness, &store, mark).await, None);
    assert_eq!(beyond(&harness, Duty::Consumer, &role).await, [""; 0]);
    harness
        .store
        .revoke(&OPERATOR, Duty::Consumer, &role)
        .await
        .expect("revokes");
    assert_eq!(code(&harness, &store, mark).await.as_deref(), Some("42501"));
    leave(&harness, &role, store).await;
    harness.clean_up().await;
}

async fn beyond(harness: &PostgresHarness, duty: Duty, role: &str) -> Vec<String> {
    harness.store.beyond(&OPERATOR, duty, role).await.expect("checks")
}

#[tokio::test]
async fn a_check_lists_what_a_role_has_beyond_its_duties() {
    let harness = PostgresHarness::direct().await;
    for duty in Duty::ALL {
        let (role, store) = on_duty(&harness, duty).await;
        assert_eq!(beyond(&harness, duty, &role).await, [""; 0], "{duty:?}");
        leave(&harness, &role, store).await;
    }
    // Nobody but the owner reads the audit.
    let (role, store) = on_duty(&harness, Duty::Dispatcher).await;
    harness
        .execute(&format!("grant select on pillarbox.audit to {role}"))
        .await;
    assert_eq!(
        beyond(&harness, Duty::Dispatcher, &role).await,
        ["select on audit"]
    );
    leave(&harness, &role, store).await;
    let (role, store) = on_duty(&harness, Duty::Producer).await;
    let (other, other_store) = as_role(&harness, "grant pg_read_all_data to ROLE").await;
    harness
        .execute(&format!(
            "grant delete, select (payload) on pillarbox.outbox_events to {role};
             grant execute on function pillarbox.trace to {role}; grant usage on sequence pillarbox.outbox_seq to {role};
             grant create on schema {} to {role}",
            harness.store.schema()
        ))
        .await;
    assert_eq!(
        beyond(&harness, Duty::Producer, &role).await,
        [
            "create on the schema",
            "delete on outbox_events",
            "execute on trace",
            "select (payload) on outbox_events",
            "usage on outbox_seq",
        ]
    );
    let read = beyond(&harness, Duty::Producer, &other).await;
    assert!(read.contains(&"select on sagas".to_owned()), "{read:?}");
    harness.execute(&format!("alter role {role} superuser")).await;
    assert_eq!(
        beyond(&harness, Duty::Producer, &role).await,
        ["everything: it is a superuser"]
    );
    let unknown = harness
        .store
        .beyond(&OPERATOR, Duty::Writer, "no_such_role")
        .await;
    assert!(
        unknown
            .expect_err("is not there")
            .to_string()
            .contains("does not exist")
    );
    leave(&harness, &other, other_store).await;
    store.close().await;
    drop_role(&harness, &role).await;
    harness.clean_up().await;
}
