//! Handlers and databases that never answer, and what is logged of failures.

use pillarbox::clock::TokioClock;
use pillarbox_testkit::CapturedLogs;
use time::macros::datetime;
use tracing::Level;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_hung_handler_uses_up_its_attempts_and_delays_its_own_key_only() {
    let (consumer, seen) = scripted(|order, _| async move {
        if order == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let mut running = Running::start(consumer.concurrency(1).timeout(Duration::from_secs(30)));
    let started = Instant::now();
    running.deliver(&order(1).ordering_key("a"));
    running.deliver(&order(2).ordering_key("a"));
    running.deliver(&order(3).ordering_key("b"));
    running.until_acknowledged(1).await;
    assert_eq!(running.acknowledged(), [3], "its slot is free while it waits");
    assert_eq!(started.elapsed().as_secs(), 30);
    running.until_acknowledged(3).await;
    assert_eq!(running.acknowledged(), [3, 1, 2]);
    assert_eq!(
        *seen.lock().unwrap(),
        [(1, 1), (3, 1), (1, 2), (1, 3), (2, 1)],
        "order and attempt"
    );
    let dead = running.dead();
    assert_eq!((dead.len(), dead[0].0), (1, 1));
    assert_eq!(dead[0].1.reason, "timeout: handler did not finish within 30s");
    let counts = running.stop().await;
    assert_eq!((counts.timed_out, counts.retried, counts.dead), (3, 2, 1));
    assert_eq!((counts.handled, counts.store_errors), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_cancelled_handler_wrote_is_rolled_back() {
    async fn enqueue(transaction: &mut Transaction, event: Received<Order>) -> Result<(), HandlerError> {
        let next = Event::new("letters", "sent").json(&event.attempt)?;
        Outbox::default().enqueue(transaction, &next).await?;
        if event.attempt == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
    let database = Memory::default();
    let consumer = Consumer::new("letters", database.clone()).on("OrderCreated", 1, enqueue);
    let mut running = Running::start(consumer);
    let started = Instant::now();
    running.deliver(&order(7));
    running.until_acknowledged(1).await;
    assert!(started.elapsed() >= Duration::from_secs(60), "the default");
    running.stop().await;
    let events = Outbox::default().enqueued(&mut database.begin()).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].payload.as_bytes().as_ref(), b"2");
}

#[tokio::test(start_paused = true)]
async fn a_silent_database_gives_the_slot_back_and_uses_no_attempt() {
    let mut running = Running::start(faulty(Fault::HangsAtSecond(AtomicUsize::new(0))).concurrency(1));
    running.deliver(&order(1));
    running.deliver(&order(2));
    running.until_acknowledged(2).await;
    let counts = running.stop().await;
    assert_eq!((counts.handled, counts.dead, counts.store_errors), (2, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_lost_while_it_waits_is_released_at_once() {
    let (consumer, seen) = scripted(|_, _| std::future::pending());
    let mut running = Running::start(consumer.concurrency(1).grace(Duration::ZERO));
    let started = Instant::now();
    running.deliver(&order(1));
    running.deliver(&order(2));
    while seen.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let counters = running.counters.clone();
    running.seen.lost.store(true, Ordering::SeqCst);
    running.seen.changed.notify_waiters();
    while counters.snapshot().released == 0 {
        tokio::task::yield_now().await;
    }
    assert!(started.elapsed() < Duration::from_secs(1));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failures_are_logged_with_their_fields_and_at_most_ten_times_a_second() {
    let logs = CapturedLogs::start();
    let (consumer, _) = scripted(|order, _| async move {
        match order {
            1 => Err(HandlerError::retry("no stock\0")),
            _ => Err(HandlerError::reject("no such order")),
        }
    });
    let clock = TokioClock::starting_at(datetime!(2026-01-02 03:04:05 UTC));
    let mut running = Running::start(consumer.clock(Arc::new(clock)));
    let event = order(1);
    running.deliver(&event);
    running.until_acknowledged(1).await;
    for _ in 0..100 {
        running.deliver(&order(2));
    }
    running.until_acknowledged(101).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    running.deliver(&order(2));
    running.until_acknowledged(102).await;
    running.stop().await;

    let lines = logs.lines();
    let of = |level| lines.iter().filter(move |line| line.level == level);
    let retry = of(Level::WARN).next().unwrap();
    assert_eq!(retry.message, "handler failed, will retry");
    let id = event.id.to_string();
    for (field, value) in [
        ("consumer", "letters"),
        ("event_id", id.as_str()),
        ("attempt", "1"),
        ("max_attempts", "3"),
        ("error", "no stock\u{FFFD}"),
    ] {
        assert_eq!(retry.field(field), Some(value), "{field}");
    }
    assert!(retry.field("retry_in").is_some() && retry.field("suppressed").is_none());
    assert_eq!(
        of(Level::WARN).count(),
        2,
        "one for each failed attempt but the last"
    );
    let dead: Vec<_> = of(Level::ERROR).collect();
    assert_eq!(dead[0].field("event_id"), Some(id.as_str()));
    assert_eq!(dead.len(), 10 + 1, "ten in a second, and the last");
    assert_eq!(dead[10].field("suppressed"), Some("91"));
}
