//! The path of an event while the store works.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pillarbox::Outcome;
use pillarbox_store::Scope;
use pillarbox_testkit::fakes::FakeSink;

use crate::fixture::{Fixture, destination, event, keyed, ms, retries, route, s, until};

#[tokio::test(start_paused = true)]
async fn a_committed_event_is_delivered() {
    let fixture = Fixture::new();
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    let id = fixture.enqueue(event());
    fixture.until(1, "delivered").await;
    assert_eq!(sink.delivered(), [id]);
    let row = fixture.row(id).await;
    assert_eq!((row.attempts, row.destination.as_deref()), (1, Some("there")));
    let done = worker.stop().await;
    assert_eq!((done.claimed, done.delivered, done.lost), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn delivered_rows_are_deleted_if_they_are_not_kept() {
    let mut fixture = Fixture::new();
    fixture.settings.retention.keep.delivered = Some(s(0));
    let refused = fixture.enqueue(event().event_type("refused"));
    let first = fixture.enqueue(event().dedupe_key("first"));
    fixture.enqueue_many(50);
    fixture.enqueue(keyed("k"));
    fixture.enqueue(keyed("k"));
    let sink = FakeSink::answering(|delivery| match delivery.event.event_type.as_deref() {
        Some(_) => Outcome::reject("refused"),
        None => Outcome::Delivered,
    });
    let worker = fixture.start(&sink);
    until("all are settled", || {
        let done = worker.counters.snapshot();
        done.delivered + done.dead == 54
    })
    .await;
    let done = worker.stop().await;
    assert_eq!((done.delivered, done.dead, done.lost), (53, 1, 0));
    let left: Vec<_> = fixture.rows().await.into_iter().map(|row| row.id).collect();
    assert_eq!(left, [refused, first]);
}

#[tokio::test(start_paused = true)]
async fn delivered_rows_are_pruned_after_their_retention() {
    let mut fixture = Fixture::new();
    fixture.settings.retention.keep.delivered = Some(s(3_600));
    fixture.enqueue_many(50);
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    until("all are delivered", || worker.counters.snapshot().delivered == 50).await;
    tokio::time::sleep(s(3_500)).await;
    assert_eq!(fixture.rows().await.len(), 50);
    until("all are pruned", || worker.counters.snapshot().pruned == 50).await;
    assert_eq!(fixture.rows().await.len(), 0);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_rolled_back_is_never_sent() {
    let fixture = Fixture::new();
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    let mut transaction = fixture.outbox.begin();
    transaction.enqueue(event()).expect("valid");
    drop(transaction);
    let id = fixture.enqueue(event());
    fixture.until(1, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), [id]);
}

#[tokio::test(start_paused = true)]
async fn every_event_of_a_backlog_is_delivered_once() {
    let fixture = Fixture::new();
    let ids: HashSet<_> = fixture.enqueue_many(3_000).into_iter().collect();
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(3)).await;
        Outcome::Delivered
    });
    let worker = fixture.start(&sink);
    fixture.until(3_000, "delivered").await;
    let done = worker.stop().await;
    assert_eq!(sink.delivered().len(), 3_000);
    assert_eq!(sink.delivered().into_iter().collect::<HashSet<_>>(), ids);
    assert_eq!((done.claimed, done.delivered, done.released), (3_000, 3_000, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failing_event_is_retried_with_backoff_and_then_dead() {
    let fixture = Fixture::new();
    let sink = FakeSink::answering(|_| Outcome::retry("server error"));
    let worker = fixture.start(&sink);
    let id = fixture.enqueue(event());
    fixture.until(1, "dead").await;
    let row = fixture.row(id).await;
    assert_eq!(
        (row.attempts, row.max_attempts, row.last_error.as_deref()),
        (5, Some(5), Some("server error"))
    );
    let began: Vec<_> = sink.ledger().iter().map(|entry| entry.began).collect();
    let waits: Vec<_> = began.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits.len(), 4);
    for (wait, policy) in waits.iter().zip([1, 2, 4, 8]) {
        // Due by the policy, found by the next search.
        assert!(*wait >= s(policy) && *wait <= s(policy) + ms(520), "{waits:?}");
    }
    let done = worker.stop().await;
    assert_eq!((done.retried, done.dead), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_the_receiver_asks_for_makes_a_retry_later_never_earlier() {
    let fixture = Fixture::new();
    let sink = FakeSink::answering(|delivery| match delivery.attempts {
        1 => Outcome::Retry {
            reason: "busy".into(),
            after: Some(s(30)),
        },
        _ => Outcome::Delivered,
    });
    let worker = fixture.start(&sink);
    fixture.enqueue(event());
    fixture.until(1, "delivered").await;
    worker.stop().await;
    let ledger = sink.ledger();
    assert!(ledger[1].began - ledger[0].began >= s(30));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_event_is_dead_at_once_and_blocks_no_other() {
    let fixture = Fixture::new();
    let bad = fixture.enqueue(event().header("bad", "yes"));
    let good = fixture.enqueue(event());
    let sink = FakeSink::answering(|delivery| {
        if delivery.event.headers.contains_key("bad") {
            Outcome::reject("bad request")
        } else {
            Outcome::Delivered
        }
    });
    let worker = fixture.start(&sink);
    fixture.until(1, "delivered").await;
    let row = fixture.row(bad).await;
    assert_eq!((row.status.as_str(), row.attempts), ("dead", 1));
    assert_eq!(row.last_error.as_deref(), Some("bad request"));
    assert_eq!(sink.delivered(), [good]);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_of_one_key_are_sent_one_at_a_time_in_order() {
    let fixture = Fixture::new();
    for n in 0..40 {
        fixture.enqueue(keyed(if n % 2 == 0 { "even" } else { "odd" }));
    }
    let most = Arc::new(AtomicUsize::new(0));
    let now = Arc::new(AtomicUsize::new(0));
    let (counted, seen) = (Arc::clone(&now), Arc::clone(&most));
    let sink = FakeSink::scripted(move |delivery| {
        let (now, most) = (Arc::clone(&counted), Arc::clone(&seen));
        async move {
            if delivery.event.ordering_key.as_deref() == Some("even") {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(ms(10)).await;
                now.fetch_sub(1, Ordering::SeqCst);
            }
            Outcome::Delivered
        }
    });
    let worker = fixture.start(&sink);
    fixture.until(40, "delivered").await;
    worker.stop().await;
    assert_eq!(most.load(Ordering::SeqCst), 1);
    for key in ["even", "odd"] {
        let entries = sink.ledger();
        let seqs: Vec<i64> = entries
            .iter()
            .filter(|entry| entry.key.as_deref() == Some(key))
            .map(|entry| entry.seq)
            .collect();
        assert!(seqs.is_sorted() && seqs.len() == 20, "{key}: {seqs:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rows_behind_a_failing_head_are_released_unsent_and_other_keys_continue() {
    let fixture = Fixture::new();
    let head = fixture.enqueue(keyed("k"));
    let behind = fixture.enqueue(keyed("k"));
    fixture.enqueue(keyed("other"));
    let sink = FakeSink::answering(move |delivery| {
        if delivery.event.id == head && delivery.attempts == 1 {
            Outcome::retry("not yet")
        } else {
            Outcome::Delivered
        }
    });
    let worker = fixture.start(&sink);
    fixture.until(1, "delivered").await;
    until("the head failed", || worker.counters.snapshot().retried == 1).await;
    assert_eq!(fixture.row(behind).await.attempts, 0);
    fixture.until(3, "delivered").await;
    let attempts: Vec<_> = sink
        .ledger()
        .iter()
        .filter(|entry| entry.key.as_deref() == Some("k"))
        .map(|entry| (entry.event, entry.attempts))
        .collect();
    assert_eq!(attempts, [(head, 1), (head, 2), (behind, 1)]);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn concurrency_limits_the_attempts_at_once() {
    let fixture = Fixture::new();
    fixture.enqueue_many(50);
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(10)).await;
        Outcome::Delivered
    });
    let mut there = destination("there", &sink);
    there.concurrency = 7;
    let worker = fixture.start_with(vec![there], vec![]);
    fixture.until(50, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.ledger().iter().map(|entry| entry.company).max(), Some(7));
}

#[tokio::test(start_paused = true)]
async fn a_hung_sink_times_out() {
    let fixture = Fixture::new();
    let sink = FakeSink::hanging();
    let mut there = destination("there", &sink);
    there.policy.retry = retries(1);
    let worker = fixture.start_with(vec![there], vec![]);
    let id = fixture.enqueue(event());
    fixture.until(1, "dead").await;
    assert_eq!(
        fixture.row(id).await.last_error.as_deref(),
        Some("timeout: no answer within 20s")
    );
    assert_eq!(sink.running(), 0);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panicking_sink_affects_no_other_event() {
    let fixture = Fixture::new();
    let ids = fixture.enqueue_many(20);
    let bad = ids[7];
    let sink = FakeSink::answering(move |delivery| {
        assert!(delivery.event.id != bad, "what is this?");
        Outcome::Delivered
    });
    let worker = fixture.start(&sink);
    fixture.until(19, "delivered").await;
    fixture.until(1, "dead").await;
    let row = fixture.row(bad).await;
    let reason = row.last_error.expect("a reason");
    assert!(reason.starts_with("the sink panicked: what is this?"), "{reason}");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hung_destination_slows_no_other() {
    let fixture = Fixture::new();
    let (hung, willing) = (FakeSink::hanging(), FakeSink::willing());
    for _ in 0..100 {
        fixture.enqueue(event().destination("hung"));
    }
    let destinations = vec![destination("hung", &hung), destination("willing", &willing)];
    let worker = fixture.start_with(destinations, vec![]);
    until("the hung destination is full", || hung.running() == 64).await;
    let began = tokio::time::Instant::now();
    for _ in 0..100 {
        fixture.enqueue(event().destination("willing"));
    }
    until("the other has its events", || willing.delivered().len() == 100).await;
    assert!(began.elapsed() < s(1), "{:?}", began.elapsed());
    worker.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_hung_destination_with_a_long_backlog_does_not_take_all_the_room() {
    let mut fixture = Fixture::new();
    fixture.settings.max_in_flight = 200;
    fixture.settings.batch = 50;
    let (hung, willing) = (FakeSink::hanging(), FakeSink::willing());
    for _ in 0..1_000 {
        fixture.enqueue(event().destination("hung"));
    }
    let destinations = vec![destination("hung", &hung), destination("willing", &willing)];
    let worker = fixture.start_with(destinations, vec![]);
    until("the hung destination is full", || hung.running() == 64).await;
    let began = tokio::time::Instant::now();
    for _ in 0..100 {
        fixture.enqueue(event().destination("willing"));
    }
    until("the other has its events", || willing.delivered().len() == 100).await;
    assert!(began.elapsed() < s(15), "{:?}", began.elapsed());
    let given_back = fixture
        .rows()
        .await
        .into_iter()
        .filter(|row| row.status == "pending");
    assert!(
        given_back.map(|row| row.attempts).all(|attempts| attempts <= 1),
        "unsent rows use no attempt"
    );
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn events_follow_their_routes() {
    let fixture = Fixture::new();
    let (a, b) = (FakeSink::willing(), FakeSink::willing());
    let routes = vec![route("orders", "a"), route("invoices.*", "b")];
    let worker = fixture.start_with(vec![destination("a", &a), destination("b", &b)], routes);
    let order = fixture.enqueue(event());
    let invoice = fixture.enqueue(pillarbox::Event::new("shop", "invoices.paid"));
    let wish = fixture.enqueue(event().destination("b"));
    fixture.until(3, "delivered").await;
    assert_eq!(a.delivered(), [order]);
    assert_eq!(b.delivered(), [invoice, wish]);
    assert_eq!(fixture.row(invoice).await.destination.as_deref(), Some("b"));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_row_outside_the_scope_is_not_claimed() {
    let mut fixture = Fixture::new();
    fixture.settings.scope = Scope::of(["shop"]);
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    let other = fixture.enqueue(pillarbox::Event::new("bank", "orders"));
    fixture.enqueue(event());
    fixture.until(1, "delivered").await;
    worker.stop().await;
    let row = fixture.row(other).await;
    assert_eq!(
        (row.status.as_str(), row.attempts, row.last_error),
        ("pending", 0, None)
    );
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded() {
    let mut fixture = Fixture::new();
    fixture.settings.max_in_flight = 100;
    fixture.settings.batch = 40;
    fixture.settings.max_bytes = 10_000;
    for n in 0..600 {
        let size = if n % 50 == 0 { 4_000 } else { 90 };
        fixture.enqueue(event().bytes(vec![7; size], "application/octet-stream"));
    }
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(fastrand::u64(1..40))).await;
        Outcome::Delivered
    });
    let worker = fixture.start(&sink);
    let (mut most_rows, mut most_bytes) = (0, 0);
    while fixture.count("delivered").await < 600 {
        let rows = fixture.rows().await;
        let held = rows.iter().filter(|row| row.status == "processing");
        let bytes: i64 = held.clone().filter_map(|row| row.body_bytes).sum();
        most_rows = most_rows.max(held.count());
        most_bytes = most_bytes.max(bytes);
        tokio::time::sleep(ms(1)).await;
    }
    worker.stop().await;
    assert!(most_rows <= 100 && most_rows > 40, "{most_rows} rows");
    // One row may exceed the limit, or a large one could never be sent.
    assert!(
        most_bytes <= 10_000 + 4_000 && most_bytes > 5_000,
        "{most_bytes} bytes"
    );
}
