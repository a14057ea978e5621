//! Producers: other languages, other columns, other transactions.

use std::time::Duration;

use pillarbox::{Clock, EnqueueError, Enqueued, Event, Payload, SystemClock};
use pillarbox_store::store::{Backlog, ClaimRequest, Share, Take};
use pillarbox_store::{Scope, Store};
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::store_suite::Harness;
use uuid::Uuid;

use super::harness::PostgresHarness;

pub(crate) fn request(limit: usize) -> ClaimRequest {
    ClaimRequest {
        worker: Uuid::new_v4(),
        claim: Uuid::new_v4(),
        lease: Duration::from_secs(60),
        take: Take::Free(vec![share(limit)]),
        excluded: Vec::new(),
        first_lane: 0,
        max_bytes: 64 << 20,
        scope: Scope::All,
        max_attempts: 25,
    }
}

/// What the shop publishes and no route has seen yet.
pub(super) fn share(limit: usize) -> Share {
    Share {
        backlog: Backlog {
            destination: None,
            namespace: "shop".into(),
        },
        limit,
        floor: 0,
        fair: false,
        resume: false,
    }
}

#[tokio::test]
async fn a_plain_insert_is_claimed() {
    let harness = PostgresHarness::direct().await;
    harness
        .execute("insert into pillarbox.outbox_events (namespace, topic, payload) values ('shop', 'orders', '{\"a\": 1}')")
        .await;
    let claimed = harness.store.claim(&request(10)).await.expect("claims");
    let [delivery] = &claimed[..] else {
        panic!("one row: {claimed:?}")
    };
    assert_eq!(
        delivery.id.get_version_num(),
        7,
        "the database gives a UUID of version 7"
    );
    assert_eq!(delivery.event.payload, Payload::Json("{\"a\": 1}".into()));
    assert_eq!((delivery.attempts, delivery.event.event_version), (1, 1));
    harness.clean_up().await;
}

#[tokio::test]
async fn the_lane_is_frozen() {
    let harness = PostgresHarness::direct().await;
    let row: (i16, i16, Option<i16>) = sqlx::query_as(sqlx::AssertSqlSafe(
        harness.sql("select pillarbox.lane('order-42'), pillarbox.lane(''), pillarbox.lane(null)"),
    ))
    .fetch_one(&harness.pool)
    .await
    .expect("three lanes");
    // The first three hexadecimal digits of the key's md5, which every row that was ever written agrees with.
    assert_eq!(row, (0x4f4, 0xd41, None));
    harness.clean_up().await;
}

