//! Order per key, with one lane per backlog.

use std::collections::BTreeSet;
use std::time::Duration;

use pillarbox::{Delivery, Event};
use pillarbox_store::store::{
    Backlog, ClaimRequest, Heartbeat, LANES, LaneRequest, Parked, Range, Settlement, Share, Take,
};
use pillarbox_store::stores::sqlite::Sqlite;
use pillarbox_store::{Scope, Store, Verdict};
use pillarbox_testkit::Harness;
use uuid::Uuid;

use super::SqliteHarness;
use super::harness::request;

const LEASE: Duration = Duration::from_secs(60);
const FIRST: Uuid = Uuid::from_u128(1);
const SECOND: Uuid = Uuid::from_u128(2);

fn keyed(key: impl Into<String>) -> Event {
    Event::new("shop", "orders")
        .ordering_key(key)
        .destination("broker")
}

fn backlog() -> Backlog {
    Backlog {
        destination: Some("broker".into()),
        namespace: "shop".into(),
    }
}

async fn lease_lanes(store: &Sqlite, worker: Uuid, release: Vec<Range>) -> Vec<Range> {
    let request = LaneRequest {
        worker,
        backlogs: vec![backlog()],
        ranges: 32,
        new_ranges: 32,
        lease: LEASE,
        release,
    };
    store.lease_lanes(&request).await.expect("lanes")
}

async fn heartbeat(store: &Sqlite, worker: Uuid, scope: Scope) {
    let heartbeat = Heartbeat {
        worker,
        host: "here".into(),
        version: "1".into(),
        scope,
        ttl: LEASE,
        ..Heartbeat::default()
    };
    store.heartbeat(&heartbeat).await.expect("a heartbeat");
}

async fn claim(store: &Sqlite, worker: Uuid, limit: usize) -> Vec<Delivery> {
    let share = Share {
        backlog: backlog(),
        limit,
        floor: 0,
        fair: false,
        resume: false,
    };
    let request = ClaimRequest {
        worker,
        ..request(Take::Keyed(vec![share]))
    };
    store.claim(&request).await.expect("a claim")
}

async fn deliver(store: &Sqlite, worker: Uuid, deliveries: &[Delivery]) {
    let settlement = |delivery: &Delivery| Settlement {
        id: delivery.id,
        claim: delivery.claim,
        verdict: Verdict::Delivered,
        destination: None,
        max_attempts: None,
        unordered: false,
        keep: true,
    };
    let settlements: Vec<Settlement> = deliveries.iter().map(settlement).collect();
    let lost = store.settle(worker, &settlements).await.expect("a settle");
    assert!(lost.is_empty(), "they are ours");
}

fn everything(leaving: bool) -> Range {
    Range {
        backlog: backlog(),
        first: 0,
        last: LANES - 1,
        leaving,
    }
}

fn keys(deliveries: &[Delivery]) -> BTreeSet<&str> {
    deliveries
        .iter()
        .filter_map(|delivery| delivery.event.ordering_key.as_deref())
        .collect()
}

#[tokio::test]
async fn there_is_one_range_whatever_is_asked_for_and_it_has_one_owner() {
    let outbox = SqliteHarness::fresh().await;
    assert_eq!(
        lease_lanes(&outbox.store, SECOND, vec![]).await,
        [everything(false)]
    );
    assert_eq!(lease_lanes(&outbox.store, FIRST, vec![]).await, []);
    outbox.enqueue(&[keyed("a")]).await.expect("accepted");
    assert_eq!(
        claim(&outbox.store, FIRST, 10).await,
        [],
        "only its owner takes from a lane"
    );
    let claimed = claim(&outbox.store, SECOND, 10).await;
    assert_eq!(claimed[0].lane, Some(0));
}

