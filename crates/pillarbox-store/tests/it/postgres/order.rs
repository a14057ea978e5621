//! Order when transactions overlap: locks on rows, lanes and keys.

use std::time::Duration;

use pillarbox::{Event, StoreError};
use pillarbox_store::Store;
use pillarbox_store::store::{ClaimRequest, LaneRequest, Range, Take};
use pillarbox_testkit::store_suite::Harness;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::harness::PostgresHarness;
use super::privileges::as_role;
use super::producer::{request, share};
use pillarbox_testkit::wait::until;

const ME: Uuid = Uuid::from_u128(1);

fn keyed(key: &str) -> Event {
    Event::new("shop", "orders").ordering_key(key)
}

async fn lease_lanes(harness: &PostgresHarness, worker: Uuid) -> Vec<Range> {
    let request = LaneRequest {
        worker,
        backlogs: vec![share(1).backlog],
        ranges: 32,
        new_ranges: 32,
        lease: Duration::from_secs(60),
        release: Vec::new(),
    };
    harness.store.lease_lanes(&request).await.expect("lanes")
}

async fn claim(harness: &PostgresHarness) -> Vec<Uuid> {
    let request = ClaimRequest {
        worker: ME,
        take: Take::Keyed(vec![share(100)]),
        ..request(0)
    };
    let claimed = harness.store.claim(&request).await.expect("does not wait");
    claimed.iter().map(|delivery| delivery.id).collect()
}

/// A transaction that holds what the statement locks.
async fn holding(harness: &PostgresHarness, lock: &str) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut holder = harness.pool.begin().await.expect("begins");
    let locked = sqlx::raw_sql(AssertSqlSafe(harness.sql(lock))).execute(&mut *holder);
    locked.await.expect("locks");
    holder
}

/// Waits until a session waits for a lock in such a statement.
pub(super) async fn until_waiting(harness: &PostgresHarness, statement: &str) {
    until("a session waits", async || {
        let waiting: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like $1",
        )
        .bind(format!("%{statement}%"))
        .fetch_one(&harness.pool)
        .await
        .expect("looks");
        waiting > 0
    })
    .await;
}

#[tokio::test]
async fn a_locked_row_ends_the_run_of_its_key_and_no_other() {
    let harness = PostgresHarness::direct().await;
    let events = [keyed("a"), keyed("a"), keyed("a"), keyed("b")];
    harness.enqueue(&events).await.expect("enqueues");
    lease_lanes(&harness, ME).await;
    let lock = format!(
        "select from pillarbox.outbox_events where id = '{}' for update",
        events[1].id
    );
    let holder = holding(&harness, &lock).await;
    assert_eq!(claim(&harness).await, [events[0].id, events[3].id]);
    holder.rollback().await.expect("rolls back");
    harness.clean_up().await;
}

