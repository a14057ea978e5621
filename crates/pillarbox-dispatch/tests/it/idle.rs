//! An idle worker: few statements, short latency.

use std::time::Duration;

use pillarbox::{Event, Outcome};
use pillarbox_dispatch::WakeBy;
use pillarbox_store::Operate;
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::fakes::{FakeSink, Fault};
use tokio::time::Instant;

use crate::fixture::{Fixture, destination, event, ms, retries, s, until};

/// How many statements per second an idle worker makes.
async fn statements_per_second(fixture: &Fixture) -> f64 {
    tokio::time::sleep(s(5)).await;
    let before = fixture.store.total();
    tokio::time::sleep(s(100)).await;
    let asked = u32::try_from(fixture.store.total() - before).expect("few");
    f64::from(asked) / 100.0
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_searches_about_twice_a_second() {
    let fixture = Fixture::new();
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    fixture.enqueue(event());
    fixture.until(1, "delivered").await;
    let asked = statements_per_second(&fixture).await;
    assert!(asked < 2.4, "{asked} a second: {:?}", fixture.store.calls());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_without_quotas_is_asked_for_them_once() {
    let fixture = Fixture::new();
    let worker = fixture.start(&FakeSink::willing());
    tokio::time::sleep(s(60)).await;
    assert_eq!(fixture.store.calls()["count_quotas"], 1);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_for_a_retry_is_idle_too() {
    let fixture = Fixture::new();
    let sink = FakeSink::answering(|_| Outcome::Retry {
        reason: "try again tomorrow".into(),
        after: Some(s(24 * 3600)),
    });
    let worker = fixture.start(&sink);
    fixture.enqueue(event());
    until("it failed", || worker.counters.snapshot().retried == 1).await;
    let asked = statements_per_second(&fixture).await;
    assert!(asked < 2.4, "{asked} a second: {:?}", fixture.store.calls());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_no_claim_takes_keeps_no_worker_busy() {
    // Its attempts are used up and its worker is dead: only a sweep changes it, one lease later.
    let mut fixture = Fixture::new();
    fixture.settings.max_attempts = 1;
    fixture.settings.lease = s(300);
    let hanging = FakeSink::hanging();
    let mut there = destination("there", &hanging);
    there.policy.timeout = s(140);
    fixture.enqueue(event());
    let worker = fixture.start_with(vec![there], vec![]);
    until("it is being sent", || hanging.running() == 1).await;
    worker.kill().await;
    tokio::time::sleep(s(301)).await;
    let worker = fixture.start(&FakeSink::willing());
    let asked = statements_per_second(&fixture).await;
    assert!(asked < 2.4, "{asked} a second: {:?}", fixture.store.calls());
    fixture.until(1, "dead").await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn quiet_namespaces_cost_nothing() {
    let fixture = Fixture::new();
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    for n in 0..500 {
        fixture.enqueue(Event::new(format!("tenant-{n}"), "orders").ordering_key("k"));
    }
    fixture.until(500, "delivered").await;
    let busy = fixture.store.calls()["lease_lanes"];
    assert!(busy < 20, "{busy} requests for 500 namespaces");
    tokio::time::sleep(s(200)).await;
    let before = fixture.store.calls();
    let asked = statements_per_second(&fixture).await;
    assert!(asked < 2.4, "{asked} a second: {:?}", fixture.store.calls());
    let after = fixture.store.calls();
    for call in ["lease_lanes", "prune_lanes"] {
        assert_eq!(before[call], after[call], "{call}");
    }
    let workers = fixture.outbox.workers(&OPERATOR).await.expect("memory store");
    assert_eq!(workers[0].lanes, 0);
    // A namespace that wakes up has an owner at once.
    fixture.enqueue(Event::new("tenant-7", "orders").ordering_key("k"));
    fixture.wake.notify();
    let began = Instant::now();
    fixture.until(501, "delivered").await;
    assert!(began.elapsed() < ms(100), "{:?}", began.elapsed());
    worker.stop().await;
}

/// How long an event takes on a worker that has been idle for a minute.
async fn latency(notifies: bool) -> Duration {
    latency_in(&Fixture::new(), notifies).await
}

async fn latency_in(fixture: &Fixture, notifies: bool) -> Duration {
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    tokio::time::sleep(s(60) + ms(fastrand::u64(0..500))).await;
    let began = Instant::now();
    fixture.enqueue(event());
    if notifies {
        fixture.wake.notify();
    }
    until("it is delivered", || sink.delivered().len() == 1).await;
    worker.stop().await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_wake_makes_an_idle_worker_search_at_once() {
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
async fn a_plain_insert_is_noticed_by_a_watch_at_once() {
    let mut fixture = Fixture::new();
    fixture.settings.poll_interval = s(20);
    let took = latency_in(&fixture, false).await;
    assert!(took <= ms(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_watch_polls_and_tries_to_watch_again() {
    for method in ["watch", "watch_next"] {
        let fixture = Fixture::failing(move |call| {
            if call == method {
                Fault::Before
            } else {
                Fault::None
            }
        });
        let took = latency_in(&fixture, false).await;
        assert!(took <= ms(520), "{method}: {took:?}");
        let tried = fixture.store.calls()["watch"];
        assert!((12..100).contains(&tried), "{method}: {tried} in a minute");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_told_to_poll_does_not_watch() {
    let mut fixture = Fixture::new();
    fixture.settings.wake = WakeBy::Poll;
    let took = latency_in(&fixture, false).await;
    assert!(took <= ms(520), "{took:?}");
    assert!(!fixture.store.calls().contains_key("watch"));
}

#[tokio::test(start_paused = true)]
async fn a_retried_event_is_sent_when_it_is_due() {
    let fixture = Fixture::new();
    let sink = FakeSink::answering(|delivery| match delivery.attempts {
        1 => Outcome::Retry {
            reason: "not yet".into(),
            after: Some(ms(12_345)),
        },
        _ => Outcome::Delivered,
    });
    let worker = fixture.start(&sink);
    fixture.enqueue(event());
    until("it failed", || worker.counters.snapshot().retried == 1).await;
    let began = Instant::now();
    until("it is delivered", || worker.counters.snapshot().delivered == 1).await;
    let late = began.elapsed().saturating_sub(ms(12_345));
    assert!(late <= ms(200), "{late:?} late");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_single_event_is_settled_at_once() {
    let fixture = Fixture::new();
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    tokio::time::sleep(s(10)).await;
    fixture.enqueue(event());
    fixture.wake.notify();
    let began = Instant::now();
    fixture.until(1, "delivered").await;
    assert!(began.elapsed() <= ms(2), "{:?}", began.elapsed());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn settlements_are_written_in_batches() {
    let fixture = Fixture::new();
    fixture.enqueue_many(2_000);
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(fastrand::u64(1..8))).await;
        Outcome::Delivered
    });
    let mut there = destination("there", &sink);
    there.concurrency = 1_000;
    there.policy.retry = retries(5);
    let worker = fixture.start_with(vec![there], vec![]);
    fixture.until(2_000, "delivered").await;
    worker.stop().await;
    let settles = fixture.store.calls()["settle"];
    assert!(settles <= 12, "{settles} statements for 2,000 rows");
}
