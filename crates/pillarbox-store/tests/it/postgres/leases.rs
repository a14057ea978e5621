//! Claims that change no index, and the leases of claims.

use std::time::Duration;

use pillarbox::{Delivery, Event};
use pillarbox_store::store::{ClaimRequest, Member, Routing, Settlement, SweepRequest, Take};
use pillarbox_store::{Operate, Scope, Store, Verdict};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;
use pillarbox_testkit::wait::until;
use serde_json::Value;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::harness::PostgresHarness;
use super::plan::{claim_free, claim_read, claim_read_of, naming};
use super::producer::{request, share};

const ME: Uuid = Uuid::from_u128(1);
const LEASE: Duration = Duration::from_secs(60);

async fn count(harness: &PostgresHarness, sql: &str) -> i64 {
    let query = sqlx::query_scalar(AssertSqlSafe(harness.sql(sql)));
    query.fetch_one(&harness.pool).await.expect("counts")
}

async fn leases(harness: &PostgresHarness) -> i64 {
    count(harness, "select count(*) from pillarbox.leases").await
}

async fn put(harness: &PostgresHarness, count: usize) {
    let events: Vec<Event> = (0..count).map(|_| Event::new("shop", "orders")).collect();
    harness.enqueue(&events).await.expect("enqueues");
}

async fn claim(harness: &PostgresHarness, take: Take) -> Vec<Delivery> {
    let request = ClaimRequest {
        worker: ME,
        claim: Uuid::new_v4(),
        lease: LEASE,
        take,
        ..request(0)
    };
    harness.store.claim(&request).await.expect("claims")
}

async fn settle(harness: &PostgresHarness, rows: &[Delivery]) -> Vec<Uuid> {
    settle_keeping(harness, rows, true).await
}

async fn settle_keeping(harness: &PostgresHarness, rows: &[Delivery], keep: bool) -> Vec<Uuid> {
    let settlements: Vec<Settlement> = rows
        .iter()
        .map(|row| Settlement {
            id: row.id,
            claim: row.claim,
            verdict: Verdict::Delivered,
            destination: None,
            max_attempts: None,
            unordered: false,
            keep,
        })
        .collect();
    harness.store.settle(ME, &settlements).await.expect("settles")
}

async fn renew(harness: &PostgresHarness, rows: &[(Uuid, Uuid)]) -> Vec<Uuid> {
    harness.store.renew(ME, rows, LEASE).await.expect("renews")
}

/// Are there rows to be claimed again?
async fn sweep(harness: &PostgresHarness) -> bool {
    let request = SweepRequest {
        worker: ME,
        scope: Scope::All,
        max_attempts: 25,
        grace: LEASE,
        excluded: Vec::new(),
    };
    harness.store.sweep(&request).await.expect("sweeps").suspects
}

fn ids(rows: &[Delivery]) -> Vec<Uuid> {
    rows.iter().map(|row| row.id).collect()
}

/// Updates of this transaction in all, and those that changed no index.
async fn updates(harness: &PostgresHarness, claim: &str) -> (i64, i64) {
    let mut transaction = harness.pool.begin().await.expect("begins");
    let settings = "set local enable_seqscan = off; set local enable_bitmapscan = off";
    for sql in [settings, &harness.sql(claim)] {
        let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut *transaction);
        done.await.expect("runs");
    }
    let counts = "select pg_stat_get_xact_tuples_updated(oid), pg_stat_get_xact_tuples_hot_updated(oid) \
                  from (select 'pillarbox.outbox_events'::regclass::oid as oid) as events";
    let counts = sqlx::query_as(AssertSqlSafe(harness.sql(counts))).fetch_one(&mut *transaction);
    let counts = counts.await.expect("counts");
    transaction.commit().await.expect("commits");
    counts
}

#[tokio::test]
async fn a_claim_changes_no_index() {
    let harness = PostgresHarness::direct().await;
    // With the indexes of tenants too.
    let secured = harness.store.set_row_security(&OPERATOR, true).await;
    secured.expect("switches on");
    let me = ME;
    harness
        .execute(&format!(
            "insert into pillarbox.lane_ranges select 'shop', '', n, 32, 32, '{me}', now() + interval '1 day', false
             from generate_series(0, 31) as n;
             insert into pillarbox.outbox_events (namespace, topic, payload, tenant_id, ordering_key)
             select 'shop', 'orders', jsonb_build_object('n', n, 'text', repeat('x', 240)), gen_random_uuid(),
               case when n % 2 = 0 then 'key-' || n % 100 end
             from generate_series(1, 4000) as n"
        ))
        .await;
    for statement in [claim_free(""), claim_read()] {
        let (all, in_place) = updates(&harness, &statement).await;
        assert!(all >= 500, "{all} rows were claimed");
        assert_eq!(in_place, all);
    }
    harness.clean_up().await;
}