#[tokio::test]
async fn a_row_that_was_changed_while_it_was_claimed_is_not_overtaken() {
    let harness = PostgresHarness::direct().await;
    let events = [keyed("a"), keyed("a"), keyed("a")];
    for _ in 0..20 {
        harness.execute("truncate pillarbox.outbox_events").await;
        harness.enqueue(&events).await.expect("enqueues");
        lease_lanes(&harness, ME).await;
        let change = format!(
            "update pillarbox.outbox_events set updated_at = now() where id = '{}'",
            events[1].id
        );
        let changed = async { harness.execute(&change).await };
        let (claimed, _) = tokio::join!(claim(&harness), changed);
        let all: Vec<Uuid> = events.iter().map(|event| event.id).collect();
        assert!(all.starts_with(&claimed), "{claimed:?} of {all:?}");
        assert!(!claimed.is_empty(), "the first was free");
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn lanes_that_are_being_taken_over_are_not_claimed_from() {
    let harness = PostgresHarness::direct().await;
    let event = keyed("a");
    harness
        .enqueue(std::slice::from_ref(&event))
        .await
        .expect("enqueues");
    lease_lanes(&harness, ME).await;
    let holder = holding(&harness, "select from pillarbox.lane_ranges for update").await;
    assert!(claim(&harness).await.is_empty(), "and not waited for");
    holder.rollback().await.expect("rolls back");
    assert_eq!(claim(&harness).await, [event.id]);
    harness.clean_up().await;
}

#[tokio::test]
async fn taking_lanes_over_waits_for_a_claim_in_progress() {
    let harness = PostgresHarness::direct().await;
    lease_lanes(&harness, ME).await;
    harness.age(time::Duration::seconds(100)).await;
    // A claim that began in time locks its lanes for share, and is slow to commit.
    let claiming = holding(&harness, "select from pillarbox.lane_ranges for share").await;
    let heir = {
        let store = harness.store.clone();
        let request = LaneRequest {
            worker: Uuid::from_u128(2),
            backlogs: vec![share(1).backlog],
            ranges: 32,
            new_ranges: 32,
            lease: Duration::from_secs(60),
            release: Vec::new(),
        };
        tokio::spawn(async move { store.lease_lanes(&request).await.expect("lanes") })
    };
    until_waiting(&harness, "Leases, renews and releases lane ranges").await;
    assert!(!heir.is_finished());
    claiming.commit().await.expect("the claim ends");
    assert_eq!(heir.await.expect("no panic").len(), 32);
    harness.clean_up().await;
}

/// Ranges of two divisions would overlap, and a lane would have two owners.
#[tokio::test]
async fn workers_with_different_numbers_of_ranges_do_not_create_both() {
    let harness = PostgresHarness::direct().await;
    let eight = "insert into pillarbox.lane_ranges (namespace, destination, number, ranges, wanted)
                 select 'shop', '', n, 8, 8 from generate_series(0, 7) as n";
    let other = holding(&harness, eight).await;
    let mine = {
        let store = harness.store.clone();
        let request = LaneRequest {
            worker: ME,
            backlogs: vec![share(1).backlog],
            ranges: 32,
            new_ranges: 32,
            lease: Duration::from_secs(60),
            release: Vec::new(),
        };
        tokio::spawn(async move { store.lease_lanes(&request).await.expect("lanes") })
    };
    until_waiting(&harness, "Creates the lane ranges").await;
    other.commit().await.expect("the other creates its ranges");
    let mine = mine.await.expect("no panic");
    let lanes: Vec<u16> = mine.iter().flat_map(|range| range.first..=range.last).collect();
    assert_eq!(lanes, (0..4096).collect::<Vec<u16>>(), "each lane once");
    let count = harness.sql("select ranges, count(*) from pillarbox.lane_ranges group by ranges");
    let numbers: Vec<(i32, i64)> = sqlx::query_as(AssertSqlSafe(count))
        .fetch_all(&harness.pool)
        .await
        .expect("counts");
    assert_eq!(numbers, [(32, 32)]);
    harness.clean_up().await;
}

#[tokio::test]
async fn serialised_writers_of_one_key_have_the_order_of_their_commits() {
    let harness = PostgresHarness::direct().await;
    let outbox = harness.outbox().serialised();
    let (first, second, other) = (keyed("a"), keyed("a"), keyed("b"));
    let mut one = harness.pool.begin().await.expect("begins");
    outbox.enqueue(&mut one, &first).await.expect("enqueues");
    let two = {
        let (pool, outbox, second) = (harness.pool.clone(), outbox.clone(), second.clone());
        tokio::spawn(async move {
            let mut two = pool.begin().await.expect("begins");
            outbox.enqueue(&mut two, &second).await.expect("enqueues");
            two.commit().await.expect("commits");
        })
    };
    until_waiting(&harness, "pg_advisory_xact_lock(lock)").await;
    let mut three = harness.pool.begin().await.expect("begins");
    outbox
        .enqueue(&mut three, &other)
        .await
        .expect("another key does not wait");
    three.commit().await.expect("commits");
    assert!(!two.is_finished());
    // What the first writes later is still before the second.
    let third = keyed("a");
    outbox.enqueue(&mut one, &third).await.expect("enqueues");
    one.commit().await.expect("commits");
    two.await.expect("no panic");
    lease_lanes(&harness, ME).await;
    let claimed = claim(&harness).await;
    let of_a: Vec<Uuid> = claimed.into_iter().filter(|id| *id != other.id).collect();
    assert_eq!(of_a, [first.id, third.id, second.id]);
    harness.clean_up().await;
}

#[tokio::test]
async fn serialised_writers_with_their_keys_in_opposite_order_do_not_deadlock() {
    let harness = PostgresHarness::direct().await;
    let names: Vec<String> = (0..50).map(|n| format!("key-{n}")).collect();
    for _ in 0..10 {
        let run = |names: Vec<String>| {
            let (pool, outbox) = (harness.pool.clone(), harness.outbox().serialised());
            tokio::spawn(async move {
                let events: Vec<Event> = names.iter().map(|name| keyed(name)).collect();
                let mut transaction = pool.begin().await.expect("begins");
                let enqueued = outbox.enqueue_all(&mut transaction, &events).await;
                enqueued.expect("no deadlock");
                transaction.commit().await.expect("commits");
            })
        };
        let backward = names.iter().rev().cloned().collect();
        let (a, b) = (run(names.clone()), run(backward));
        a.await.expect("no panic");
        b.await.expect("no panic");
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn fair_shares_create_an_index_or_print_its_statement() {
    let harness = PostgresHarness::direct().await;
    let usage = format!("grant usage on schema {} to ROLE", harness.store.schema());
    let (role, store) = as_role(&harness, &usage).await;
    let refused = store.ensure_fair_index().await.expect_err("may not");
    assert!(matches!(refused, StoreError::Denied(_)), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("create index concurrently if not exists outbox_events_fair"),
        "{refused}"
    );
    harness.store.ensure_fair_index().await.expect("creates");
    harness.store.ensure_fair_index().await.expect("is content");
    store.ensure_fair_index().await.expect("there is nothing to do");
    store.close().await;
    harness
        .execute(&format!("drop owned by {role}; drop role {role}"))
        .await;
    harness.clean_up().await;
}
