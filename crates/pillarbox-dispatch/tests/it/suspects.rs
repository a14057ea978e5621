//! Crashes count as attempts, and only the event that causes them ends dead.

use std::collections::HashSet;
use std::sync::Arc;

use pillarbox::Outcome;
use pillarbox_testkit::fakes::FakeSink;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::fixture::{Fixture, destination, event, ms, s, until};

/// A destination whose code crashes the process for one event.
fn crashing(poison: Uuid, crash: &Arc<Notify>) -> FakeSink {
    let crash = Arc::clone(crash);
    FakeSink::scripted(move |delivery| {
        let crash = Arc::clone(&crash);
        async move {
            if delivery.event.id == poison {
                crash.notify_one();
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(ms(2)).await;
            Outcome::Delivered
        }
    })
}

#[tokio::test(start_paused = true)]
async fn one_poison_event_among_many_ends_dead_alone() {
    let mut fixture = Fixture::new();
    fixture.settings.max_attempts = 5;
    let ids = fixture.enqueue_many(1_000);
    let poison = ids[500];
    let crash = Arc::new(Notify::new());
    let mut sent: HashSet<Uuid> = HashSet::new();
    let mut crashes = 0;
    loop {
        let sink = crashing(poison, &crash);
        let worker = fixture.start(&sink);
        let ended = tokio::select! {
            () = crash.notified() => false,
            () = fixture.until(1, "dead") => true,
        };
        if ended {
            fixture.until(999, "delivered").await;
            worker.stop().await;
            sent.extend(sink.delivered());
            break;
        }
        worker.kill().await;
        sent.extend(sink.delivered());
        crashes += 1;
        if crashes > 2 {
            let company = sink.ledger().into_iter().find(|entry| entry.event == poison);
            assert_eq!(
                company.map(|entry| entry.company),
                Some(1),
                "from the third attempt on it is alone"
            );
        }
    }
    assert_eq!(crashes, 5);
    assert_eq!(sent.len(), 999);
    let row = fixture.row(poison).await;
    assert_eq!((row.status.as_str(), row.attempts), ("dead", 5));
    assert_eq!(row.last_error.as_deref(), Some(pillarbox_store::state::SWEPT));
}

#[tokio::test(start_paused = true)]
async fn rows_in_flight_at_a_killed_worker_are_delivered_by_the_next() {
    let fixture = Fixture::new();
    let ids = fixture.enqueue_many(100);
    let hanging = FakeSink::hanging();
    let worker = fixture.start(&hanging);
    until("the destination is full", || hanging.running() == 64).await;
    worker.kill().await;
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    fixture.until(100, "delivered").await;
    worker.stop().await;
    let sent: HashSet<Uuid> = sink.delivered().into_iter().collect();
    assert_eq!(sent, ids.into_iter().collect());
}

#[tokio::test(start_paused = true)]
async fn suspects_that_are_tried_alone_do_not_starve_the_others() {
    // Three rows that were in flight at two crashes go to a destination that takes ten seconds for each.
    let fixture = Fixture::new();
    for _ in 0..3 {
        fixture.enqueue(event().destination("slow"));
    }
    for _ in 0..2 {
        let hanging = FakeSink::hanging();
        let worker = fixture.start_with(vec![destination("slow", &hanging)], vec![]);
        until("all are being sent", || hanging.running() == 3).await;
        worker.kill().await;
    }
    tokio::time::sleep(s(61)).await;
    let slow = FakeSink::scripted(|_| async {
        tokio::time::sleep(s(10)).await;
        Outcome::Delivered
    });
    let quick = FakeSink::willing();
    let worker = fixture.start_with(
        vec![destination("slow", &slow), destination("quick", &quick)],
        vec![],
    );
    for _ in 0..200 {
        fixture.enqueue(event().destination("quick"));
        tokio::time::sleep(ms(500)).await;
    }
    fixture.until(203, "delivered").await;
    worker.stop().await;
    assert!(
        slow.ledger()
            .iter()
            .all(|entry| entry.attempts == 3 && entry.company == 1)
    );
    let waits: Vec<_> = quick
        .ledger()
        .windows(2)
        .map(|pair| pair[1].began - pair[0].began)
        .collect();
    assert!(waits.iter().all(|wait| *wait <= s(11)), "{waits:?}");
    assert_eq!(slow.ledger().len(), 3);
    let slow_ends = slow.ledger()[2].began + s(10);
    let meanwhile = quick
        .ledger()
        .into_iter()
        .filter(|entry| entry.began < slow_ends)
        .count();
    assert!(meanwhile >= 20, "{meanwhile} were delivered between the suspects");
}
