//! How a worker shuts down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pillarbox::Outcome;
use pillarbox_testkit::fakes::{FakeSink, Fault};

use crate::fixture::{Fixture, destination, event, keyed, ms, s, until};

/// A sink that answers after so long.
fn slow(seconds: u64) -> FakeSink {
    FakeSink::scripted(move |_| async move {
        tokio::time::sleep(s(seconds)).await;
        Outcome::Delivered
    })
}

#[tokio::test(start_paused = true)]
async fn shutdown_releases_unsent_rows() {
    let fixture = Fixture::new();
    fixture.enqueue_many(10);
    for _ in 0..10 {
        fixture.enqueue(keyed("k"));
    }
    let sink = slow(5);
    let mut there = destination("there", &sink);
    there.concurrency = 4;
    let worker = fixture.start_with(vec![there], vec![]);
    until("four are being sent", || sink.running() == 4).await;
    let began = tokio::time::Instant::now();
    worker.cancel();
    fixture.until(16, "pending").await;
    assert!(began.elapsed() < ms(50), "released at once, not after the others");
    let done = worker.stop().await;
    assert_eq!((done.delivered, done.released, done.claimed), (4, 16, 20));
    for row in fixture.rows().await.iter().filter(|row| row.status == "pending") {
        assert_eq!((row.attempts, row.locked_by), (0, None));
        assert!(row.next_attempt_at <= row.updated_at);
    }
    assert!(sink.is_closed());
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_running_attempts() {
    let fixture = Fixture::new();
    fixture.enqueue(event());
    let sink = slow(15);
    let worker = fixture.start(&sink);
    until("it is being sent", || sink.running() == 1).await;
    let done = worker.stop().await;
    assert_eq!((done.delivered, done.retried), (1, 0));
    assert_eq!(fixture.count("delivered").await, 1);
    assert_eq!(sink.ledger().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_drops_attempts_after_the_grace_time_and_they_count() {
    let mut fixture = Fixture::new();
    fixture.settings.grace = s(3);
    let id = fixture.enqueue(event());
    let sink = slow(15);
    let worker = fixture.start(&sink);
    until("it is being sent", || sink.running() == 1).await;
    let began = tokio::time::Instant::now();
    let done = worker.stop().await;
    assert!(
        began.elapsed() >= s(3) && began.elapsed() < s(4),
        "{:?}",
        began.elapsed()
    );
    assert_eq!((done.delivered, done.retried), (0, 1));
    let row = fixture.row(id).await;
    assert_eq!((row.status.as_str(), row.attempts), ("pending", 1));
    assert_eq!(
        row.last_error.as_deref(),
        Some("shut down before the destination answered")
    );
    assert_eq!(sink.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_stops_at_once() {
    let fixture = Fixture::new();
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    tokio::time::sleep(s(60)).await;
    let began = tokio::time::Instant::now();
    worker.stop().await;
    assert!(began.elapsed() < ms(20), "{:?}", began.elapsed());
    assert!(sink.is_closed());
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_even_when_the_store_is_unavailable() {
    let gone = Arc::new(AtomicBool::new(false));
    let plan = Arc::clone(&gone);
    let fixture = Fixture::failing(move |_| match plan.load(Ordering::SeqCst) {
        true => Fault::Before,
        false => Fault::None,
    });
    fixture.enqueue(event());
    let sink = slow(2);
    let worker = fixture.start(&sink);
    until("it is being sent", || sink.running() == 1).await;
    gone.store(true, Ordering::SeqCst);
    let began = tokio::time::Instant::now();
    let done = worker.stop().await;
    assert!(began.elapsed() < s(12), "{:?}", began.elapsed());
    assert_eq!(done.delivered, 0, "it could not be settled");
    assert_eq!(fixture.count("processing").await, 1, "the lease will expire");
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_even_when_the_store_never_answers() {
    let hangs = Arc::new(AtomicBool::new(false));
    let plan = Arc::clone(&hangs);
    let fixture = Fixture::failing(move |_| match plan.load(Ordering::SeqCst) {
        true => Fault::Slow(s(1_000_000)),
        false => Fault::None,
    });
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    hangs.store(true, Ordering::SeqCst);
    tokio::time::sleep(s(30)).await;
    let began = tokio::time::Instant::now();
    worker.stop().await;
    assert!(began.elapsed() < s(36), "{:?}", began.elapsed());
}