#[tokio::test]
async fn two_callers_with_the_same_keys_in_opposite_order_do_not_deadlock() {
    let harness = PostgresHarness::direct().await;
    let keys: Vec<String> = (0..200).map(|n| format!("key-{n:03}")).collect();
    let event = |key: &String| Event::new("shop", "orders").dedupe_key(key.clone());
    let forward: Vec<Event> = keys.iter().map(event).collect();
    let backward: Vec<Event> = keys.iter().rev().map(event).collect();
    for _ in 0..20 {
        harness.execute("delete from pillarbox.outbox_events").await;
        let run = |events: Vec<Event>| {
            let (pool, outbox) = (harness.pool.clone(), harness.outbox());
            tokio::spawn(async move {
                let mut transaction = pool.begin().await.expect("begins");
                let enqueued = outbox
                    .enqueue_all(&mut transaction, &events)
                    .await
                    .expect("no deadlock");
                transaction.commit().await.expect("commits");
                enqueued.iter().filter(|one| one.is_new()).count()
            })
        };
        let (a, b) = (run(forward.clone()), run(backward.clone()));
        assert_eq!(a.await.expect("a") + b.await.expect("b"), keys.len());
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn the_order_of_a_batch_is_kept_although_its_keys_are_sorted() {
    let harness = PostgresHarness::direct().await;
    let events: Vec<Event> = (0..500)
        .map(|n| {
            Event::new("shop", "orders")
                .dedupe_key(format!("{:03}", (n * 7919) % 500))
                .aggregate("n", n.to_string())
        })
        .collect();
    harness.enqueue(&events).await.expect("enqueues");
    let claimed = harness.store.claim(&request(1000)).await.expect("claims");
    let order: Vec<Uuid> = claimed.iter().map(|delivery| delivery.event.id).collect();
    assert_eq!(order, events.iter().map(|event| event.id).collect::<Vec<_>>());
    harness.clean_up().await;
}

/// An event with a value in every field that it may have together with the others.
fn full_event(n: u32) -> Event {
    Event::new("shop", "orders")
        .event_type("OrderCreated")
        .version(3)
        .aggregate("order", n.to_string())
        .ordering_key(format!("order-{n}"))
        .severity("high")
        .header("source", "web")
        .destination("broker")
        .json_text(format!("{{\"order\": {n}}}"))
}

/// Batches of each kind that has a statement of its own: with and without dedupe keys, alike and mixed.
fn batches() -> Vec<Vec<Event>> {
    let tenant = Uuid::from_u128(7);
    let keyed = |n: u32| format!("{tenant}/{n}");
    let mut encoded = full_event(6).bytes(&b"\x00\xff"[..], "application/x-shop");
    encoded.content_encoding = Some("br".to_owned());
    let later = SystemClock.wall().replace_nanosecond(0).expect("a time") + Duration::from_secs(3600);
    let mixed = vec![
        full_event(1).tenant(tenant),
        Event::new("shop", "stock"),
        Event::new("shop", "stock").deliver_at(later).header("a", "b"),
        encoded,
    ];
    let with_keys = |events: &[Event]| -> Vec<Event> {
        let events = events.iter().rev().zip(0..);
        // Every other event has a key, so that those without one are sorted among them.
        let with_key = |(event, n): (&Event, u32)| match n % 2 {
            0 => event.clone().id(Uuid::now_v7()).dedupe_key(keyed(n)),
            _ => event.clone().id(Uuid::now_v7()),
        };
        events.map(with_key).collect()
    };
    let alike: Vec<Event> = (0..4).map(full_event).collect();
    vec![with_keys(&alike), with_keys(&mixed), alike, mixed]
}

#[tokio::test]
async fn every_batch_is_stored_as_it_was_given() {
    let harness = PostgresHarness::direct().await;
    for outbox in [harness.outbox(), harness.outbox().prepared()] {
        for events in batches() {
            harness.execute("delete from pillarbox.outbox_events").await;
            let mut transaction = harness.pool.begin().await.expect("begins");
            let enqueued = outbox.enqueue_all(&mut transaction, &events).await;
            assert!(enqueued.expect("enqueues").into_iter().all(Enqueued::is_new));
            let stored = outbox.enqueued(&mut transaction).await.expect("reads");
            assert_eq!(stored, events);
            transaction.commit().await.expect("commits");
        }
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn a_batch_with_duplicates_tells_which_events_are_new() {
    let harness = PostgresHarness::direct().await;
    let keyed = |key: &str| Event::new("shop", "orders").dedupe_key(key);
    let before = keyed("m");
    harness.enqueue(std::slice::from_ref(&before)).await.expect("new");
    let events = [
        keyed("z"),
        keyed("m"),
        Event::new("shop", "orders"),
        keyed("a"),
        keyed("z"),
        before.clone(), // the same event once more, with its id
    ];
    let enqueued = harness.enqueue(&events).await.expect("enqueues");
    let expected = [
        Enqueued::New(events[0].id),
        Enqueued::Duplicate(before.id),
        Enqueued::New(events[2].id),
        Enqueued::New(events[3].id),
        Enqueued::Duplicate(events[0].id),
        Enqueued::Duplicate(before.id),
    ];
    assert_eq!(enqueued, expected);
    harness.clean_up().await;
}

#[tokio::test]
async fn an_id_that_is_taken_is_an_error_that_says_so() {
    let harness = PostgresHarness::direct().await;
    let event = Event::new("shop", "orders");
    harness.enqueue(std::slice::from_ref(&event)).await.expect("new");
    let again = harness.enqueue(std::slice::from_ref(&event)).await;
    assert!(
        matches!(again, Err(EnqueueError::IdTaken(id)) if id == event.id),
        "{again:?}"
    );
    harness.clean_up().await;
}

#[tokio::test]
async fn json_that_only_the_database_refuses_is_a_clear_error() {
    let harness = PostgresHarness::direct().await;
    for text in [r#"{"a": "\ud800"}"#, r#"{"a": 1e999999}"#] {
        let event = Event::new("shop", "orders").json_text(text);
        let refused = harness.enqueue(&[event]).await;
        assert!(
            matches!(refused, Err(EnqueueError::Payload(_))),
            "{text}: {refused:?}"
        );
    }
    assert_eq!(harness.store.claim(&request(10)).await.expect("claims"), []);
    harness.clean_up().await;
}

#[tokio::test]
async fn a_payload_that_shrinks_in_the_table_still_counts_at_its_full_size() {
    let harness = PostgresHarness::direct().await;
    let large = format!("{{\"pad\": \"{}\"}}", "x".repeat(1 << 20));
    let events: Vec<Event> = (0..8)
        .map(|_| Event::new("shop", "orders").json_text(large.clone()))
        .collect();
    let mut connection = harness.pool.acquire().await.expect("connects");
    // The table's own compression is what counts here.
    let outbox = harness.outbox().compress_over(None);
    let enqueued = outbox.enqueue_all(&mut connection, &events).await;
    assert_eq!(enqueued.expect("enqueues").len(), 8);
    drop(connection);
    let claimed = harness
        .store
        .claim(&ClaimRequest {
            max_bytes: (3 << 20) + 1000,
            ..request(100)
        })
        .await
        .expect("claims");
    assert_eq!(claimed.len(), 3, "of 1 MiB each");
    harness.clean_up().await;
}

#[tokio::test]
async fn producers_behind_pgbouncer_need_no_setting() {
    let harness = PostgresHarness::direct().await;
    let pool = sqlx::PgPool::connect_lazy(&variable("PILLARBOX_TEST_PGBOUNCER_URL")).expect("a URL");
    let producers = (0..8).map(|producer| {
        let (pool, outbox) = (pool.clone(), harness.outbox());
        tokio::spawn(async move {
            for n in 0..10 {
                // Each takes another number of statements, so that their names would not agree.
                let mut transaction = pool.begin().await.expect("begins");
                let event = || Event::new("shop", "orders").dedupe_key(format!("{producer}-{n}"));
                if producer % 2 == 0 {
                    outbox
                        .enqueue(&mut transaction, &event())
                        .await
                        .expect("enqueues");
                }
                outbox
                    .enqueue_all(&mut transaction, &[event(), event()])
                    .await
                    .expect("enqueues");
                transaction.commit().await.expect("commits");
            }
        })
    });
    for producer in producers.collect::<Vec<_>>() {
        producer.await.expect("no statement of another");
    }
    assert_eq!(
        harness.store.claim(&request(1000)).await.expect("claims").len(),
        80
    );
    harness.clean_up().await;
}

#[tokio::test]
async fn a_producer_may_keep_its_statements_prepared() {
    let harness = PostgresHarness::direct().await;
    let outbox = harness.outbox().prepared();
    let mut connection = harness.pool.acquire().await.expect("connects");
    for _ in 0..3 {
        outbox
            .enqueue(&mut connection, &Event::new("shop", "orders"))
            .await
            .expect("enqueues");
    }
    let named: i64 = sqlx::query_scalar(
        "select count(*) from pg_prepared_statements where statement like '%outbox_events%'",
    )
    .persistent(false)
    .fetch_one(&mut *connection)
    .await
    .expect("counts");
    assert_eq!(named, 1);
    drop(connection);
    harness.clean_up().await;
}

/// They have the same `seq`, and the same verdict at the same time makes them due at the same time.
#[tokio::test]
async fn retried_members_of_a_family_share_a_claim() {
    let harness = PostgresHarness::direct().await;
    harness
        .execute(
            "insert into pillarbox.outbox_events (seq, namespace, topic, payload, created_at, next_attempt_at, attempts)
             select 7, 'shop', 'orders', '{}', now() - interval '1 hour', now() - interval '1 minute', 1 from generate_series(1, 2)",
        )
        .await;
    // An even claim keeps one place of three for rows that have waited.
    let request = ClaimRequest {
        claim: Uuid::from_u128(2),
        ..request(3)
    };
    assert_eq!(harness.store.claim(&request).await.expect("claims").len(), 2);
    harness.clean_up().await;
}
