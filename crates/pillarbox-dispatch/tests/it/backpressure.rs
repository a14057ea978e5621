//! A destination that is slow or hangs costs next to nothing, whatever its backlog.

use pillarbox::Outcome;
use pillarbox_dispatch::{Destination, Policy, Snapshot};
use pillarbox_testkit::fakes::FakeSink;

use crate::fixture::{Fixture, event, ms, s};

/// A webhook as it is configured by default.
fn webhook(name: &str, sink: &FakeSink) -> Destination {
    Destination::new(name, sink.clone()).policy(Policy::default())
}

/// Sends ten thousand events to a destination and one a second to another, for a hundred seconds.
async fn beside_a_healthy_one(sink: &FakeSink) -> (Snapshot, usize) {
    let fixture = Fixture::new();
    let healthy = FakeSink::willing();
    for _ in 0..10_000 {
        fixture.enqueue(event().destination("there"));
    }
    let worker = fixture.start_with(vec![webhook("there", sink), webhook("healthy", &healthy)], vec![]);
    for _ in 0..100 {
        fixture.enqueue(event().destination("healthy"));
        tokio::time::sleep(s(1)).await;
    }
    let (snapshot, delivered) = (worker.counters.snapshot(), healthy.delivered().len());
    worker.kill().await;
    assert!(delivered >= 99, "{delivered} arrived at the healthy destination");
    (snapshot, sink.delivered().len())
}

#[tokio::test(start_paused = true)]
async fn a_hung_destination_with_a_backlog_costs_next_to_nothing() {
    let hung = FakeSink::hanging();
    let (snapshot, _) = beside_a_healthy_one(&hung).await;
    let attempts = u64::try_from(hung.ledger().len()).expect("a small number");
    // Its share of the room, once; then only what it tries.
    assert!(
        snapshot.claimed < 100 + attempts + 2_500,
        "{snapshot:?}, {attempts} attempts"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_destination_with_a_backlog_is_claimed_for_as_it_sends() {
    let slow = FakeSink::scripted(|_| async {
        tokio::time::sleep(s(1)).await;
        Outcome::Delivered
    });
    let (snapshot, delivered) = beside_a_healthy_one(&slow).await;
    assert!(delivered >= 1_500, "{delivered} of 16 a second");
    let delivered = u64::try_from(delivered).expect("a small number");
    assert!(snapshot.claimed < 100 + delivered + 2_500, "{snapshot:?}");
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_recovers_is_quick_again() {
    let fixture = Fixture::new();
    let began = tokio::time::Instant::now();
    let recovering = FakeSink::scripted(move |_| async move {
        if began.elapsed() < s(60) {
            tokio::time::sleep(s(10)).await;
        } else {
            tokio::time::sleep(ms(1)).await;
        }
        Outcome::Delivered
    });
    let other = FakeSink::willing();
    for _ in 0..10_000 {
        fixture.enqueue(event().destination("there"));
    }
    let worker = fixture.start_with(
        vec![webhook("there", &recovering), webhook("other", &other)],
        vec![],
    );
    fixture.until(10_000, "delivered").await;
    // Sixteen at a time in two milliseconds are eight thousand a second. Claims need some more time.
    assert!(began.elapsed() < s(60 + 10 + 5), "{:?}", began.elapsed());
    worker.stop().await;
}
