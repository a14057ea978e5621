//! A connection keeps no tenant, whatever becomes of the call that set it.

use std::time::Duration;

use pillarbox_store::operate::Filter;
use pillarbox_store::stores::postgres::{Options, Postgres};
use pillarbox_store::{Operate, Scope};
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::store_suite::Harness;
use pillarbox_testkit::wait::until;
use pillarbox_testkit::{OPERATOR, operator_of};
use sqlx::AssertSqlSafe;

use super::super::harness::PostgresHarness;
use super::secured::{OTHER_TENANT, Secured, TENANT, event};

/// The tenant that a connection has outside of the store's transactions.
async fn left_on(store: &Postgres) -> String {
    let text = "select coalesce(current_setting('pillarbox.tenant', true), '')";
    let left = sqlx::raw_sql(text).fetch_one(&store.pool()).await;
    sqlx::Row::get(&left.expect("asks"), 0)
}

/// The same outbox as the role of an API, with one connection.
fn with_one_connection(secured: &Secured) -> Postgres {
    let url = variable("PILLARBOX_TEST_POSTGRES_URL").replace("pillarbox@", &format!("{}@", secured.api.0));
    let options = Options {
        schema: secured.harness.store.schema().to_owned(),
        max_connections: 1,
        ..Options::default()
    };
    Postgres::new(&url, options).expect("a URL")
}

#[tokio::test]
async fn a_connection_of_a_dropped_call_carries_no_tenant() {
    let secured = Secured::open().await;
    let of = async |tenant| {
        let enqueued = secured.enqueue(&[event().tenant(tenant)]).await;
        enqueued.expect("enqueues")[0].id()
    };
    let (ours, theirs) = (of(TENANT).await, of(OTHER_TENANT).await);
    let api = with_one_connection(&secured);
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&api.pool())
        .await
        .expect("asks");

    // The call waits for a row that another session holds, with its tenant set.
    let mut holder = secured.harness.pool.begin().await.expect("begins");
    let lock = secured
        .harness
        .sql("select id from pillarbox.outbox_events where id = ");
    sqlx::raw_sql(AssertSqlSafe(format!("{lock} '{ours}' for update")))
        .execute(&mut *holder)
        .await
        .expect("locks");
    let actor = operator_of(TENANT);
    let waits = async || {
        let waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1";
        let waits: Option<bool> = sqlx::query_scalar(waits)
            .bind(pid)
            .fetch_one(&secured.harness.pool)
            .await
            .expect("asks");
        waits.unwrap_or_default()
    };
    tokio::select! {
        _ = api.retry(&actor, std::slice::from_ref(&ours)) => panic!("the row is locked"),
        () = until("the call waits for the lock", waits) => {}
    }
    holder.rollback().await.expect("rolls back");

    // It was dropped. The same connection serves the next callers.
    assert_eq!(left_on(&api).await, "");
    assert_eq!(api.list(&OPERATOR, &Filter::default()).await.expect("lists"), []);
    let listed = api.list(&operator_of(OTHER_TENANT), &Filter::default()).await;
    let listed: Vec<_> = listed.expect("lists").iter().map(|row| row.id).collect();
    assert_eq!(listed, [theirs]);
    let same: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&api.pool())
        .await
        .expect("asks");
    assert_eq!(same, pid, "it is the same connection");
    api.close().await;
    secured.clean_up().await;
}

#[tokio::test]
async fn a_transaction_of_a_program_that_is_dropped_carries_no_tenant_on() {
    let secured = Secured::open().await;
    secured.interleave(1).await;
    let api = with_one_connection(&secured);
    let pool = api.pool();
    let count = secured
        .harness
        .sql("select count(*) from pillarbox.outbox_events");
    let mut transaction = pool.begin().await.expect("begins");
    let set = format!("set local pillarbox.tenant = '{TENANT}'");
    sqlx::raw_sql(AssertSqlSafe(set))
        .execute(&mut *transaction)
        .await
        .expect("sets");
    let seen: i64 = sqlx::query_scalar(AssertSqlSafe(count.clone()))
        .fetch_one(&mut *transaction)
        .await
        .expect("counts");
    assert_eq!(seen, 1);
    // In the middle of a statement.
    let sleeping = tokio::time::timeout(
        Duration::from_millis(50),
        sqlx::raw_sql("select pg_sleep(1)").execute(&mut *transaction),
    );
    assert!(sleeping.await.is_err());
    drop(transaction);
    assert_eq!(left_on(&api).await, "");
    let seen: i64 = sqlx::query_scalar(AssertSqlSafe(count))
        .fetch_one(&pool)
        .await
        .expect("counts");
    assert_eq!(seen, 0);
    api.close().await;
    secured.clean_up().await;
}

#[tokio::test]
async fn clients_of_a_pooler_get_no_tenant_of_each_other() {
    let harness = PostgresHarness::behind_pgbouncer().await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..24_u32 {
        let store = harness.store.clone();
        calls.spawn(async move {
            let tenant = if number % 2 == 0 { TENANT } else { OTHER_TENANT };
            for _ in 0..5 {
                let counted = store.stats(&operator_of(tenant), &Scope::All).await;
                counted.expect("counts");
                assert_eq!(left_on(&store).await, "");
            }
        });
    }
    while let Some(done) = calls.join_next().await {
        done.expect("no tenant is left");
    }
    harness.clean_up().await;
}
