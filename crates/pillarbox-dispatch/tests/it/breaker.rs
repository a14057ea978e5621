//! A destination that is unavailable, throttled or disabled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pillarbox::{Event, Outcome};
use pillarbox_dispatch::Rate;
use pillarbox_store::Operate;
use pillarbox_store::store::BreakerState;
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::fakes::FakeSink;

use crate::fixture::{EPOCH, Fixture, Running, destination, event, keyed, ms, policy, s, until};

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
        let workers = fixture.outbox.workers(&OPERATOR).await.expect("memory store");
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

/// A sink that answers with this outcome while the switch is on. Its health check passes.
fn failing_while(is_down: &Arc<AtomicBool>, outcome: Outcome) -> FakeSink {
    let is_down = Arc::clone(is_down);
    FakeSink::answering(move |_| match is_down.load(Ordering::SeqCst) {
        true => outcome.clone(),
        false => Outcome::Delivered,
    })
}

/// A worker whose destination has 16 attempts at once and three per event.
fn start_with_three_attempts(fixture: &Fixture, sink: &FakeSink) -> Running {
    let there = destination("there", sink).policy(policy(3)).concurrency(16);
    fixture.start_with(vec![there], vec![])
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_used_while_no_connection_can_be_made() {
    for events in [1, 100] {
        let fixture = Fixture::new();
        let is_down = Arc::new(AtomicBool::new(true));
        let sink = failing_while(&is_down, Outcome::connect_failed("connection refused"));
        sink.set_away(true);
        let worker = start_with_three_attempts(&fixture, &sink);
        fixture.enqueue_many(events);
        tokio::time::sleep(s(3600)).await;
        for row in fixture.rows().await {
            assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
        }
        let tried = sink.ledger().len();
        assert!(tried <= 16, "{tried} attempts although the check fails");
        sink.set_away(false);
        is_down.store(false, Ordering::SeqCst);
        fixture.until(events, "delivered").await;
        assert!(fixture.rows().await.iter().all(|row| row.attempts == 1));
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_connection_is_a_failed_attempt_if_the_health_check_passes() {
    let fixture = Fixture::new();
    let sink = FakeSink::answering(|delivery| match delivery.attempts {
        1 => Outcome::connect_failed("timeout"),
        _ => Outcome::Delivered,
    });
    let worker = start_with_three_attempts(&fixture, &sink);
    let id = fixture.enqueue(event());
    fixture.until(1, "delivered").await;
    assert_eq!((fixture.row(id).await.attempts, sink.checks()), (2, 1));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_fails_every_event_and_passes_every_check_makes_none_dead() {
    let fixture = Fixture::new();
    let is_down = Arc::new(AtomicBool::new(true));
    let sink = failing_while(&is_down, Outcome::retry("503 Service Unavailable"));
    let worker = start_with_three_attempts(&fixture, &sink);
    fixture.enqueue_many(100);
    tokio::time::sleep(s(3600)).await;
    let ledger = sink.ledger();
    // 16 at once, then one after 10, 20, 40, 80, 160 and every 300 seconds.
    assert!((26..=32).contains(&ledger.len()), "{} attempts", ledger.len());
    assert!(ledger[16..].iter().all(|entry| entry.company == 1), "{ledger:#?}");
    let probes: Vec<u64> = ledger[15..22]
        .windows(2)
        .map(|pair| (pair[1].began - pair[0].began).as_secs())
        .collect();
    for (wait, expected) in probes.iter().zip([10, 20, 40, 80, 160, 300]) {
        assert!(
            (expected..=expected + expected / 8 + 1).contains(wait),
            "{probes:?}"
        );
    }
    assert_eq!(fixture.count("pending").await, 100);
    assert!(
        fixture.rows().await.iter().all(|row| row.attempts <= 2),
        "spread over all events"
    );
    is_down.store(false, Ordering::SeqCst);
    fixture.until(100, "delivered").await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_while_failed_events_keep_the_breaker_open() {
    let fixture = Fixture::new();
    let is_down = Arc::new(AtomicBool::new(true));
    let sink = failing_while(&is_down, Outcome::retry("503 Service Unavailable"));
    let worker = start_with_three_attempts(&fixture, &sink);
    for _ in 0..100 {
        fixture.enqueue(event().destination("there"));
    }
    // In the middle of the wait of 300 seconds that begins after about 310.
    tokio::time::sleep(s(400)).await;
    let (claims, sent) = (fixture.store.calls()["claim"], sink.ledger().len());
    tokio::time::sleep(s(150)).await;
    assert_eq!(
        (fixture.store.calls()["claim"], sink.ledger().len()),
        (claims, sent)
    );
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn poison_never_delays_other_events() {
    let fixture = Fixture::new();
    let sink = FakeSink::answering(|delivery| {
        if delivery.event.headers.contains_key("poison") {
            Outcome::retry("500 Internal Server Error")
        } else {
            Outcome::Delivered
        }
    });
    let there = destination("there", &sink).policy(policy(25));
    let worker = fixture.start_with(vec![there], vec![]);
    // One event alone, one key, and one event in a hundred.
    fixture.enqueue(event().header("poison", "yes"));
    for _ in 0..20 {
        fixture.enqueue(keyed("poison").header("poison", "yes"));
    }
    for n in 0..1_000 {
        match n % 100 {
            7 => fixture.enqueue(event().header("poison", "yes")),
            _ => fixture.enqueue(event()),
        };
    }
    fixture.until(990, "delivered").await;
    // Their retries are alone now. A fresh event arrives at any time.
    for n in 1..=100 {
        let began = tokio::time::Instant::now();
        fixture.enqueue(event());
        fixture.until(990 + n, "delivered").await;
        assert!(began.elapsed() < s(2), "{:?}", began.elapsed());
        tokio::time::sleep(s(7)).await;
    }
    assert_eq!(sink.checks(), 0, "the breaker never opened");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_throttled_part_of_a_destination_delays_no_other_part() {
    let fixture = Fixture::new();
    let is_busy = Arc::new(AtomicBool::new(true));
    let busy = Arc::clone(&is_busy);
    let sink = FakeSink::answering(move |delivery| {
        match delivery.event.topic == "busy" && busy.load(Ordering::SeqCst) {
            true => Outcome::ThrottledPart {
                reason: "429 Too Many Requests".to_owned(),
                after: Some(s(600)),
            },
            false => Outcome::Delivered,
        }
    })
    .with_parts();
    let there = destination("there", &sink).policy(policy(3)).concurrency(1);
    let worker = fixture.start_with(vec![there], vec![]);
    for _ in 0..10 {
        fixture.enqueue(Event::new("shop", "busy"));
        fixture.enqueue(Event::new("shop", "busy").ordering_key("k"));
        fixture.enqueue(Event::new("shop", "well"));
    }
    fixture.until(10, "delivered").await;
    assert_eq!(sink.ledger().len(), 11, "one event asks for all of its part");
    tokio::time::sleep(s(500)).await;
    assert_eq!(sink.ledger().len(), 11);
    is_busy.store(false, Ordering::SeqCst);
    let began = tokio::time::Instant::now();
    fixture.until(30, "delivered").await;
    assert!(
        began.elapsed() > s(90) && began.elapsed() < s(200),
        "{:?}",
        began.elapsed()
    );
    assert!(fixture.rows().await.iter().all(|row| row.attempts == 1));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failures_of_one_part_do_not_stop_the_others() {
    let fixture = Fixture::new();
    let sink = FakeSink::scripted(|delivery| async move {
        tokio::time::sleep(ms(10)).await;
        match delivery.event.topic.as_str() {
            "broken" => Outcome::retry("500 Internal Server Error"),
            _ => Outcome::Delivered,
        }
    })
    .with_parts();
    let worker = start_with_three_attempts(&fixture, &sink);
    for _ in 0..50 {
        fixture.enqueue(Event::new("shop", "broken"));
    }
    fixture.until(50, "dead").await;
    assert_eq!(sink.checks(), 0, "the breaker never opened");
    fixture.enqueue(Event::new("shop", "well"));
    fixture.until(1, "delivered").await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rows_of_a_throttled_part_use_no_token_of_the_rate() {
    let fixture = Fixture::new();
    let sink = FakeSink::answering(|delivery| match delivery.event.topic.as_str() {
        "busy" => Outcome::ThrottledPart {
            reason: "429 Too Many Requests".to_owned(),
            after: Some(s(600)),
        },
        _ => Outcome::Delivered,
    })
    .with_parts();
    // Five attempts, and the next in twelve days.
    let rate = Rate {
        per_second: 1e-6,
        burst: 5,
    };
    let worker = fixture.start_with(vec![destination("there", &sink).rate(rate)], vec![]);
    let released = |count| {
        let counters = Arc::clone(&worker.counters);
        until("they are released", move || counters.snapshot().released == count)
    };
    fixture.enqueue(Event::new("shop", "busy"));
    released(1).await;
    for _ in 0..20 {
        fixture.enqueue(Event::new("shop", "busy"));
    }
    released(21).await;
    for _ in 0..4 {
        fixture.enqueue(Event::new("shop", "well"));
    }
    fixture.until(4, "delivered").await;
    assert_eq!(sink.ledger().len(), 5);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_part_does_not_keep_a_half_open_breaker_from_the_other_parts() {
    let fixture = Fixture::new();
    let is_down = Arc::new(AtomicBool::new(true));
    let down = Arc::clone(&is_down);
    let sink = FakeSink::answering(move |delivery| {
        match delivery.event.topic == "broken" || down.load(Ordering::SeqCst) {
            true => Outcome::retry("503 Service Unavailable"),
            false => Outcome::Delivered,
        }
    })
    .with_parts();
    let there = destination("there", &sink).policy(policy(25));
    let worker = fixture.start_with(vec![there], vec![]);
    for topic in ["a", "b", "c", "d", "e"] {
        fixture.enqueue(Event::new("shop", topic));
    }
    until("the breaker is open", || sink.ledger().len() == 5).await;
    is_down.store(false, Ordering::SeqCst);
    // They have fewer attempts than the others, and are the first to be sent.
    for _ in 0..100 {
        fixture.enqueue(Event::new("shop", "broken"));
    }
    until("another part is tried", || !sink.delivered().is_empty()).await;
    let ledger = sink.ledger();
    let first = ledger
        .iter()
        .position(|entry| entry.outcome == Some(Outcome::Delivered));
    let probes = first.expect("a delivery") - 5;
    // The first opens the breaker again. The second leaves it half-open.
    assert_eq!(probes, 2, "{:#?}", &ledger[5..]);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_counts_once_although_only_its_first_attempt_is_ordered() {
    let fixture = Fixture::new();
    let sink = FakeSink::answering(|_| Outcome::retry("500 Internal Server Error"));
    let there = destination("there", &sink).policy(policy(5).first_attempts_only(true));
    let worker = fixture.start_with(vec![there], vec![]);
    for key in ["a", "b", "c", "d"] {
        fixture.enqueue(keyed(key));
    }
    fixture.until(4, "dead").await;
    assert_eq!(sink.checks(), 0, "the breaker never opened");
    worker.stop().await;
}
