//! Order when transactions overlap: locks on rows, lanes and keys.

use std::time::Duration;

use pillarbox::{Event, StoreError};
use pillarbox_store::Store;
use pillarbox_store::store::{ClaimRequest, LaneRequest, Range, Share, Take};
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

/// A claim that goes on where the last one ended, or begins at the bottom.
async fn claim_some(harness: &PostgresHarness, limit: usize, resume: bool) -> Vec<Uuid> {
    let share = Share {
        resume,
        ..share(limit)
    };
    let request = ClaimRequest {
        worker: ME,
        claim: Uuid::new_v4(),
        take: Take::Keyed(vec![share]),
        ..request(0)
    };
    let claimed = harness.store.claim(&request).await.expect("claims");
    claimed.iter().map(|delivery| delivery.id).collect()
}

/// Other buckets of lanes have more rows than the claims take.
#[tokio::test]
async fn keys_behind_many_rows_of_a_blocked_key_are_claimed_under_load() {
    let harness = PostgresHarness::direct().await;
    let mut beside = Vec::new();
    let blocked = pillarbox_lane(&harness, "blocked").await >> 7;
    for n in 0..1000 {
        let key = format!("beside-{n}");
        if pillarbox_lane(&harness, &key).await >> 7 == blocked {
            beside.push(key);
            if beside.len() == 5 {
                break;
            }
        }
    }
    harness
        .execute(&format!(
            "insert into pillarbox.outbox_events (namespace, topic, ordering_key, payload, status)
               values ('shop', 'orders', 'blocked', '{{}}', 'dead');
             insert into pillarbox.outbox_events (namespace, topic, ordering_key, payload)
               select 'shop', 'orders', 'blocked', '{{}}' from generate_series(1, 30000);
             insert into pillarbox.outbox_events (namespace, topic, ordering_key, payload)
               select 'shop', 'orders', 'other-' || n, '{{}}' from generate_series(1, 40000) as n
               where pillarbox.lane('other-' || n) >> 7 <> {blocked}"
        ))
        .await;
    let beside: Vec<Event> = beside.iter().map(|key| keyed(key)).collect();
    harness.enqueue(&beside).await.expect("enqueues");
    lease_lanes(&harness, ME).await;
    let mut left: Vec<Uuid> = beside.iter().map(|event| event.id).collect();
    let began = std::time::Instant::now();
    for n in 0..200 {
        let claimed = claim_some(&harness, 100, n > 0).await;
        assert!(claimed.len() > 50, "there is load: {}", claimed.len());
        left.retain(|id| !claimed.contains(id));
        if left.is_empty() {
            break;
        }
    }
    assert!(left.is_empty(), "{} after {:?}", left.len(), began.elapsed());
    harness.clean_up().await;
}

async fn pillarbox_lane(harness: &PostgresHarness, key: &str) -> i16 {
    let lane = harness.sql("select pillarbox.lane($1)");
    let lane = sqlx::query_scalar(AssertSqlSafe(lane)).bind(key);
    lane.fetch_one(&harness.pool).await.expect("a lane")
}

/// A claim takes some statements, and a row may be committed between the first and the one that reads it.
#[tokio::test]
async fn a_row_that_is_inserted_while_a_claim_runs_is_not_passed_over() {
    let harness = PostgresHarness::direct().await;
    lease_lanes(&harness, ME).await;
    harness.enqueue(&[keyed("a")]).await.expect("enqueues");
    assert_eq!(claim_some(&harness, 10, false).await.len(), 1);
    pause().await;
    let mut writer = holding(
        &harness,
        "lock table pillarbox.outbox_events in access exclusive mode",
    )
    .await;
    let waited = async {
        until_waiting(&harness, "Below which seq").await;
        let insert = harness.sql(
            "insert into pillarbox.outbox_events (namespace, topic, ordering_key, payload, created_at, next_attempt_at)
             select 'shop', 'orders', 'b', '{}', at, at from (select clock_timestamp() as at) as one",
        );
        let inserted = sqlx::raw_sql(AssertSqlSafe(insert)).execute(&mut *writer);
        inserted.await.expect("inserts");
        writer.commit().await.expect("commits");
    };
    let (claimed, ()) = tokio::join!(claim_some(&harness, 10, true), waited);
    let again = claim_some(&harness, 10, true).await;
    assert_eq!(claimed.len() + again.len(), 1);
    harness.clean_up().await;
}

/// The bottom of a backlog rises when a claim looks for it, half a second after it last did.
async fn raise_the_bottom(harness: &PostgresHarness) {
    for key in ["a", "b", "a"] {
        harness.enqueue(&[keyed(key)]).await.expect("enqueues");
        assert_eq!(claim_some(harness, 10, true).await.len(), 1);
        harness
            .execute("update pillarbox.outbox_events set status = 'delivered'")
            .await;
        pause().await;
    }
    assert!(claim_some(harness, 10, true).await.is_empty());
}

#[expect(
    clippy::disallowed_methods,
    reason = "the store looks for bottoms once in a while"
)]
async fn pause() {
    tokio::time::sleep(Duration::from_millis(600)).await;
}

#[tokio::test]
async fn after_the_sequence_was_set_back_rows_are_claimed_in_order() {
    let harness = PostgresHarness::direct().await;
    lease_lanes(&harness, ME).await;
    raise_the_bottom(&harness).await;
    assert!(claim_some(&harness, 10, false).await.is_empty());
    pause().await;
    harness
        .execute("truncate pillarbox.outbox_events restart identity")
        .await;
    let (first, second) = (keyed("a"), keyed("a"));
    harness
        .enqueue(std::slice::from_ref(&first))
        .await
        .expect("enqueues");
    assert_eq!(claim_some(&harness, 10, true).await, [first.id]);
    harness
        .enqueue(std::slice::from_ref(&second))
        .await
        .expect("enqueues");
    assert!(
        claim_some(&harness, 10, true).await.is_empty(),
        "the first is in flight"
    );
    harness.clean_up().await;
}

/// Logical replication inserts rows with the numbers of another database.
#[tokio::test]
async fn a_row_with_a_number_below_the_bottom_is_not_overtaken() {
    let harness = PostgresHarness::direct().await;
    lease_lanes(&harness, ME).await;
    raise_the_bottom(&harness).await;
    let below = "insert into pillarbox.outbox_events (seq, namespace, topic, ordering_key, payload)
                 values (-1, 'shop', 'orders', 'k', '{}')";
    harness.execute(below).await;
    assert_eq!(claim_some(&harness, 10, true).await.len(), 1);
    let second = keyed("k");
    harness
        .enqueue(std::slice::from_ref(&second))
        .await
        .expect("enqueues");
    assert!(
        claim_some(&harness, 10, true).await.is_empty(),
        "the first is in flight"
    );
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
