//! No statement runs on after its client gave up.

use std::time::Duration;

use pillarbox::{Event, StoreError};
use pillarbox_store::store::{Heartbeat, LaneRequest, SweepRequest};
use pillarbox_store::stores::postgres::{Options, Postgres};
use pillarbox_store::{Operate, Scope, Store};
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::store_suite::Harness;
use uuid::Uuid;

use super::harness::PostgresHarness;
use super::producer::share;
use pillarbox_testkit::{OPERATOR, store_error};

/// A worker whose server gives a statement two and a half seconds, and a lock one.
fn hurried(harness: &PostgresHarness, url: &str) -> Postgres {
    let options = Options {
        schema: harness.store.schema().to_owned(),
        timeout: Duration::from_secs(3),
        ..Options::default()
    };
    Postgres::new(&variable(url), options).expect("a sound URL")
}

fn heartbeat() -> Heartbeat {
    Heartbeat {
        worker: Uuid::new_v4(),
        ttl: Duration::from_secs(15),
        ..Heartbeat::default()
    }
}

fn sweep() -> SweepRequest {
    SweepRequest {
        worker: Uuid::new_v4(),
        scope: Scope::All,
        max_attempts: 25,
        grace: Duration::ZERO,
        excluded: Vec::new(),
    }
}

fn lanes() -> LaneRequest {
    LaneRequest {
        worker: Uuid::new_v4(),
        backlogs: vec![share(1).backlog],
        ranges: 32,
        new_ranges: 32,
        lease: Duration::from_secs(60),
        release: Vec::new(),
    }
}

/// How many sessions are at work on this outbox.
async fn working(harness: &PostgresHarness) -> i64 {
    let count = "select count(*) from pg_stat_activity
         where state <> 'idle' and pid <> pg_backend_pid() and query like '%' || $1 || '%'";
    let working = sqlx::query_scalar(count)
        .bind(harness.store.schema())
        .fetch_one(&harness.pool);
    working.await.expect("counts")
}

fn assert_ended_by_server<T: std::fmt::Debug>(what: &str, answer: Result<T, StoreError>, code: &str) {
    match answer {
        Err(StoreError::Unavailable(why)) if why.ends_with(code) => {}
        other => panic!("{what}: {other:?}"),
    }
}

#[tokio::test]
async fn every_statement_that_waits_for_a_lock_is_ended_by_the_server() {
    for url in ["PILLARBOX_TEST_POSTGRES_URL", "PILLARBOX_TEST_PGBOUNCER_URL"] {
        let harness = PostgresHarness::direct().await;
        let store = hurried(&harness, url);
        store.check().await.expect("connects");
        let mut holder = harness.pool.begin().await.expect("begins");
        let lock = harness.sql(
            "lock table pillarbox.outbox_events, pillarbox.workers, pillarbox.lane_ranges in access exclusive mode",
        );
        let locked = sqlx::raw_sql(sqlx::AssertSqlSafe(lock))
            .execute(&mut *holder)
            .await;
        locked.expect("locks");
        let code = "(55P03)";
        assert_ended_by_server("find", store.find(&Scope::All, None, None, 10).await, code);
        assert_ended_by_server("sweep", store.sweep(&sweep()).await, code);
        assert_ended_by_server("lanes", store.lease_lanes(&lanes()).await, code);
        assert_ended_by_server("heartbeat", store.heartbeat(&heartbeat()).await, code);
        assert_ended_by_server("deregister", store.deregister(Uuid::new_v4()).await, code);
        assert_ended_by_server(
            "stats",
            store.stats(&OPERATOR, &Scope::All).await.map_err(store_error),
            code,
        );
        holder.rollback().await.expect("rolls back");
        assert_eq!(working(&harness).await, 0);
        store.close().await;
        harness.clean_up().await;
    }
}

#[tokio::test]
async fn slow_statements_do_not_pile_up_on_the_server() {
    for url in ["PILLARBOX_TEST_POSTGRES_URL", "PILLARBOX_TEST_PGBOUNCER_URL"] {
        let harness = PostgresHarness::direct().await;
        harness
            .enqueue(&[Event::new("shop", "orders")])
            .await
            .expect("enqueues");
        let store = hurried(&harness, url);
        store.check().await.expect("connects");
        harness
            .execute(
                "alter table pillarbox.destinations rename to paused;
                 create view pillarbox.destinations as select p.* from pillarbox.paused p right join pg_sleep(600) on true",
            )
            .await;
        for _ in 0..2 {
            let finds = (0..4).map(|_| store.find(&Scope::All, None, None, 10));
            for found in futures_util::future::join_all(finds).await {
                assert_ended_by_server("find", found, "(57014)");
            }
        }
        assert_eq!(working(&harness).await, 0);
        store.close().await;
        harness.clean_up().await;
    }
}
