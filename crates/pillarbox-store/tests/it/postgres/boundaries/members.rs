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
            denied.contains("may not enqueue this event: namespace \"billing\", no tenant"),
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

async fn lacks(harness: &PostgresHarness, duty: Duty, role: &str) -> Vec<String> {
    harness.store.lacks(&OPERATOR, duty, role).await.expect("checks")
}

#[tokio::test]
async fn a_check_lists_what_a_role_has_beyond_its_duties() {
    let harness = PostgresHarness::direct().await;
    for duty in Duty::ALL {
        let (role, store) = on_duty(&harness, duty).await;
        assert_eq!(beyond(&harness, duty, &role).await, [""; 0], "{duty:?}");
        assert_eq!(lacks(&harness, duty, &role).await, [""; 0], "{duty:?}");
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
    let revoke = "revoke execute on function pillarbox.ids_taken from ROLE".replace("ROLE", &role);
    harness.execute(&revoke).await;
    assert_eq!(
        lacks(&harness, Duty::Producer, &role).await,
        ["execute on ids_taken"]
    );
    let lacking = lacks(&harness, Duty::Writer, &role).await;
    assert!(
        lacking.contains(&"its row of role_bounds".to_owned()),
        "{lacking:?}"
    );
    assert!(
        !lacking.contains(&"usage on the schema".to_owned()),
        "{lacking:?}"
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

#[tokio::test]
async fn a_check_lists_what_a_role_may_become() {
    let harness = PostgresHarness::direct().await;
    let owner = format!("o_{}", Uuid::new_v4().simple());
    harness.execute(&format!("create role {owner} nologin")).await;
    let given = harness.store.migrate_for(&OPERATOR, &owner).await;
    given.expect("gives it");
    let (dispatcher, dispatcher_store) = on_duty(&harness, Duty::Dispatcher).await;
    let (role, store) = on_duty(&harness, Duty::Producer).await;
    let joins = "everything: it may join every role that is no superuser (createrole)";
    let member = format!("everything: it is a member of {owner}, the owner of the outbox");
    let super_user = format!("s_{}", Uuid::new_v4().simple());
    harness
        .execute(&format!(
            "create role {super_user} superuser; create role c_{role} createrole"
        ))
        .await;
    for (change, expected, back) in [
        (
            "alter role ROLE createrole".to_owned(),
            joins.to_owned(),
            "alter role ROLE nocreaterole".to_owned(),
        ),
        (
            format!("grant c_{role} to ROLE"),
            format!("{joins} (set role c_{role})"),
            format!("revoke c_{role} from ROLE"),
        ),
        (
            format!("grant {owner} to ROLE"),
            member.clone(),
            format!("revoke {owner} from ROLE"),
        ),
        (
            format!("alter role ROLE noinherit; grant {owner} to ROLE"),
            member,
            format!("alter role ROLE inherit; revoke {owner} from ROLE"),
        ),
        (
            format!("grant {super_user} to ROLE"),
            format!("everything: it is a superuser (set role {super_user})"),
            format!("revoke {super_user} from ROLE"),
        ),
        (
            "alter role ROLE bypassrls".to_owned(),
            "the rows of others: it bypasses row-level security".to_owned(),
            "alter role ROLE nobypassrls".to_owned(),
        ),
        (
            "grant pg_read_all_stats to ROLE".to_owned(),
            "the statements of others: it may read all statistics".to_owned(),
            "revoke pg_read_all_stats from ROLE".to_owned(),
        ),
    ] {
        harness.execute(&change.replace("ROLE", &role)).await;
        assert_eq!(
            beyond(&harness, Duty::Producer, &role).await,
            [&*expected],
            "{change}"
        );
        let unbound = store.unbound().await.expect("asks");
        let expected = expected.strip_prefix("everything: ").map(str::to_owned);
        assert_eq!(unbound, expected.into_iter().collect::<Vec<_>>(), "{change}");
        harness.execute(&back.replace("ROLE", &role)).await;
    }
    // A member that inherits nothing sets its role.
    harness
        .execute(&format!(
            "alter role {role} noinherit; grant {dispatcher} to {role}"
        ))
        .await;
    let listed = beyond(&harness, Duty::Producer, &role).await;
    assert!(
        listed.contains(&format!("update on outbox_events (set role {dispatcher})")),
        "{listed:?}"
    );
    harness
        .execute(&format!("drop role {super_user}, c_{role}"))
        .await;
    leave(&harness, &role, store).await;
    leave(&harness, &dispatcher, dispatcher_store).await;
    harness.clean_up().await;
    drop_role(&harness, &owner).await;
}

/// The privileges went with the role, and so do the bounds: otherwise its membership in another producer would lend them life.
#[tokio::test]
async fn a_role_that_is_created_again_has_no_bounds_of_the_dropped_one() {
    let harness = PostgresHarness::direct().await;
    let (shop, shop_store) = on_duty(&harness, Duty::Producer).await;
    let (role, store) = bound(&harness, Duty::Producer, &Bounds::namespaces(["billing"])).await;
    let bounds = Bounds {
        names: None,
        ..Bounds::default()
    };
    let granted = harness
        .store
        .grant(&OPERATOR, Duty::Consumer, &bounds, &role, false)
        .await;
    granted.expect("grants");
    assert_eq!(code(&harness, &store, BILLING).await, None);
    store.close().await;
    drop_role(&harness, &role).await;
    harness
        .execute(&format!("create role {role} login; grant {shop} to {role}"))
        .await;
    let again = harness.sql("select count(*) from pillarbox.role_bounds where role = to_regrole($1)");
    let stale = async || -> i64 {
        let counted = sqlx::query_scalar(AssertSqlSafe(again.clone())).bind(&role);
        counted.fetch_one(&harness.pool).await.expect("counts")
    };
    assert_eq!(stale().await, 0);
    let as_role = |call: &str| format!("set local role {role}; {call}");
    assert_eq!(code(&harness, &harness.store, &as_role(SHOP)).await, None);
    assert_eq!(
        code(&harness, &harness.store, &as_role(BILLING)).await.as_deref(),
        Some("42501")
    );

    // Nor does it get back the privileges of its namesake when one duty is revoked.
    let bounds = Bounds::names(["order"]);
    let granted = harness
        .store
        .grant(&OPERATOR, Duty::Orchestrator, &bounds, &role, false)
        .await;
    granted.expect("grants");
    harness
        .store
        .revoke(&OPERATOR, Duty::Orchestrator, &role)
        .await
        .expect("revokes");
    let mark = "insert into pillarbox.inbox (consumer, event_id) values ('c', gen_random_uuid())";
    assert_eq!(
        code(&harness, &harness.store, &as_role(mark)).await.as_deref(),
        Some("42501")
    );
    let all = harness.sql("select count(*) from pillarbox.role_bounds");
    let left: i64 = sqlx::query_scalar(AssertSqlSafe(all))
        .fetch_one(&harness.pool)
        .await
        .expect("counts");
    assert_eq!(left, 1, "only that of the other producer");

    // A renamed role keeps its own.
    harness
        .execute(&format!("alter role {shop} rename to new_{shop}"))
        .await;
    let renamed = format!("set local role new_{shop}; {SHOP}");
    assert_eq!(code(&harness, &harness.store, &renamed).await, None);
    shop_store.close().await;
    drop_role(&harness, &role).await;
    drop_role(&harness, &format!("new_{shop}")).await;
    harness.clean_up().await;
}
