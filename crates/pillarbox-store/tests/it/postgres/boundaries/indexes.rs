//! PostgreSQL runs the functions of an index as the owner of its table, in the session of a superuser.

use pillarbox_store::stores::postgres::{Bounds, Duty};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;
use uuid::Uuid;

use super::super::harness::PostgresHarness;
use super::super::privileges::{bound, drop_role, on_duty};
use super::{code, leave};

/// An outbox whose owner cannot log in.
async fn owned() -> (PostgresHarness, String) {
    let harness = PostgresHarness::direct().await;
    let owner = format!("o_{}", Uuid::new_v4().simple());
    harness.execute(&format!("create role {owner} nologin")).await;
    let given = harness.store.migrate_for(&OPERATOR, &owner).await;
    given.expect("gives it");
    (harness, owner)
}

/// Lets a superuser analyse a table of the role with an index that runs this statement. Returns the code of the error.
async fn analysed(harness: &PostgresHarness, role: &str, statement: &str) -> Option<String> {
    let home = format!("home_{role}");
    let table = format!(
            "create schema {home};
             create function {home}.run() returns void language plpgsql as $$ begin end $$;
             create function {home}.key(n int) returns int language plpgsql immutable as
               $$ begin perform {home}.run(); return n; end $$;
             create table {home}.bait (n int);
             create index on {home}.bait ({home}.key(n));
             insert into {home}.bait values (1);
             create or replace function {home}.run() returns void language plpgsql as $$ begin {statement}; end $$;
             grant usage on schema {home} to {role};
             alter table {home}.bait owner to {role}"
    );
    harness.execute(&table).await;
    let analysed = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("analyze {home}.bait")))
        .execute(&harness.pool)
        .await;
    harness.execute(&format!("drop schema {home} cascade")).await;
    let error = analysed.err()?;
    let error = error.as_database_error().expect("by the database");
    Some(error.code().expect("has a code").into_owned())
}

#[tokio::test]
async fn an_index_of_a_producer_enqueues_nothing_when_a_superuser_analyses_it() {
    let (harness, owner) = owned().await;
    let (role, store) = on_duty(&harness, Duty::Producer).await;
    for call in [
        "perform pillarbox.enqueue('billing', 'orders')",
        r#"perform pillarbox.enqueue_many('[{"namespace": "billing", "topic": "orders"}]')"#,
        // Nobody is asked for: the session is the superuser's.
        "perform pillarbox.enqueue('shop', 'orders')",
    ] {
        let refused = analysed(&harness, &role, call).await;
        assert_eq!(refused.as_deref(), Some("42501"), "{call}");
    }
    let empty = "select 1 / (count(*) = 0)::int from pillarbox.outbox_events";
    assert_eq!(code(&harness, &harness.store, empty).await, None);
    leave(&harness, &role, store).await;
    harness.clean_up().await;
    drop_role(&harness, &owner).await;
}

#[tokio::test]
async fn an_index_of_a_consumer_has_its_bounds_when_a_superuser_analyses_it() {
    let (harness, owner) = owned().await;
    let (other, other_store) = bound(&harness, Duty::Consumer, &Bounds::names(["ledger"])).await;
    let (role, store) = bound(&harness, Duty::Consumer, &Bounds::names(["letters"])).await;
    let mark = "insert into pillarbox.inbox (consumer, event_id) values ('NAME', gen_random_uuid())";
    let forged = analysed(&harness, &role, &mark.replace("NAME", "ledger")).await;
    assert_eq!(forged.as_deref(), Some("42501"));
    let own = analysed(&harness, &role, &mark.replace("NAME", "letters")).await;
    assert_eq!(own, None);
    // The functions that remove marks ask for the role of the session, which is nobody's here.
    for call in [
        "perform pillarbox.unmark('letters', '{}')",
        "perform pillarbox.prune_inbox('ledger', '0', 10)",
    ] {
        let refused = analysed(&harness, &role, call).await;
        assert_eq!(refused.as_deref(), Some("42501"), "{call}");
    }
    leave(&harness, &role, store).await;
    leave(&harness, &other, other_store).await;
    harness.clean_up().await;
    drop_role(&harness, &owner).await;
}

#[tokio::test]
async fn an_index_of_an_orchestrator_has_its_bounds_when_a_superuser_analyses_it() {
    let (harness, owner) = owned().await;
    let (other, other_store) = bound(&harness, Duty::Orchestrator, &Bounds::names(["refund"])).await;
    let (role, store) = bound(&harness, Duty::Orchestrator, &Bounds::names(["order"])).await;
    harness
        .execute(
            "insert into pillarbox.sagas (name, id, namespace, topic, status, path, attempt, tries, data, attempt_secret, own_token)
             values ('refund', '1', 'sagas', 'sagas', 'running', '[]', 1, 0, '{}', 'secret', 'secret')",
        )
        .await;
    let log = "insert into pillarbox.saga_log (saga, what) values (1, 'forged')";
    assert_eq!(analysed(&harness, &role, log).await.as_deref(), Some("42501"));
    let seen = "perform 1 / (count(*) = 0)::int from pillarbox.sagas";
    assert_eq!(analysed(&harness, &role, seen).await, None);
    leave(&harness, &role, store).await;
    leave(&harness, &other, other_store).await;
    harness.clean_up().await;
    drop_role(&harness, &owner).await;
}

#[tokio::test]
async fn a_superuser_that_does_not_own_the_outbox_says_for_whom_it_enqueues() {
    let (harness, owner) = owned().await;
    let call = "select id from pillarbox.enqueue('shop', 'orders')";
    let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(harness.sql(call)))
        .execute(&harness.pool)
        .await
        .expect_err("is refused");
    let refused = refused.into_database_error().expect("by the database");
    let refused = refused.downcast_ref::<sqlx::postgres::PgDatabaseError>();
    assert_eq!(refused.code(), "42501");
    assert!(
        refused
            .message()
            .starts_with("role \"pillarbox\" may not enqueue"),
        "{refused}"
    );
    let hint = refused.hint().expect("has a hint");
    assert!(hint.contains(&format!("set role {owner}")), "{hint}");
    let as_owner = format!("set local role {owner}; {call}");
    assert_eq!(code(&harness, &harness.store, &as_owner).await, None);
    assert!(
        !harness.store.may_call_functions().await.expect("asks"),
        "an INSERT needs no role"
    );
    harness.clean_up().await;
    drop_role(&harness, &owner).await;
}