/// No snapshot is held between the read and the claim. PostgreSQL gives the place of a row that was deleted to another one.
#[tokio::test]
async fn a_row_in_the_place_of_a_deleted_one_is_not_claimed() {
    let harness = PostgresHarness::direct().await;
    harness
        .execute("insert into pillarbox.outbox_events (namespace, topic, payload, ordering_key) values ('shop', 'orders', '{}', 'a')")
        .await;
    let another = "array(select gen_random_uuid())";
    let claim = claim_read_of("array(select ctid::text from pillarbox.outbox_events)", another);
    assert_eq!(updates(&harness, &claim).await, (0, 0));
    harness.clean_up().await;
}

/// The WAL that a statement writes, in bytes.
async fn wal(harness: &PostgresHarness, statement: &str) -> u64 {
    let mut transaction = harness.pool.begin().await.expect("begins");
    let explain = format!(
        "explain (analyze, wal, costs off, format json) {}",
        harness.sql(statement)
    );
    let query = sqlx::query_scalar(AssertSqlSafe(explain)).persistent(false);
    let plan: Value = query.fetch_one(&mut *transaction).await.expect("explains");
    transaction.rollback().await.expect("rolls back");
    plan[0]["Plan"]["WAL Bytes"].as_u64().expect("counts WAL")
}

