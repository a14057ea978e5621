//! The store fails: before the fact, after it, for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pillarbox::Outcome;
use pillarbox_testkit::fakes::{FakeSink, Fault};

use crate::world::{World, event, ms, s, until};

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
async fn a_store_that_is_away_at_first_is_waited_for() {
    let world = World::failing(first("claim", 5, Fault::Before));
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    world.enqueue(event());
    world.until(1, "delivered").await;
    let done = worker.stop().await;
    assert_eq!((done.store_errors, done.delivered), (5, 1));
}

/// A world in which, while the switch is on, calls of `method` fail, or all calls if there is none.
fn switched(method: Option<&'static str>) -> (World, Arc<AtomicBool>) {
    let gone = Arc::new(AtomicBool::new(false));
    let plan = Arc::clone(&gone);
    let fails = move |called| plan.load(Ordering::SeqCst) && method.is_none_or(|method| method == called);
    let world = World::failing(move |called| match fails(called) {
        true => Fault::Before,
        false => Fault::None,
    });
    (world, gone)
}

/// Sends 50 events while settling fails for far longer than a lease; each arrives once.
async fn outlast(method: Option<&'static str>) {
    let (world, gone) = switched(method);
    let ids = world.enqueue_many(50);
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(s(1)).await;
        Outcome::Delivered
    });
    let worker = world.start(&sink);
    until("all are under way", || sink.under_way() == 50).await;
    gone.store(true, Ordering::SeqCst);
    tokio::time::sleep(s(600)).await;
    assert_eq!(world.count("processing").await, 50);
    gone.store(false, Ordering::SeqCst);
    world.until(50, "delivered").await;
    let done = worker.stop().await;
    assert_eq!((done.delivered, done.lost), (50, 0));
    assert_eq!(sink.delivered(), ids, "nothing was sent twice");
}

#[tokio::test(start_paused = true)]
async fn when_the_store_is_gone_settlements_are_kept() {
    outlast(None).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_to_be_settled_is_not_claimed_again_by_the_same_worker() {
    outlast(Some("settle")).await;
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_gone_nothing_more_is_taken() {
    let mut world = World::failing(|method| match method {
        "settle" => Fault::Before,
        _ => Fault::None,
    });
    world.settings.max_in_flight = 30;
    world.settings.batch = 10;
    world.enqueue_many(100);
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    tokio::time::sleep(s(40)).await;
    assert!(sink.ledger().len() <= 30, "{} were sent", sink.ledger().len());
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_gone_is_asked_less_and_less() {
    let world = World::failing(|_| Fault::Before);
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    tokio::time::sleep(s(30)).await;
    let before = world.store.total();
    tokio::time::sleep(s(60)).await;
    let asked = world.store.total() - before;
    // Scout, sweeper, usher and heart, each every 2.5 to 5 s.
    assert!((40..=110).contains(&asked), "{asked} calls in a minute");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_settle_whose_answer_was_lost_sends_nothing_again() {
    let world = World::failing(first("settle", 1, Fault::After));
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    let id = world.enqueue(event());
    world.until(1, "delivered").await;
    until("it was tried again", || worker.counters.snapshot().lost == 1).await;
    let done = worker.stop().await;
    assert_eq!((done.lost, done.store_errors), (1, 1));
    assert_eq!(sink.delivered(), [id]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_comes_back_when_its_lease_ends() {
    let world = World::failing(first("claim", 1, Fault::After));
    let ids = world.enqueue_many(3);
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    until("they are taken", || world.store.calls().contains_key("claim")).await;
    assert_eq!(world.count("processing").await, 3);
    world.until(3, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), ids);
    assert_eq!(
        world.row(ids[0]).await.attempts,
        2,
        "a claim counts, answered or not"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_is_slow_and_nothing_worse() {
    let world = World::failing(|method| match method {
        "claim" | "settle" => Fault::Slow(ms(300)),
        _ => Fault::None,
    });
    let ids = world.enqueue_many(200);
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    world.until(200, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), ids);
}