#[tokio::test]
async fn the_lane_is_for_one_living_worker_that_all_agree_on() {
    let outbox = SqliteHarness::fresh().await;
    let store = &outbox.store;
    heartbeat(store, SECOND, Scope::All).await;
    assert_eq!(lease_lanes(store, SECOND, vec![]).await, [everything(false)]);
    heartbeat(store, FIRST, Scope::of(["till"])).await;
    assert_eq!(
        lease_lanes(store, SECOND, vec![]).await,
        [everything(false)],
        "a worker for another namespace has no part in it"
    );

    heartbeat(store, FIRST, Scope::All).await;
    outbox.enqueue(&[keyed("a")]).await.expect("accepted");
    assert_eq!(lease_lanes(store, SECOND, vec![]).await, [everything(true)]);
    assert_eq!(
        claim(store, SECOND, 10).await,
        [],
        "nothing is taken from a lane that is left"
    );
    assert_eq!(
        lease_lanes(store, FIRST, vec![]).await,
        [],
        "it is not given up yet"
    );
    assert_eq!(lease_lanes(store, SECOND, vec![everything(true)]).await, []);
    assert_eq!(lease_lanes(store, FIRST, vec![]).await, [everything(false)]);
    assert_eq!(claim(store, FIRST, 10).await.len(), 1);

    store.deregister(FIRST).await.expect("a leave");
    assert_eq!(
        lease_lanes(store, SECOND, vec![]).await,
        [everything(false)],
        "at once"
    );
}

#[tokio::test]
async fn a_lane_is_free_a_lease_after_its_owner_died() {
    let outbox = SqliteHarness::fresh().await;
    let store = &outbox.store;
    heartbeat(store, FIRST, Scope::All).await;
    assert_eq!(lease_lanes(store, FIRST, vec![]).await.len(), 1);
    outbox.age(time::Duration::seconds(30)).await;
    assert_eq!(lease_lanes(store, SECOND, vec![]).await, []);
    outbox.age(time::Duration::seconds(60)).await;
    assert_eq!(lease_lanes(store, SECOND, vec![]).await.len(), 1);
    outbox.enqueue(&[keyed("a")]).await.expect("accepted");
    assert_eq!(
        claim(store, FIRST, 10).await,
        [],
        "the one that slept takes nothing"
    );
}

#[tokio::test]
async fn a_clock_that_was_put_back_does_not_keep_a_lane_from_everyone() {
    let outbox = SqliteHarness::fresh().await;
    let store = &outbox.store;
    heartbeat(store, FIRST, Scope::All).await;
    assert_eq!(lease_lanes(store, FIRST, vec![]).await.len(), 1);
    outbox.age(time::Duration::days(-2)).await;
    assert_eq!(lease_lanes(store, SECOND, vec![]).await, [everything(false)]);
}

#[tokio::test]
async fn keys_that_a_claim_has_no_room_for_come_next() {
    let outbox = SqliteHarness::fresh().await;
    let store = &outbox.store;
    lease_lanes(store, FIRST, vec![]).await;
    let events: Vec<Event> = (0..10)
        .flat_map(|_| ["a", "b", "c", "d", "e"])
        .map(keyed)
        .collect();
    outbox.enqueue(&events).await.expect("accepted");
    let mut served = Vec::new();
    for _ in 0..5 {
        let claimed = claim(store, FIRST, 4).await;
        assert_eq!(claimed.len(), 4, "a run of one key");
        served.extend(keys(&claimed).into_iter().map(str::to_owned));
        deliver(store, FIRST, &claimed).await; // so that the same key could be taken again at once
    }
    assert_eq!(served, ["a", "b", "c", "d", "e"]);
    assert_eq!(keys(&claim(store, FIRST, 4).await), BTreeSet::from(["a"]));
}