#[tokio::test]
async fn renewing_four_thousand_rows_writes_a_few_kilobytes() {
    let harness = PostgresHarness::direct().await;
    put(&harness, 4000).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.extend(claim(&harness, Take::Free(vec![share(1000)])).await);
    }
    assert_eq!((held.len(), leases(&harness).await), (4000, 4));
    let rows: Vec<String> = held.iter().map(|row| row.id.to_string()).collect();
    let claims: Vec<String> = held.iter().map(|row| format!("'{}'", row.claim)).collect();
    let claims = format!("array[{}]::uuid[]", claims.join(", "));
    for statement in [
        include_str!("../../../src/stores/postgres/sql/renew.sql"),
        include_str!("../../../src/stores/postgres/sql/renew_rows.sql"),
    ] {
        let statement = statement.replace("$3::uuid[]", &claims);
        let statement = naming(&statement, &rows, &[], &[]).replace("$4", "interval '1 minute'");
        let bytes = wal(&harness, &statement).await;
        // Full page images of four small rows and their index entries come first after a checkpoint.
        assert!(bytes < 100_000, "{bytes} bytes");
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn a_finished_claim_leaves_no_lease() {
    let harness = PostgresHarness::direct().await;
    put(&harness, 5).await;
    for there in [1, 2] {
        let rows = claim(&harness, Take::Free(vec![share(2)])).await;
        assert_eq!((rows.len(), leases(&harness).await), (2, there));
        assert!(settle(&harness, &rows).await.is_empty());
        assert_eq!(leases(&harness).await, 1, "the settlement deleted the one before");
    }
    let last = claim(&harness, Take::Free(vec![share(2)])).await;
    assert!(settle(&harness, &last).await.is_empty());
    assert_eq!(leases(&harness).await, 1, "the next settlement would delete it");
    harness.age(time::Duration::seconds(100)).await;
    assert!(!sweep(&harness).await);
    assert_eq!(leases(&harness).await, 0);
    harness.clean_up().await;
}

#[tokio::test]
async fn a_finished_claim_leaves_no_lease_if_its_rows_are_deleted() {
    let harness = PostgresHarness::direct().await;
    put(&harness, 5).await;
    let held = claim(&harness, Take::Free(vec![share(3)])).await;
    let last = claim(&harness, Take::Free(vec![share(2)])).await;
    assert_eq!((held.len(), last.len()), (3, 2));
    assert!(settle_keeping(&harness, &held[..2], false).await.is_empty());
    assert!(settle_keeping(&harness, &last[..1], false).await.is_empty());
    assert_eq!(leases(&harness).await, 2, "each has a row");
    assert!(settle_keeping(&harness, &held[2..], false).await.is_empty());
    assert!(settle_keeping(&harness, &last[1..], false).await.is_empty());
    assert_eq!(leases(&harness).await, 1, "that of the last settlement");
    assert_eq!(
        count(&harness, "select count(*) from pillarbox.outbox_events").await,
        0
    );
    harness.clean_up().await;
}

#[tokio::test]
async fn a_late_settlement_is_good_after_its_lease_was_ended() {
    let harness = PostgresHarness::direct().await;
    put(&harness, 3).await;
    let held = claim(&harness, Take::Free(vec![share(3)])).await;
    harness.age(time::Duration::seconds(100)).await;
    assert!(sweep(&harness).await);
    assert_eq!(leases(&harness).await, 0);
    assert!(settle(&harness, &held[..1]).await.is_empty());
    assert_eq!(
        renew(&harness, &[(held[1].id, held[1].claim)]).await,
        Vec::<Uuid>::new()
    );
    let suspects = claim(&harness, Take::Suspects(10)).await;
    assert_eq!(ids(&suspects), [held[2].id], "the second is renewed");
    harness.clean_up().await;
}

#[tokio::test]
async fn a_lost_lease_row_strands_no_row() {
    let harness = PostgresHarness::direct().await;
    put(&harness, 2).await;
    let held = claim(&harness, Take::Free(vec![share(2)])).await;
    harness.execute("delete from pillarbox.leases").await;
    // Its worker is alive and renews one of them.
    assert_eq!(
        renew(&harness, &[(held[0].id, held[0].claim)]).await,
        Vec::<Uuid>::new()
    );
    harness.age(time::Duration::seconds(50)).await;
    assert!(!sweep(&harness.beside_harness()).await, "the first lease holds");
    harness.age(time::Duration::seconds(50)).await;
    renew(&harness, &[(held[0].id, held[0].claim)]).await;
    assert!(sweep(&harness.beside_harness()).await);
    assert_eq!(ids(&claim(&harness, Take::Suspects(10)).await), [held[1].id]);
    harness.clean_up().await;
}

#[tokio::test]
async fn siblings_share_the_lease_of_their_claim() {
    let harness = PostgresHarness::direct().await;
    put(&harness, 1).await;
    let held = claim(&harness, Take::Free(vec![share(1)])).await;
    let member = |id, destination: &str| Member {
        id,
        destination: destination.to_owned(),
        max_attempts: Some(9),
    };
    let (row, sibling, claimed) = (held[0].id, Uuid::new_v4(), held[0].claim);
    let routing = Routing {
        id: row,
        claim: claimed,
        members: vec![member(row, "a"), member(sibling, "b")],
    };
    harness.store.route(ME, &[routing]).await.expect("routes");
    let until = async |id| {
        let record = harness
            .store
            .show(&OPERATOR, id)
            .await
            .expect("shows")
            .expect("is there");
        record.locked_until.expect("is leased")
    };
    assert_eq!(until(row).await, until(sibling).await);
    harness.age(time::Duration::seconds(50)).await;
    assert!(
        renew(&harness, &[(row, claimed), (sibling, claimed)])
            .await
            .is_empty()
    );
    assert_eq!(until(row).await, until(sibling).await);
    harness.age(time::Duration::seconds(50)).await;
    assert!(!sweep(&harness).await, "both are renewed");
    harness.age(time::Duration::seconds(50)).await;
    assert!(sweep(&harness).await);
    let mut suspects = ids(&claim(&harness, Take::Suspects(10)).await);
    suspects.sort();
    let mut both = [row, sibling];
    both.sort();
    assert_eq!(suspects, both);
    harness.clean_up().await;
}

#[tokio::test]
async fn a_delete_that_waits_for_a_claim_leaves_its_rows() {
    let harness = PostgresHarness::direct().await;
    put(&harness, 1).await;
    let mut claiming = harness.pool.begin().await.expect("begins");
    let claim = harness.sql(
        "with claimed as (
           update pillarbox.outbox_events set status = 'processing', attempts = 1, locked_by = id, claim_id = id,
             locked_until = now() + interval '60 s'
           returning id
         )
         insert into pillarbox.leases (claim_id, first_row, worker, until, rows)
         select id, id, id, now() + interval '60 s', array[id] from claimed
         returning claim_id",
    );
    let id: Uuid = sqlx::query_scalar(AssertSqlSafe(claim))
        .fetch_one(&mut *claiming)
        .await
        .expect("claims");
    let waits = async || {
        let blocked =
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like $1";
        let count: i64 = sqlx::query_scalar(blocked)
            .bind(format!(
                "%delete from \"{}\".outbox_events%",
                harness.store.schema()
            ))
            .fetch_one(&harness.pool)
            .await
            .expect("the database answers");
        count > 0
    };
    let deleting = async {
        harness
            .store
            .delete(&OPERATOR, &[id])
            .await
            .expect("the database answers")
    };
    let committing = async {
        until("the delete waits", waits).await;
        claiming.commit().await.expect("commits");
    };
    let (deleted, ()) = tokio::join!(deleting, committing);
    assert!(deleted.is_empty(), "{deleted:?}");
    assert_eq!(
        count(&harness, "select count(*) from pillarbox.outbox_events").await,
        1
    );
    harness.clean_up().await;
}
