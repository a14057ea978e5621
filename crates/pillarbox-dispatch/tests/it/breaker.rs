//! A destination that is away, busy or gone.

use pillarbox::Outcome;
use pillarbox_testkit::fakes::FakeSink;

use crate::world::{World, destination, event, s, until};

/// A sink that finds nobody while it is away.
fn reachable_or_not() -> FakeSink {
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
async fn when_a_destination_is_unavailable_attempts_are_given_back_and_a_check_reopens_it() {
    let world = World::new();
    let sink = reachable_or_not();
    sink.set_away(true);
    let worker = world.start(&sink);
    let ids = world.enqueue_many(500);
    tokio::time::sleep(s(300)).await;
    let tried = sink.ledger().len();
    assert!(tried <= 64, "{tried} attempts although nobody is there");
    assert!(sink.checks() >= 8, "{} checks", sink.checks());
    for row in world.rows().await {
        assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
    }
    sink.set_away(false);
    world.until(500, "delivered").await;
    let mut sent = sink.delivered();
    sent.sort_unstable();
    assert_eq!(sent, ids);
    assert!(world.rows().await.iter().all(|row| row.attempts == 1));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_closed_destination_is_not_claimed() {
    let world = World::new();
    let sink = reachable_or_not();
    sink.set_away(true);
    let worker = world.start(&sink);
    world.enqueue_many(100);
    until("it is closed", || worker.counters.snapshot().released == 100).await;
    // Those that know no destination yet are routed once, and then wait with the others.
    world.enqueue_many(100);
    until("they know", || worker.counters.snapshot().released == 200).await;
    let before = world.store.calls()["claim"];
    tokio::time::sleep(s(120)).await;
    assert_eq!(world.store.calls()["claim"], before);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_one_destination_neither_stops_the_others_nor_churns_the_table() {
    let world = World::new();
    let (away, well) = (reachable_or_not(), FakeSink::willing());
    away.set_away(true);
    let worker = world.start_with(
        vec![destination("away", &away), destination("well", &well)],
        vec![],
    );
    for _ in 0..300 {
        world.enqueue(event().destination("away"));
    }
    tokio::time::sleep(s(60)).await;
    let claimed = worker.counters.snapshot().claimed;
    let began = tokio::time::Instant::now();
    world.enqueue(event().destination("well"));
    until("the other is served", || well.delivered().len() == 1).await;
    assert!(began.elapsed() <= s(1));
    tokio::time::sleep(s(300)).await;
    let churned = worker.counters.snapshot().claimed - claimed;
    // Each row about once per time that the destination stays closed, which is 15 to 30 s by now.
    assert!(churned <= 300 * 25, "{churned} claims in five minutes");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_throttled_destination_is_left_alone_for_as_long_as_it_says() {
    let world = World::new();
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
    let worker = world.start(&sink);
    let id = world.enqueue(event());
    until("it is throttled", || worker.counters.snapshot().released == 1).await;
    world.enqueue_many(10);
    world.until(11, "delivered").await;
    worker.stop().await;
    let ledger = sink.ledger();
    assert!(ledger[1].began - ledger[0].began >= s(600), "{ledger:#?}");
    let row = world.row(id).await;
    assert_eq!((row.attempts, row.last_error.as_deref()), (1, Some("429")));
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_gone_is_disabled_and_loses_nothing() {
    let world = World::new();
    let sink = FakeSink::answering(|_| Outcome::Disable {
        reason: "410 Gone".into(),
    });
    let worker = world.start(&sink);
    let id = world.enqueue(event());
    until("it is given back", || worker.counters.snapshot().released == 1).await;
    tokio::time::sleep(s(600)).await;
    worker.stop().await;
    let row = world.row(id).await;
    assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
    assert_eq!(row.last_error.as_deref(), Some("410 Gone"));
    assert_eq!((sink.ledger().len(), sink.checks()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_says_again_at_once_is_still_given_a_second() {
    let world = World::new();
    let sink = FakeSink::answering(|_| Outcome::Throttled {
        reason: "429".into(),
        after: Some(s(0)),
    });
    let worker = world.start(&sink);
    world.enqueue(event());
    tokio::time::sleep(s(60)).await;
    worker.stop().await;
    let sent = sink.ledger().len();
    assert!((20..=61).contains(&sent), "{sent} attempts in a minute");
}
