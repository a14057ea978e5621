//! One owner: what a worker may still do when its lease is over.

use std::sync::Arc;

use pillarbox::clock::TokioClock;
use pillarbox::{Delivery, Outcome};
use pillarbox_store::store::{ClaimRequest, Take};
use pillarbox_store::{Scope, Store};
use pillarbox_testkit::fakes::{FakeSink, Fault, JumpingClock};
use uuid::Uuid;

use crate::world::{EPOCH, World, destination, event, s, until};

fn slow(seconds: u64) -> FakeSink {
    FakeSink::scripted(move |_| async move {
        tokio::time::sleep(s(seconds)).await;
        Outcome::Delivered
    })
}

/// Takes everything whose lease ran out, as another worker would.
async fn steal(world: &World) -> Vec<Delivery> {
    let request = ClaimRequest {
        worker: Uuid::from_u128(0xBAD),
        claim: Uuid::now_v7(),
        lease: s(1_000),
        take: Take::Suspects(100),
        excluded: vec![],
        first_lane: 0,
        max_bytes: usize::MAX,
        scope: Scope::All,
        max_attempts: 25,
    };
    world.outbox.claim(&request).await.expect("memory answers")
}

/// A world whose machine can be suspended.
fn suspendable() -> (World, JumpingClock) {
    let clock = JumpingClock::new(Arc::new(TokioClock::starting_at(EPOCH)));
    (World::with_clock(Arc::new(clock.clone()), |_| Fault::None), clock)
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_answered_after_its_lease_starts_no_send() {
    let late = std::sync::atomic::AtomicBool::new(true);
    let world = World::failing(move |method| {
        let is_first = method == "claim" && late.swap(false, std::sync::atomic::Ordering::SeqCst);
        if is_first { Fault::Slow(s(65)) } else { Fault::None }
    });
    let id = world.enqueue(event());
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    world.until(1, "delivered").await;
    let done = worker.stop().await;
    assert_eq!((done.claimed, done.released, done.delivered), (2, 1, 1));
    assert_eq!((sink.ledger().len(), world.row(id).await.attempts), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_suspended_worker_sends_nothing_stale() {
    let (world, clock) = suspendable();
    world.enqueue_many(10);
    let sink = slow(5);
    let mut there = destination("there", &sink);
    there.concurrency = 1;
    let worker = world.start_with(vec![there], vec![]);
    until("the first is under way", || sink.under_way() == 1).await;
    clock.jump(s(120));
    assert_eq!(steal(&world).await.len(), 10);
    until("everything is known to be lost", || {
        worker.counters.snapshot().lost == 10
    })
    .await;
    worker.stop().await;
    assert_eq!(sink.ledger().len(), 1, "only what was under way before");
    let rows = world.rows().await;
    assert!(
        rows.iter()
            .all(|row| row.locked_by == Some(Uuid::from_u128(0xBAD)) && row.attempts == 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_slept_and_was_not_missed_goes_on() {
    let (world, clock) = suspendable();
    let ids = world.enqueue_many(10);
    let sink = slow(5);
    let mut there = destination("there", &sink);
    there.concurrency = 1;
    let worker = world.start_with(vec![there], vec![]);
    until("the first is under way", || sink.under_way() == 1).await;
    clock.jump(s(120));
    world.until(10, "delivered").await;
    worker.stop().await;
    let mut sent = sink.delivered();
    sent.dedup();
    assert_eq!(sent.len(), 10);
    assert!(ids.iter().all(|id| sent.contains(id)));
}

#[tokio::test(start_paused = true)]
async fn a_lost_settle_is_reported_and_never_nacked() {
    let (world, clock) = suspendable();
    let id = world.enqueue(event());
    let sink = slow(5);
    let worker = world.start(&sink);
    until("it is under way", || sink.under_way() == 1).await;
    clock.jump(s(61));
    assert_eq!(steal(&world).await.len(), 1);
    let taken = world.row(id).await;
    until("the loss is counted", || worker.counters.snapshot().lost == 1).await;
    tokio::time::sleep(s(30)).await;
    assert_eq!(world.row(id).await, taken, "the other's row is as it was");
    let done = worker.stop().await;
    assert_eq!((done.lost, done.delivered, done.retried), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn rows_that_wait_for_long_keep_their_lease() {
    let world = World::new();
    world.enqueue_many(12);
    let sink = slow(19);
    let mut there = destination("there", &sink);
    there.concurrency = 1;
    let worker = world.start_with(vec![there], vec![]);
    world.until(12, "delivered").await;
    let done = worker.stop().await;
    assert_eq!((done.claimed, done.lost, done.released), (12, 0, 0));
    assert!(world.rows().await.iter().all(|row| row.attempts == 1));
    assert!(world.store.calls()["renew"] >= 7, "{:?}", world.store.calls());
}

#[tokio::test(start_paused = true)]
async fn a_send_is_dropped_when_its_lease_ends_and_nothing_is_settled() {
    let world = World::failing(|method| match method {
        "renew" => Fault::Before,
        _ => Fault::None,
    });
    world.enqueue_many(4);
    // The fourth begins at 57 s; its lease is over at 59 s.
    let sink = slow(19);
    let mut there = destination("there", &sink);
    there.concurrency = 1;
    let worker = world.start_with(vec![there], vec![]);
    until("the lease ends under the fourth", || {
        worker.counters.snapshot().lost == 1
    })
    .await;
    assert_eq!(sink.delivered().len(), 3);
    assert_eq!(sink.under_way(), 0);
    world.until(4, "delivered").await;
    worker.stop().await;
    let attempts: Vec<i32> = world.rows().await.iter().map(|row| row.attempts).collect();
    assert_eq!(attempts, [1, 1, 1, 2]);
}
