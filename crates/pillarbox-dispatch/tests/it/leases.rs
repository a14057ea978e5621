//! What a worker may still do when its lease has expired.

use std::sync::Arc;

use pillarbox::clock::TokioClock;
use pillarbox::{Delivery, Event, Outcome};
use pillarbox_store::store::{ClaimRequest, Take};
use pillarbox_store::{Scope, Store};
use pillarbox_testkit::fakes::{FakeSink, Fault, JumpingClock};
use uuid::Uuid;

use crate::fixture::{EPOCH, Fixture, destination, event, keyed, route, s, until};

pub(crate) fn slow(seconds: u64) -> FakeSink {
    FakeSink::scripted(move |_| async move {
        tokio::time::sleep(s(seconds)).await;
        Outcome::Delivered
    })
}

/// Claims all rows whose lease has expired, as another worker would.
pub(crate) async fn steal(fixture: &Fixture) -> Vec<Delivery> {
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
    fixture.outbox.claim(&request).await.expect("memory store")
}

/// A fixture with a clock that counts suspension.
pub(crate) fn suspendable() -> (Fixture, JumpingClock) {
    let clock = JumpingClock::new(Arc::new(TokioClock::starting_at(EPOCH)));
    (
        Fixture::with_clock(Arc::new(clock.clone()), |_| Fault::None),
        clock,
    )
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_answered_after_its_lease_starts_no_send() {
    let late = std::sync::atomic::AtomicBool::new(true);
    let fixture = Fixture::failing(move |method| {
        let is_first = method == "claim" && late.swap(false, std::sync::atomic::Ordering::SeqCst);
        if is_first { Fault::Slow(s(65)) } else { Fault::None }
    });
    let id = fixture.enqueue(event());
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    fixture.until(1, "delivered").await;
    let done = worker.stop().await;
    assert_eq!((done.claimed, done.released, done.delivered), (2, 1, 1));
    assert_eq!((sink.ledger().len(), fixture.row(id).await.attempts), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_suspended_worker_sends_no_row_whose_lease_has_expired() {
    let (fixture, clock) = suspendable();
    fixture.enqueue_many(10);
    let sink = slow(5);
    let mut there = destination("there", &sink);
    there.concurrency = 1;
    let worker = fixture.start_with(vec![there], vec![]);
    until("the first is being sent", || sink.running() == 1).await;
    clock.jump(s(120));
    assert_eq!(steal(&fixture).await.len(), 10);
    until("all losses are counted", || worker.counters.snapshot().lost == 10).await;
    worker.stop().await;
    assert_eq!(sink.ledger().len(), 1, "only the one that was being sent before");
    let rows = fixture.rows().await;
    assert!(
        rows.iter()
            .all(|row| row.locked_by == Some(Uuid::from_u128(0xBAD)) && row.attempts == 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_suspended_keeps_rows_that_no_other_claimed() {
    let (fixture, clock) = suspendable();
    let ids = fixture.enqueue_many(10);
    let sink = slow(5);
    let mut there = destination("there", &sink);
    there.concurrency = 1;
    let worker = fixture.start_with(vec![there], vec![]);
    until("the first is being sent", || sink.running() == 1).await;
    clock.jump(s(120));
    fixture.until(10, "delivered").await;
    worker.stop().await;
    let mut sent = sink.delivered();
    sent.dedup();
    assert_eq!(sent.len(), 10);
    assert!(ids.iter().all(|id| sent.contains(id)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_expires_while_a_batch_panics_gives_no_attempt_back() {
    let (fixture, clock) = suspendable();
    let ids = fixture.enqueue_many(3);
    let panics = std::sync::atomic::AtomicBool::new(true);
    let sink = FakeSink::answering(move |_| {
        if panics.swap(false, std::sync::atomic::Ordering::SeqCst) {
            clock.jump(s(120));
            panic!("the machine was suspended");
        }
        Outcome::Delivered
    });
    let worker = fixture.start(&sink.batching());
    fixture.until(3, "delivered").await;
    let done = worker.stop().await;
    assert_eq!(done.released, 0);
    for id in ids {
        assert_eq!(fixture.row(id).await.attempts, 2, "the sink may have sent it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_lost_its_row_is_counted_and_changes_nothing() {
    let (fixture, clock) = suspendable();
    let id = fixture.enqueue(event());
    let sink = slow(5);
    let worker = fixture.start(&sink);
    until("it is being sent", || sink.running() == 1).await;
    clock.jump(s(61));
    assert_eq!(steal(&fixture).await.len(), 1);
    let taken = fixture.row(id).await;
    until("the loss is counted", || worker.counters.snapshot().lost == 1).await;
    tokio::time::sleep(s(30)).await;
    assert_eq!(
        fixture.row(id).await,
        taken,
        "the row of the other worker is unchanged"
    );
    let done = worker.stop().await;
    assert_eq!((done.lost, done.delivered, done.retried), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn leases_of_rows_that_wait_long_are_renewed() {
    let fixture = Fixture::new();
    fixture.enqueue_many(12);
    let sink = slow(19);
    let mut there = destination("there", &sink);
    there.concurrency = 1;
    let worker = fixture.start_with(vec![there], vec![]);
    fixture.until(12, "delivered").await;
    let done = worker.stop().await;
    assert_eq!((done.claimed, done.lost, done.released), (12, 0, 0));
    assert!(fixture.rows().await.iter().all(|row| row.attempts == 1));
    assert!(fixture.store.calls()["renew"] >= 7, "{:?}", fixture.store.calls());
}

#[tokio::test(start_paused = true)]
async fn a_send_is_dropped_when_its_lease_expires_and_nothing_is_settled() {
    let fixture = Fixture::failing(|method| match method {
        "renew" => Fault::Before,
        _ => Fault::None,
    });
    fixture.enqueue_many(4);
    // The fourth begins at 57 s; its lease expires at 59 s.
    let sink = slow(19);
    let mut there = destination("there", &sink);
    there.concurrency = 1;
    let worker = fixture.start_with(vec![there], vec![]);
    until("the lease of the fourth expires", || {
        worker.counters.snapshot().lost == 1
    })
    .await;
    assert_eq!(sink.delivered().len(), 3);
    assert_eq!(sink.running(), 0);
    fixture.until(4, "delivered").await;
    worker.stop().await;
    let attempts: Vec<i32> = fixture.rows().await.iter().map(|row| row.attempts).collect();
    assert_eq!(attempts, [1, 1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_sibling_is_renewed_while_its_row_waits_for_its_key() {
    let fixture = Fixture::new();
    let blocked = FakeSink::answering(|_| Outcome::Retry {
        reason: "not now".to_owned(),
        after: Some(s(3_600)),
    });
    let busy = slow(19);
    let destinations = vec![
        destination("blocked", &blocked),
        destination("busy", &busy).concurrency(1),
    ];
    let routes = vec![route("*", "blocked"), route("carts", "busy")];
    let worker = fixture.start_with(destinations, routes);
    let keys = ["a", "b", "c", "d", "e", "f"];
    for key in keys {
        fixture.enqueue(keyed(key));
    }
    let done = || worker.counters.snapshot();
    until("every first event fails", || done().retried == 6).await;
    // Their rows wait behind the first events. Their siblings wait for each other, the last for longer than a lease.
    for (claimed, key) in (7..).zip(keys) {
        fixture.enqueue(Event::new("shop", "carts").ordering_key(key));
        until("it is claimed", || done().claimed == claimed).await;
    }
    fixture.until(6, "delivered").await;
    let done = worker.stop().await;
    assert_eq!((done.claimed, done.lost, busy.ledger().len()), (12, 0, 6));
}
