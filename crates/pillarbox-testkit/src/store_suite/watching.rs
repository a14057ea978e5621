//! What a watch reports, where a store has one.

use pillarbox_store::store::{Change, Watch};

use super::Ran;
use super::bench::{Bench, event};
use super::harness::{Capability, Skipped};

async fn watch(bench: &Bench) -> Result<Box<dyn Watch>, Skipped> {
    bench.harness.can(Capability::OwnTable)?;
    let watch = bench.store().watch().await.expect("the store answers");
    watch.ok_or(Skipped("it cannot watch for new events"))
}

/// The next change that is not [`Change::Nothing`].
async fn change(watch: &mut dyn Watch, until_ended: bool) -> Change {
    loop {
        match watch.next(until_ended).await.expect("the store answers") {
            Change::Nothing => {}
            change => return change,
        }
    }
}

/// It may report them before their transaction has ended, and says then how many there are.
fn assert_new(change: Change, events: u64) {
    match change {
        Change::Begun(begun) => assert_eq!(begun, events),
        Change::Ended => {}
        Change::Nothing => panic!("nothing was reported"),
    }
}

/// The transactions of other cases may end later than the one that enqueued.
pub async fn a_watch_reports_new_events_and_the_end_of_their_transactions(bench: Bench) -> Ran {
    let mut watch = watch(&bench).await?;
    for events in [1, 3] {
        let waiting = tokio::spawn(async move {
            let change = change(&mut *watch, false).await;
            (watch, change)
        });
        bench.put_many(events).await;
        let (waited, seen) = waiting.await.expect("no panic");
        watch = waited;
        // One by one, or all together.
        if let Change::Begun(begun) = seen {
            assert!((1..=events as u64).contains(&begun), "{begun}");
        }
        while change(&mut *watch, true).await != Change::Ended {}
        assert_eq!(bench.find().await.due.len(), 1);
    }
    Ok(())
}

/// So a worker that was busy meanwhile misses nothing.
pub async fn a_watch_reports_events_that_came_between_two_calls(bench: Bench) -> Ran {
    let mut watch = watch(&bench).await?;
    bench.put(event()).await;
    assert_new(change(&mut *watch, false).await, 1);
    bench.put_many(2).await;
    assert_new(change(&mut *watch, false).await, 2);
    Ok(())
}
