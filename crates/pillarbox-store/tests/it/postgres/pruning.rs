//! What PostgreSQL adds to retention: leases, locks, and the permissions of a dispatcher.

use std::time::Duration;

use pillarbox_store::retention::{Keep, PruneRequest, Pruned, Retention, What};
use pillarbox_store::stores::postgres::{Duty, Postgres};
use pillarbox_store::{Scope, Store};
use pillarbox_testkit::store_suite::Harness;
use uuid::Uuid;

use super::harness::PostgresHarness;
use super::privileges::{drop_role, on_duty};

const DAY: Duration = Duration::from_secs(86_400);

fn request(worker: Uuid, what: What) -> PruneRequest {
    PruneRequest {
        worker,
        lease: Duration::from_secs(600),
        what,
        scope: Scope::All,
        retention: Retention {
            keep: Keep {
                delivered: Some(DAY),
                dead: Some(DAY),
            },
            sagas: Some(DAY),
            inbox: Some(DAY),
            ..Retention::default()
        },
        batch: 100,
        after: None,
        dry_run: false,
        archive: None,
    }
}

async fn prune(store: &Postgres, worker: Uuid, what: What) -> Pruned {
    store.prune(&request(worker, what)).await.expect("prunes")
}

/// Inserts delivered rows that are old.
async fn old(harness: &PostgresHarness, namespace: &str, count: usize) {
    harness
        .execute(&format!(
            "insert into pillarbox.outbox_events (namespace, topic, payload, status, delivered_at)
             select '{namespace}', 'orders', '{{}}', 'delivered', now() - interval '2 days' from generate_series(1, {count})"
        ))
        .await;
}

#[tokio::test]
async fn one_worker_of_a_scope_prunes_until_it_leaves() {
    let harness = PostgresHarness::direct().await;
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    old(&harness, "shop", 1).await;
    assert_eq!(prune(&harness.store, first, What::Delivered).await.delivered, 1);
    old(&harness, "shop", 1).await;
    assert_eq!(
        prune(&harness.store, second, What::Delivered).await,
        Pruned::default()
    );
    let scoped = PruneRequest {
        scope: Scope::of(["till"]),
        ..request(second, What::Delivered)
    };
    old(&harness, "till", 1).await;
    let pruned = harness.store.prune(&scoped).await.expect("prunes");
    assert_eq!(pruned.delivered, 1, "another scope has a worker of its own");
    harness.store.deregister(first).await.expect("leaves");
    assert_eq!(prune(&harness.store, second, What::Delivered).await.delivered, 1);
    harness.clean_up().await;
}

#[tokio::test]
async fn an_event_with_a_locked_row_waits_for_a_later_pass() {
    let harness = PostgresHarness::direct().await;
    old(&harness, "shop", 3).await;
    harness
        .execute(
            "with first as (select id, seq from pillarbox.outbox_events order by seq limit 1)
             insert into pillarbox.outbox_events (namespace, topic, payload, status, delivered_at, parent_id, seq)
             select 'shop', 'orders', '{}', 'delivered', now() - interval '2 days', id, seq from first",
        )
        .await;
    let mut session = harness.pool.begin().await.expect("begins");
    let lock = harness.sql("select 1 from pillarbox.outbox_events where parent_id is not null for update");
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock))
        .execute(&mut *session)
        .await
        .expect("locks");
    let worker = Uuid::new_v4();
    assert_eq!(prune(&harness.store, worker, What::Delivered).await.delivered, 2);
    session.rollback().await.expect("unlocks");
    assert_eq!(prune(&harness.store, worker, What::Delivered).await.delivered, 2);
    harness.clean_up().await;
}

/// Also with row-level security.
#[tokio::test]
async fn a_dispatcher_may_prune_everything_and_runs_no_saga() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Dispatcher).await;
    for secured in [false, true] {
        if secured {
            harness.execute("select pillarbox.set_row_security(true)").await;
        }
        old(&harness, "shop", 2).await;
        harness
            .execute(
                "insert into pillarbox.sagas
                   (name, id, namespace, topic, status, path, attempt, tries, data, attempt_secret, own_token, updated_at)
                 select 'order', status, 'shop', 'sagas', status, '[]', 1, 1, '{}', 'a', 'b', now() - interval '2 days'
                 from unnest('{running, compensating, completed, compensated}'::text[]) as status
                 on conflict (id, name) do nothing;
                 insert into pillarbox.saga_log (saga, what) select seq, 'sent' from pillarbox.sagas;
                 insert into pillarbox.inbox (consumer, event_id, handled_at)
                 select 'gone', gen_random_uuid(), now() - interval '2 days' from generate_series(1, 3)",
            )
            .await;
        let worker = Uuid::new_v4();
        assert_eq!(prune(&store, worker, What::Delivered).await.delivered, 2);
        assert_eq!(prune(&store, worker, What::Sagas).await.sagas, 2);
        assert_eq!(prune(&store, worker, What::Marks).await.marks, 3);
        store.deregister(worker).await.expect("leaves");
        let left: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(
            harness.sql("select s.status from pillarbox.sagas s join pillarbox.saga_log l on l.saga = s.seq group by 1 order by 1"),
        ))
        .fetch_all(&harness.pool)
        .await
        .expect("reads");
        assert_eq!(left, ["compensating", "running"]);
    }
    store.close().await;
    drop_role(&harness, &role).await;
    harness.clean_up().await;
}

/// Two thousand rows that stay, all of one time, keep no batch from what lies behind them.
#[tokio::test]
async fn rows_that_stay_are_passed_over_once() {
    let harness = PostgresHarness::direct().await;
    // Each has a sibling that waits.
    harness
        .execute(
            "with first as (
               insert into pillarbox.outbox_events (namespace, topic, payload, status, delivered_at)
               select 'shop', 'orders', '{}', 'delivered', now() - interval '3 days' from generate_series(1, 2000)
               returning id, seq
             )
             insert into pillarbox.outbox_events (namespace, topic, payload, parent_id, seq)
             select 'shop', 'orders', '{}', id, seq from first",
        )
        .await;
    old(&harness, "shop", 500).await;
    let (mut calls, mut deleted) = (0, 0);
    let mut next = request(Uuid::new_v4(), What::Delivered);
    loop {
        let pruned = harness.store.prune(&next).await.expect("prunes");
        calls += 1;
        deleted += pruned.delivered;
        next.after = pruned.after;
        if next.after.is_none() {
            break;
        }
    }
    assert_eq!((calls, deleted), (26, 500));
    harness.clean_up().await;
}
