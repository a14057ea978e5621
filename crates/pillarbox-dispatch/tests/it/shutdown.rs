//! How a worker stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pillarbox::Outcome;
use pillarbox_testkit::fakes::{FakeSink, Fault};

use crate::world::{World, destination, event, keyed, ms, s, until};

/// A sink that answers after so long.
fn slow(seconds: u64) -> FakeSink {
    FakeSink::scripted(move |_| async move {
        tokio::time::sleep(s(seconds)).await;
        Outcome::Delivered
    })
}

#[tokio::test(start_paused = true)]
async fn shutdown_releases_what_was_never_sent() {
    let world = World::new();
    world.enqueue_many(10);
    for _ in 0..10 {
        world.enqueue(keyed("k"));
    }
    let sink = slow(5);
    let mut there = destination("there", &sink);
    there.concurrency = 4;
    let worker = world.start_with(vec![there], vec![]);
    until("four are under way", || sink.under_way() == 4).await;
    let began = tokio::time::Instant::now();
    worker.cancel();
    world.until(16, "pending").await;
    assert!(
        began.elapsed() < ms(50),
        "given back at once, not after the others"
    );
    let done = worker.stop().await;
    assert_eq!((done.delivered, done.released, done.claimed), (4, 16, 20));
    for row in world.rows().await.iter().filter(|row| row.status == "pending") {
        assert_eq!((row.attempts, row.locked_by), (0, None));
        assert!(row.next_attempt_at <= row.updated_at);
    }
    assert!(sink.is_closed());
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_what_is_in_flight() {
    let world = World::new();
    world.enqueue(event());
    let sink = slow(15);
    let worker = world.start(&sink);
    until("it is under way", || sink.under_way() == 1).await;
    let done = worker.stop().await;
    assert_eq!((done.delivered, done.retried), (1, 0));
    assert_eq!(world.count("delivered").await, 1);
    assert_eq!(sink.ledger().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_gives_up_after_grace_and_the_attempt_counts() {
    let mut world = World::new();
    world.settings.grace = s(3);
    let id = world.enqueue(event());
    let sink = slow(15);
    let worker = world.start(&sink);
    until("it is under way", || sink.under_way() == 1).await;
    let began = tokio::time::Instant::now();
    let done = worker.stop().await;
    assert!(
        began.elapsed() >= s(3) && began.elapsed() < s(4),
        "{:?}",
        began.elapsed()
    );
    assert_eq!((done.delivered, done.retried), (0, 1));
    let row = world.row(id).await;
    assert_eq!((row.status.as_str(), row.attempts), ("pending", 1));
    assert_eq!(
        row.last_error.as_deref(),
        Some("shut down before the destination answered")
    );
    assert_eq!(sink.under_way(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_nothing_to_do_stops_at_once() {
    let world = World::new();
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    tokio::time::sleep(s(60)).await;
    let began = tokio::time::Instant::now();
    worker.stop().await;
    assert!(began.elapsed() < ms(20), "{:?}", began.elapsed());
    assert!(sink.is_closed());
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_even_when_the_store_is_gone() {
    let gone = Arc::new(AtomicBool::new(false));
    let plan = Arc::clone(&gone);
    let world = World::failing(move |_| match plan.load(Ordering::SeqCst) {
        true => Fault::Before,
        false => Fault::None,
    });
    world.enqueue(event());
    let sink = slow(2);
    let worker = world.start(&sink);
    until("it is under way", || sink.under_way() == 1).await;
    gone.store(true, Ordering::SeqCst);
    let began = tokio::time::Instant::now();
    let done = worker.stop().await;
    assert!(began.elapsed() < s(12), "{:?}", began.elapsed());
    assert_eq!(done.delivered, 0, "it could not be written");
    assert_eq!(world.count("processing").await, 1, "the lease will end");
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_even_when_the_store_never_answers() {
    let hangs = Arc::new(AtomicBool::new(false));
    let plan = Arc::clone(&hangs);
    let world = World::failing(move |_| match plan.load(Ordering::SeqCst) {
        true => Fault::Slow(s(1_000_000)),
        false => Fault::None,
    });
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    hangs.store(true, Ordering::SeqCst);
    tokio::time::sleep(s(30)).await;
    let began = tokio::time::Instant::now();
    worker.stop().await;
    assert!(began.elapsed() < s(36), "{:?}", began.elapsed());
}
