//! The store fails: before a call, after it, for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pillarbox::Outcome;
use pillarbox_testkit::fakes::{FakeSink, Fault};

use crate::fixture::{Fixture, event, ms, s, until};

/// Fails the first `count` calls of one method.
fn first(method: &'static str, count: usize, fault: Fault) -> impl Fn(&'static str) -> Fault + Send + Sync {
    let left = AtomicUsize::new(count);
    move |called| {
        let spend = |left: usize| left.checked_sub(1);
        if called == method
            && left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend)
                .is_ok()
        {
            fault
        } else {
            Fault::None
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_unavailable_at_first_is_retried() {
    let fixture = Fixture::failing(first("claim", 5, Fault::Before));
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    fixture.enqueue(event());
    fixture.until(1, "delivered").await;
    let done = worker.stop().await;
    assert_eq!((done.store_errors, done.delivered), (5, 1));
}

/// A fixture whose store fails while the switch is on: calls of `method`, or all calls.
fn switched(method: Option<&'static str>) -> (Fixture, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&fails);
    let applies = move |called| switch.load(Ordering::SeqCst) && method.is_none_or(|method| method == called);
    let fixture = Fixture::failing(move |called| match applies(called) {
        true => Fault::Before,
        false => Fault::None,
    });
    (fixture, fails)
}

/// Sends 50 events while settling fails for longer than a lease; each arrives once.
async fn outlast(method: Option<&'static str>) {
    let (fixture, fails) = switched(method);
    let ids = fixture.enqueue_many(50);
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(s(1)).await;
        Outcome::Delivered
    });
    let worker = fixture.start(&sink);
    until("all are being sent", || sink.running() == 50).await;
    fails.store(true, Ordering::SeqCst);
    tokio::time::sleep(s(600)).await;
    assert_eq!(fixture.count("processing").await, 50);
    fails.store(false, Ordering::SeqCst);
    fixture.until(50, "delivered").await;
    let done = worker.stop().await;
    assert_eq!((done.delivered, done.lost), (50, 0));
    assert_eq!(sink.delivered(), ids, "nothing was sent twice");
}

#[tokio::test(start_paused = true)]
async fn settlements_are_kept_while_the_store_is_unavailable() {
    outlast(None).await;
}

#[tokio::test(start_paused = true)]
async fn rows_that_wait_to_be_settled_are_not_claimed_again_by_the_same_worker() {
    outlast(Some("settle")).await;
}

#[tokio::test(start_paused = true)]
async fn claims_stop_while_nothing_can_be_settled() {
    let mut fixture = Fixture::failing(|method| match method {
        "settle" => Fault::Before,
        _ => Fault::None,
    });
    fixture.settings.max_in_flight = 30;
    fixture.settings.batch = 10;
    fixture.enqueue_many(100);
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    tokio::time::sleep(s(40)).await;
    assert!(sink.ledger().len() <= 30, "{} were sent", sink.ledger().len());
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_store_is_called_with_backoff() {
    let fixture = Fixture::failing(|_| Fault::Before);
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    tokio::time::sleep(s(30)).await;
    let before = fixture.store.total();
    tokio::time::sleep(s(60)).await;
    let calls = fixture.store.total() - before;
    // Finder, sweeper, rerouter, unblocker, sampler and heartbeat, each every 2.5 to 5 s: at most 24 times a minute.
    assert!((40..=150).contains(&calls), "{calls} calls in a minute");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_settle_whose_answer_was_lost_sends_nothing_twice() {
    let fixture = Fixture::failing(first("settle", 1, Fault::After));
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    let id = fixture.enqueue(event());
    fixture.until(1, "delivered").await;
    until("it was retried", || worker.counters.snapshot().lost == 1).await;
    let done = worker.stop().await;
    assert_eq!((done.lost, done.store_errors), (1, 1));
    assert_eq!(sink.delivered(), [id]);
}

#[tokio::test(start_paused = true)]
async fn rows_of_a_claim_whose_answer_was_lost_come_back_when_its_lease_expires() {
    let fixture = Fixture::failing(first("claim", 1, Fault::After));
    let ids = fixture.enqueue_many(3);
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    until("they are claimed", || fixture.store.calls().contains_key("claim")).await;
    assert_eq!(fixture.count("processing").await, 3);
    fixture.until(3, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), ids);
    assert_eq!(
        fixture.row(ids[0]).await.attempts,
        2,
        "a claim counts as an attempt, answered or not"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_loses_and_duplicates_nothing() {
    let fixture = Fixture::failing(|method| match method {
        "claim" | "settle" => Fault::Slow(ms(300)),
        _ => Fault::None,
    });
    let ids = fixture.enqueue_many(200);
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    fixture.until(200, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), ids);
}