#[tokio::test]
async fn rows_behind_more_blocked_keys_than_a_claim_probes_are_found_by_the_next() {
    let outbox = SqliteHarness::fresh().await;
    let store = &outbox.store;
    lease_lanes(store, FIRST, vec![]).await;
    outbox
        .run(
            "with recursive n (n) as (select 1 union all select n + 1 from n where n < 1500)
             insert into outbox_events (namespace, topic, payload, destination, ordering_key, status)
             select 'shop', 'orders', '{}', 'broker', printf('b%05d', n), 'dead' from n",
        )
        .await;
    outbox.enqueue(&[keyed("a"), keyed("c")]).await.expect("accepted");
    assert_eq!(keys(&claim(store, FIRST, 40).await), BTreeSet::from(["a"]));
    assert_eq!(keys(&claim(store, FIRST, 40).await), BTreeSet::from(["c"]));

    outbox.enqueue(&[keyed("a0")]).await.expect("accepted");
    assert_eq!(
        keys(&claim(store, FIRST, 40).await),
        BTreeSet::from(["a0"]),
        "around again"
    );
}

#[tokio::test]
async fn a_row_that_knows_no_destination_yet_holds_up_what_comes_after_it() {
    let outbox = SqliteHarness::fresh().await;
    let store = &outbox.store;
    lease_lanes(store, FIRST, vec![]).await;
    let undecided = Event::new("shop", "orders").ordering_key("a");
    let (first, last) = (keyed("a"), keyed("a"));
    outbox
        .enqueue(&[first.clone(), undecided, last])
        .await
        .expect("accepted");
    let claimed = claim(store, FIRST, 10).await;
    assert_eq!(claimed.iter().map(|one| one.id).collect::<Vec<_>>(), [first.id]);
    deliver(store, FIRST, &claimed).await;
    assert_eq!(claim(store, FIRST, 10).await, []);
}

#[tokio::test]
async fn unparked_rows_without_a_destination_go_before_rows_that_lost_their_worker() {
    let outbox = SqliteHarness::fresh().await;
    let store = &outbox.store;
    lease_lanes(store, FIRST, vec![]).await;
    let held = Event::new("shop", "orders").ordering_key("a");
    outbox
        .enqueue(&[held.clone(), keyed("a")])
        .await
        .expect("accepted");
    outbox
        .run("update outbox_events set destination = 'unrouted' where destination is null")
        .await;
    assert_eq!(claim(store, FIRST, 10).await.len(), 1);
    let unparked = store.unpark(Parked::Unrouted, &[held.id]).await;
    assert_eq!(unparked.expect("unparks"), [held.id]);
    outbox.age(time::Duration::seconds(90)).await;
    lease_lanes(store, FIRST, vec![]).await;
    let suspect = ClaimRequest {
        worker: FIRST,
        ..request(Take::Suspects(10))
    };
    assert_eq!(store.claim(&suspect).await.expect("a claim"), []);
}

#[tokio::test]
async fn two_processes_on_one_file_keep_the_order_of_a_key() {
    let outbox = SqliteHarness::fresh().await;
    let other = Sqlite::create(outbox.path()).await.expect("it opens");
    let events: Vec<Event> = (0..20).map(|_| keyed("a")).collect();
    outbox.enqueue(&events).await.expect("accepted");
    let mut sent = Vec::new();
    for (store, worker, rival) in [(&outbox.store, FIRST, SECOND), (&other, SECOND, FIRST)].repeat(3) {
        lease_lanes(store, worker, vec![]).await;
        let claimed = claim(store, worker, 5).await;
        assert_eq!(claim(&outbox.store, rival, 5).await, []);
        deliver(store, worker, &claimed).await;
        sent.extend(claimed.iter().map(|delivery| delivery.id));
        store.deregister(worker).await.expect("a leave");
    }
    let expected: Vec<Uuid> = events.iter().map(|event| event.id).collect();
    assert_eq!(sent, expected[..sent.len()]);
    assert_eq!(sent.len(), 20);
}

#[tokio::test]
async fn a_name_that_says_nothing_is_refused_when_it_is_written() {
    let outbox = SqliteHarness::fresh().await;
    for column in ["destination", "ordering_key"] {
        let sql = format!(
            "insert into outbox_events (namespace, topic, payload, {column}) values ('a', 'b', '{{}}', '')"
        );
        let refused = sqlx::query(sqlx::AssertSqlSafe(sql))
            .execute(&outbox.application)
            .await;
        let message = refused.expect_err("it is refused").to_string();
        assert!(message.contains(column), "{message}");
    }
}
