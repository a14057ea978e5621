//! What an inbox remembers: the mark of an event that a consumer has handled.

use std::time::Duration;

use pillarbox::inbox::Key;
use uuid::Uuid;

use super::Ran;
use super::bench::Bench;
use super::harness::Capability;

const CONSUMER: &str = "notifications";

fn keys(count: usize) -> Vec<Key> {
    (0..count).map(|_| Key::event(Uuid::now_v7())).collect()
}

/// Marks in a transaction of its own.
async fn marked(bench: Bench, consumer: &'static str, keys: Vec<Key>) -> Vec<bool> {
    let mut tx = bench.harness.begin().await;
    let new = tx.mark(consumer, &keys).await.expect("it answers");
    tx.commit().await;
    new
}

/// Each has its own.
pub async fn an_event_is_new_once_for_each_consumer(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let event = keys(1);
    assert_eq!(marked(bench.clone(), CONSUMER, event.clone()).await, [true]);
    assert_eq!(marked(bench.clone(), CONSUMER, event.clone()).await, [false]);
    assert_eq!(marked(bench.clone(), "it's \"another\"", event).await, [true]);
    Ok(())
}

/// The mark and what it stands for are there together, or neither.
pub async fn a_mark_that_is_rolled_back_is_not_there(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let event = keys(1);
    let mut tx = bench.harness.begin().await;
    assert_eq!(tx.mark(CONSUMER, &event).await.expect("it answers"), [true]);
    assert_eq!(tx.mark(CONSUMER, &event).await.expect("it answers"), [false]);
    tx.rollback().await;
    assert_eq!(marked(bench, CONSUMER, event).await, [true]);
    Ok(())
}

/// Handled again on purpose.
pub async fn an_event_that_is_unmarked_is_new_again(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let events = keys(2);
    marked(bench.clone(), CONSUMER, events.clone()).await;
    let mut tx = bench.harness.begin().await;
    tx.unmark(CONSUMER, &events[..1]).await.expect("it answers");
    assert_eq!(
        tx.mark(CONSUMER, &events).await.expect("it answers"),
        [true, false]
    );
    tx.commit().await;
    assert_eq!(marked(bench, CONSUMER, events).await, [false, false]);
    Ok(())
}

/// What comes twice in a batch is handled once.
pub async fn of_two_equal_keys_in_one_call_the_first_is_new(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let [a, b] = [Key::event(Uuid::now_v7()), Key::dedupe("shop", "orders", "42")];
    assert_eq!(marked(bench.clone(), CONSUMER, vec![b]).await, [true]);
    let new = marked(bench, CONSUMER, vec![a, b, a]).await;
    assert_eq!(new, [true, false, false]);
    Ok(())
}

/// In one statement, or a few.
pub async fn ten_thousand_events_are_marked_in_one_call(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let events = keys(10_000);
    let new = marked(bench.clone(), CONSUMER, events[..5_000].to_vec()).await;
    assert!(new.iter().all(|new| *new));
    let new = marked(bench, CONSUMER, events).await;
    assert_eq!(new.iter().position(|new| *new), Some(5_000));
    assert!(new[5_000..].iter().all(|new| *new));
    Ok(())
}

/// It knows then whether there is anything left to do.
pub async fn the_second_of_two_deliveries_waits_for_the_first_to_end(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    bench.harness.can(Capability::EnqueueWaitsForRivals)?;
    for (commit, expected) in [(true, [false]), (false, [true])] {
        let event = keys(1);
        let mut first = bench.harness.begin().await;
        assert_eq!(first.mark(CONSUMER, &event).await.expect("it answers"), [true]);
        let second = tokio::spawn(marked(bench.clone(), CONSUMER, event));
        tokio::task::yield_now().await;
        assert!(!second.is_finished(), "it waits for the first to end");
        if commit {
            first.commit().await;
        } else {
            first.rollback().await;
        }
        assert_eq!(second.await.expect("no panic"), expected);
    }
    Ok(())
}

/// Two batches with the same events in opposite order both come through.
pub async fn consumers_with_crossing_events_do_not_deadlock(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    bench.harness.can(Capability::EnqueueWaitsForRivals)?;
    for _ in 0..10 {
        let there = keys(50);
        let back: Vec<Key> = there.iter().rev().copied().collect();
        let (one, two) = tokio::join!(
            marked(bench.clone(), CONSUMER, there),
            marked(bench.clone(), CONSUMER, back)
        );
        let new = one.iter().chain(&two).filter(|new| **new).count();
        assert_eq!(new, 50);
    }
    Ok(())
}

/// By age, of one consumer.
pub async fn only_old_marks_are_pruned(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    const KEEP: Duration = Duration::from_secs(3600);
    let (old, young) = (keys(3), keys(2));
    marked(bench.clone(), CONSUMER, old.clone()).await;
    marked(bench.clone(), "another", old.clone()).await;
    bench.harness.age(time::Duration::hours(2)).await;
    marked(bench.clone(), CONSUMER, young.clone()).await;

    let mut tx = bench.harness.begin().await;
    assert_eq!(tx.prune(CONSUMER, KEEP).await.expect("it answers"), 3);
    assert_eq!(tx.prune(CONSUMER, KEEP).await.expect("it answers"), 0);
    tx.commit().await;

    assert_eq!(marked(bench.clone(), CONSUMER, young).await, [false; 2]);
    assert_eq!(marked(bench.clone(), "another", old.clone()).await, [false; 3]);
    assert_eq!(marked(bench, CONSUMER, old).await, [true; 3]);
    Ok(())
}
