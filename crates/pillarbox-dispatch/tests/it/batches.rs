//! Rows that are sent in one call of the sink keep their own ends.

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Outcomes, Sink};
use pillarbox_dispatch::Destination;
use pillarbox_testkit::fakes::FakeSink;

use crate::fixture::{Fixture, destination, event, keyed, ms, policy, s, until};

#[tokio::test(start_paused = true)]
async fn rows_that_can_be_sent_together_are_one_call() {
    let fixture = Fixture::new();
    fixture.enqueue_many(10);
    fixture.enqueue(event().event_type("single"));
    fixture.enqueue_many(5);
    let sink = FakeSink::willing().batching();
    let worker = fixture.start(&sink);
    fixture.until(16, "delivered").await;
    assert_eq!(sink.batches(), [10, 5]);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_stays_within_the_concurrency() {
    let fixture = Fixture::new();
    fixture.enqueue_many(100);
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(10)).await;
        Outcome::Delivered
    });
    let sink = sink.batching();
    let destination = destination("there", &sink).concurrency(7);
    let worker = fixture.start_with(vec![destination], vec![]);
    fixture.until(100, "delivered").await;
    let most = sink.ledger().iter().map(|entry| entry.company).max();
    assert_eq!(most, Some(7));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_event_delays_no_other_of_its_batch_and_times_out_alone() {
    let fixture = Fixture::new();
    let ids = fixture.enqueue_many(10);
    let slow = ids[3];
    let sink = FakeSink::scripted(move |delivery| async move {
        if delivery.event.id == slow && delivery.attempts == 1 {
            std::future::pending::<()>().await;
        }
        Outcome::Delivered
    });
    let sink = sink.batching();
    let began = tokio::time::Instant::now();
    let worker = fixture.start(&sink);
    fixture.until(9, "delivered").await;
    assert!(began.elapsed() < s(1), "{:?}", began.elapsed());
    assert_eq!(sink.batches(), [10]);
    fixture.until(10, "delivered").await;
    assert!(began.elapsed() > s(20), "{:?}", began.elapsed());
    for id in ids {
        assert_eq!(fixture.row(id).await.attempts, if id == slow { 2 } else { 1 });
    }
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_makes_the_sink_panic_costs_the_others_of_its_batch_nothing() {
    let fixture = Fixture::new();
    let ids = fixture.enqueue_many(20);
    let bad = ids[7];
    let sink = FakeSink::answering(move |delivery| {
        assert!(delivery.event.id != bad, "what is this?");
        Outcome::Delivered
    });
    let worker = fixture.start(&sink.clone().batching());
    fixture.until(19, "delivered").await;
    fixture.until(1, "dead").await;
    for id in ids {
        let row = fixture.row(id).await;
        assert_eq!(row.attempts, if id == bad { 5 } else { 1 });
    }
    let reason = fixture.row(bad).await.last_error.expect("a reason");
    assert!(reason.starts_with("the sink panicked: what is this?"), "{reason}");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rows_of_one_key_keep_their_order_in_and_between_batches() {
    let fixture = Fixture::new();
    for number in 0..200 {
        let event = keyed(if number % 3 == 0 { "a" } else { "b" });
        fixture.enqueue(match number % 7 {
            0 => event.event_type("single"),
            _ => event,
        });
    }
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(fastrand::u64(1..20))).await;
        Outcome::Delivered
    });
    let sink = sink.batching();
    let pipelined = destination("there", &sink).policy(policy(5).pipelined(true));
    let worker = fixture.start_with(vec![pipelined], vec![]);
    fixture.until(200, "delivered").await;
    for key in ["a", "b"] {
        let ledger = sink.ledger().into_iter();
        let sent: Vec<i64> = ledger
            .filter(|entry| entry.key.as_deref() == Some(key))
            .map(|entry| entry.seq)
            .collect();
        assert!(sent.is_sorted(), "{key}: {sent:?}");
    }
    assert!(sink.batches().iter().any(|size| *size > 1));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_in_flight_is_dropped_when_the_grace_time_is_over() {
    let fixture = Fixture::new();
    fixture.enqueue_many(10);
    let sink = FakeSink::hanging().batching();
    let worker = fixture.start(&sink);
    until("the batch is sent", || sink.running() == 10).await;
    let done = worker.stop().await;
    assert_eq!((done.retried, sink.running()), (10, 0));
}

/// A sink that reports only every second outcome, and some of them twice.
struct Forgetful;

#[async_trait]
impl Sink for Forgetful {
    async fn deliver(&self, _: &Delivery) -> Outcome {
        Outcome::Delivered
    }

    fn can_batch(&self, delivery: &Delivery) -> bool {
        delivery.attempts == 1
    }

    async fn deliver_all(&self, deliveries: &[&Delivery], outcomes: &Outcomes) {
        for index in (0..deliveries.len() + 2).step_by(2) {
            outcomes.report(index, Outcome::Delivered);
            outcomes.report(index, Outcome::reject("a second report"));
        }
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_without_an_outcome_is_retried() {
    let fixture = Fixture::new();
    let ids = fixture.enqueue_many(9);
    let destination = Destination::new("there", Forgetful).policy(policy(5));
    let worker = fixture.start_with(vec![destination], vec![]);
    fixture.until(9, "delivered").await;
    for (place, id) in ids.into_iter().enumerate() {
        let expected = if place.is_multiple_of(2) { 1 } else { 2 };
        assert_eq!(fixture.row(id).await.attempts, expected);
    }
    worker.stop().await;
}
