//! Quick and quiet.

use std::time::Duration;

use pillarbox::Outcome;
use pillarbox_testkit::fakes::FakeSink;
use tokio::time::Instant;

use crate::world::{World, destination, event, ms, retries, s, until};

/// How many questions a second a worker asks that has settled down.
async fn questions_per_second(world: &World) -> f64 {
    tokio::time::sleep(s(5)).await;
    let before = world.store.total();
    tokio::time::sleep(s(100)).await;
    let asked = u32::try_from(world.store.total() - before).expect("few");
    f64::from(asked) / 100.0
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_asks_about_twice_a_second() {
    let world = World::new();
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    world.enqueue(event());
    world.until(1, "delivered").await;
    let asked = questions_per_second(&world).await;
    assert!(asked < 2.4, "{asked} a second: {:?}", world.store.calls());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_for_a_retry_is_quiet_too() {
    let world = World::new();
    let sink = FakeSink::answering(|_| Outcome::Retry {
        reason: "come back tomorrow".into(),
        after: Some(s(24 * 3600)),
    });
    let worker = world.start(&sink);
    world.enqueue(event());
    until("it failed", || worker.counters.snapshot().retried == 1).await;
    let asked = questions_per_second(&world).await;
    assert!(asked < 2.4, "{asked} a second: {:?}", world.store.calls());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_no_claim_takes_does_not_keep_a_worker_busy() {
    // Its attempts are used up and its worker is gone: only a sweep may touch it, a lease later.
    let mut world = World::new();
    world.settings.max_attempts = 1;
    world.settings.lease = s(300);
    let hanging = FakeSink::hanging();
    let mut there = destination("there", &hanging);
    there.policy.timeout = s(140);
    world.enqueue(event());
    let worker = world.start_with(vec![there], vec![]);
    until("it is under way", || hanging.under_way() == 1).await;
    worker.kill().await;
    tokio::time::sleep(s(301)).await;
    let worker = world.start(&FakeSink::willing());
    let asked = questions_per_second(&world).await;
    assert!(asked < 2.4, "{asked} a second: {:?}", world.store.calls());
    world.until(1, "dead").await;
    worker.stop().await;
}

/// How long an event takes on a worker that has been idle for a minute.
async fn latency(rings: bool) -> Duration {
    let world = World::new();
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    tokio::time::sleep(s(60) + ms(fastrand::u64(0..500))).await;
    let began = Instant::now();
    world.enqueue(event());
    if rings {
        world.wake.ring();
    }
    until("it is delivered", || sink.delivered().len() == 1).await;
    worker.stop().await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_wake_is_heard() {
    let took = latency(true).await;
    assert!(took <= ms(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_plain_insert_on_an_idle_system_is_delivered_within_a_second() {
    for _ in 0..10 {
        let took = latency(false).await;
        assert!(took <= ms(520), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_event_is_settled_at_once() {
    let world = World::new();
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    tokio::time::sleep(s(10)).await;
    world.enqueue(event());
    world.wake.ring();
    let began = Instant::now();
    world.until(1, "delivered").await;
    assert!(began.elapsed() <= ms(2), "{:?}", began.elapsed());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn settlements_go_in_batches() {
    let world = World::new();
    world.enqueue_many(2_000);
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(fastrand::u64(1..8))).await;
        Outcome::Delivered
    });
    let mut there = destination("there", &sink);
    there.concurrency = 1_000;
    there.policy.retry = retries(5);
    let worker = world.start_with(vec![there], vec![]);
    world.until(2_000, "delivered").await;
    worker.stop().await;
    let settles = world.store.calls()["settle"];
    assert!(settles <= 12, "{settles} statements for 2,000 rows");
}
