//! One bad event among good ones: only it ends dead.

use std::time::{Duration, Instant};

use serde_json::json;
use uuid::Uuid;

use super::door::{Door, Manners};
use super::patience::Weight;
use super::world::{Tuning, World};

const ATTEMPTS: u32 = 5;

fn tuning() -> Tuning {
    Tuning {
        max_attempts: ATTEMPTS,
        ..Tuning::hasty()
    }
}

/// The row of an event: its attempts, and why it is dead.
async fn row(world: &World, id: Uuid) -> (i32, String) {
    sqlx::query_as("select attempts, coalesce(last_error, '') from pillarbox.outbox_events where id = $1")
        .bind(id)
        .fetch_one(&world.pool)
        .await
        .expect("the row is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn an_event_that_kills_its_worker_is_the_only_one_to_die() {
    let world = World::new(Weight::Heavy).await;
    commit_many(&world, 500).await;
    let poison = world.producer.commit_one("poison", json!({"order": 0})).await;
    commit_many(&world, 500).await;

    let began = Instant::now();
    let start = || world.start_with(&tuning(), &[("PILLARBOX_ABORT_ON_EVENT_TYPE", "poison")]);
    let mut daemon = start();
    let mut deaths = 0;
    while !world.is_done().await {
        if daemon.ended().is_some() {
            deaths += 1;
            daemon = start();
        }
        assert!(
            began.elapsed() < Duration::from_secs(180),
            "after {deaths} deaths it is not over"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    daemon.stop().await;

    let (attempts, reason) = row(&world, poison).await;
    assert_eq!(attempts, 5, "{reason}");
    // On a machine that is too busy a lease may end before the send: an attempt that kills nobody.
    assert!((3..=5).contains(&deaths), "{deaths} deaths");
    assert!(!reason.is_empty(), "it does not say why it is dead");
    let report = world.reckon("a poison that aborts", &[poison]).await;
    assert_eq!(report.events, 1001);
}

async fn commit_many(world: &World, orders: usize) {
    for _ in 0..orders / 50 {
        world.producer.transaction(50).await.expect("commits");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_closes_the_connection_is_the_only_one_to_die() {
    let world = World::new(Weight::Heavy).await;
    let manners = Manners {
        slams_at: Some(b"slam the door".to_vec()),
        ..Manners::default()
    };
    let door = Door::open(world.amqp(), manners).await;
    commit_many(&world, 100).await;
    let poison = world
        .producer
        .commit_one("Bad", json!({"note": "slam the door"}))
        .await;
    commit_many(&world, 100).await;
    let daemon = world.start(&Tuning {
        amqp: Some(door.url(world.amqp())),
        ..tuning()
    });
    world.done().await;
    daemon.stop().await;

    let (attempts, reason) = row(&world, poison).await;
    assert_eq!(attempts, 5);
    assert!(reason.contains("connection"), "{reason}");
    assert!(
        (3..=5).contains(&door.slammed()),
        "{} connections were closed",
        door.slammed()
    );
    let report = world
        .reckon("a poison that closes the connection", &[poison])
        .await;
    assert!(
        report.duplicates <= door.slammed() * tuning().in_flight,
        "{report}"
    );
}

/// The brokers of the tests take 20 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_the_broker_finds_too_large_is_dead_at_once() {
    let world = World::new(Weight::Heavy).await;
    commit_many(&world, 100).await;
    let blob = "x".repeat(21 * 1024 * 1024);
    let large = world.producer.commit_one("Large", json!({ "blob": blob })).await;
    commit_many(&world, 100).await;
    let daemon = world.start(&Tuning {
        timeout: Duration::from_secs(20),
        lease: Duration::from_secs(60),
        ..tuning()
    });
    world.done().await;
    daemon.stop().await;

    let (attempts, reason) = row(&world, large).await;
    assert_eq!(attempts, 1, "{reason}");
    assert!(reason.contains("max size"), "{reason}");
    let report = world.reckon("a message over the broker's limit", &[large]).await;
    assert_eq!(report.duplicates, 0);
}
