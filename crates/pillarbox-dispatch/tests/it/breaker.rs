//! A destination that is unavailable, throttled or disabled.

use std::collections::BTreeMap;

use pillarbox::Outcome;
use pillarbox_store::Operate;
use pillarbox_store::store::BreakerState;
use pillarbox_testkit::fakes::FakeSink;

use crate::fixture::{EPOCH, Fixture, destination, event, s, until};

/// A sink whose destination is unavailable while it is away.
fn sometimes_unavailable() -> FakeSink {
    use std::sync::OnceLock;
    let own: std::sync::Arc<OnceLock<FakeSink>> = std::sync::Arc::default();
    let inner = std::sync::Arc::clone(&own);
    let sink = FakeSink::answering(move |_| match inner.get().is_some_and(FakeSink::is_away) {
        true => Outcome::unavailable("connection refused"),
        false => Outcome::Delivered,
    });
    assert!(own.set(sink.clone()).is_ok());
    sink
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_destination_uses_no_attempts_and_a_health_check_closes_the_breaker() {
    let fixture = Fixture::new();
    let sink = sometimes_unavailable();
    sink.set_away(true);
    let worker = fixture.start(&sink);
    let ids = fixture.enqueue_many(500);
    tokio::time::sleep(s(300)).await;
    let tried = sink.ledger().len();
    assert!(tried <= 64, "{tried} attempts although it is unavailable");
    assert!(sink.checks() >= 8, "{} checks", sink.checks());
    for row in fixture.rows().await {
        assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
    }
    sink.set_away(false);
    fixture.until(500, "delivered").await;
    let mut sent = sink.delivered();
    sent.sort_unstable();
    assert_eq!(sent, ids);
    assert!(fixture.rows().await.iter().all(|row| row.attempts == 1));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rows_are_not_claimed_while_the_breaker_is_open() {
    let fixture = Fixture::new();
    let sink = sometimes_unavailable();
    sink.set_away(true);
    let worker = fixture.start(&sink);
    fixture.enqueue_many(100);
    until("the breaker is open", || {
        worker.counters.snapshot().released == 100
    })
    .await;
    // Rows without a destination are routed once, and then wait with the others.
    fixture.enqueue_many(100);
    until("they are routed", || worker.counters.snapshot().released == 200).await;
    let before = fixture.store.calls()["claim"];
    tokio::time::sleep(s(120)).await;
    assert_eq!(fixture.store.calls()["claim"], before);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_one_destination_neither_stops_others_nor_churns_the_table() {
    let fixture = Fixture::new();
    let (away, well) = (sometimes_unavailable(), FakeSink::willing());
    away.set_away(true);
    let worker = fixture.start_with(
        vec![destination("away", &away), destination("well", &well)],
        vec![],
    );
    for _ in 0..300 {
        fixture.enqueue(event().destination("away"));
    }
    tokio::time::sleep(s(60)).await;
    let claimed = worker.counters.snapshot().claimed;
    let began = tokio::time::Instant::now();
    fixture.enqueue(event().destination("well"));
    until("the other has its events", || well.delivered().len() == 1).await;
    assert!(began.elapsed() <= s(1));
    tokio::time::sleep(s(300)).await;
    let churned = worker.counters.snapshot().claimed - claimed;
    // Each row about once per time that the breaker is open, which is 15 to 30 s by now.
    assert!(churned <= 300 * 25, "{churned} claims in five minutes");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_throttled_destination_is_not_called_before_the_time_it_asked_for() {
    let fixture = Fixture::new();
    let first = std::sync::atomic::AtomicBool::new(true);
    let sink = FakeSink::answering(
        move |_| match first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            true => Outcome::Throttled {
                reason: "429".into(),
                after: Some(s(600)),
            },
            false => Outcome::Delivered,
        },
    );
    let worker = fixture.start(&sink);
    let id = fixture.enqueue(event());
    until("it is throttled", || worker.counters.snapshot().released == 1).await;
    fixture.enqueue_many(10);
    fixture.until(11, "delivered").await;
    worker.stop().await;
    let ledger = sink.ledger();
    assert!(ledger[1].began - ledger[0].began >= s(600), "{ledger:#?}");
    let row = fixture.row(id).await;
    assert_eq!((row.attempts, row.last_error.as_deref()), (1, Some("429")));
}

#[tokio::test(start_paused = true)]
async fn a_disabled_destination_loses_nothing() {
    let fixture = Fixture::new();
    let sink = FakeSink::answering(|_| Outcome::Disable {
        reason: "410 Gone".into(),
    });
    let worker = fixture.start(&sink);
    let id = fixture.enqueue(event());
    until("it is released", || worker.counters.snapshot().released == 1).await;
    tokio::time::sleep(s(600)).await;
    worker.stop().await;
    let row = fixture.row(id).await;
    assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
    assert_eq!(row.last_error.as_deref(), Some("410 Gone"));
    assert_eq!((sink.ledger().len(), sink.checks()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_throttle_of_zero_still_waits_a_second() {
    let fixture = Fixture::new();
    let sink = FakeSink::answering(|_| Outcome::Throttled {
        reason: "429".into(),
        after: Some(s(0)),
    });
    let worker = fixture.start(&sink);
    fixture.enqueue(event());
    tokio::time::sleep(s(60)).await;
    worker.stop().await;
    let sent = sink.ledger().len();
    assert!((20..=61).contains(&sent), "{sent} attempts in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_reports_the_breakers_that_are_not_closed() {
    let fixture = Fixture::new();
    let (away, well) = (sometimes_unavailable(), FakeSink::willing());
    away.set_away(true);
    let worker = fixture.start_with(
        vec![destination("away", &away), destination("well", &well)],
        vec![],
    );
    let breakers = async || {
        let workers = fixture.outbox.workers().await.expect("memory store");
        workers[0].breakers.clone()
    };
    tokio::time::sleep(s(10)).await;
    assert_eq!(breakers().await, BTreeMap::new());
    fixture.enqueue(event().destination("away"));
    fixture.enqueue(event().destination("well"));
    tokio::time::sleep(s(10)).await;
    let seen = breakers().await;
    let names: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(names, ["away"]);
    let breaker = &seen["away"];
    assert_eq!(
        (breaker.state, breaker.reason.as_str()),
        (BreakerState::Open, "connection refused")
    );
    let age = breaker.since - EPOCH;
    assert!(age >= s(10) && age < s(12), "{age}");
    away.set_away(false);
    fixture.until(2, "delivered").await;
    tokio::time::sleep(s(10)).await;
    assert_eq!(breakers().await, BTreeMap::new());
    worker.stop().await;
}
