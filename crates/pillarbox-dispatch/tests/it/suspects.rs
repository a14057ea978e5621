//! Crashes count as attempts, and only the event that causes them ends dead.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pillarbox::Outcome;
use pillarbox_store::store::{Backlog, ClaimRequest, Share, Take};
use pillarbox_store::{Scope, Store};
use pillarbox_testkit::fakes::FakeSink;
use tokio::sync::Notify;
use tokio::time::Instant;
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

/// Makes rows of this many events suspects that are to be tried alone: they were in flight at two crashes.
pub(crate) async fn lone_suspects(fixture: &Fixture, destination: &str, count: usize) -> Vec<Uuid> {
    let ids: Vec<Uuid> = (0..count)
        .map(|_| fixture.enqueue(event().destination(destination)))
        .collect();
    let share = Share {
        backlog: Backlog {
            destination: Some(destination.to_owned()),
            namespace: "shop".to_owned(),
        },
        limit: count,
        floor: 0,
        fair: false,
        resume: false,
    };
    for take in [Take::Free(vec![share]), Take::Suspects(count)] {
        let request = ClaimRequest {
            worker: Uuid::new_v4(),
            claim: Uuid::new_v4(),
            lease: s(1),
            take,
            excluded: Vec::new(),
            first_lane: 0,
            max_bytes: usize::MAX,
            scope: Scope::All,
            max_attempts: 25,
        };
        let claimed = fixture.outbox.claim(&request).await.expect("memory store");
        assert_eq!(claimed.len(), count);
        tokio::time::sleep(s(2)).await;
    }
    ids
}

pub(crate) fn taking(time: Duration) -> FakeSink {
    FakeSink::scripted(move |_| async move {
        tokio::time::sleep(time).await;
        Outcome::Delivered
    })
}

#[tokio::test(start_paused = true)]
async fn four_thousand_suspects_beside_a_slow_and_a_hung_destination_delay_no_other() {
    let fixture = Fixture::new();
    let mut suspects: HashSet<Uuid> = HashSet::new();
    for (name, count) in [("quick", 2_500), ("usual", 1_500)] {
        suspects.extend(lone_suspects(&fixture, name, count).await);
    }
    for name in ["slow", "hung"] {
        suspects.extend(lone_suspects(&fixture, name, 5).await);
        for _ in 0..3_000 {
            fixture.enqueue(event().destination(name));
        }
    }
    let (quick, usual, slow) = (taking(ms(5)), taking(ms(300)), taking(s(1)));
    let (healthy, hung) = (taking(ms(5)), FakeSink::hanging());
    let sinks = [
        ("quick", &quick),
        ("usual", &usual),
        ("slow", &slow),
        ("hung", &hung),
        ("healthy", &healthy),
    ];
    let destinations = sinks.map(|(name, sink)| destination(name, sink).concurrency(16));
    let worker = fixture.start_with(destinations.into(), vec![]);
    let began = Instant::now();
    let mut fresh: HashMap<Uuid, Instant> = HashMap::new();
    let is_settled = |sink: &FakeSink| {
        let delivered: HashSet<Uuid> = sink.delivered().into_iter().collect();
        delivered.intersection(&suspects).count()
    };
    while is_settled(&quick) + is_settled(&usual) + is_settled(&slow) < 4_005 {
        assert!(
            began.elapsed() < s(600),
            "{} {} {}",
            is_settled(&quick),
            is_settled(&usual),
            is_settled(&slow)
        );
        for name in ["quick", "usual", "healthy"] {
            fresh.insert(fixture.enqueue(event().destination(name)), Instant::now());
        }
        tokio::time::sleep(ms(730)).await;
    }
    tokio::time::sleep(s(10)).await;
    worker.kill().await;
    for (name, sink) in [("quick", &quick), ("usual", &usual), ("healthy", &healthy)] {
        let waits = sink.ledger().into_iter().filter_map(|entry| {
            let enqueued = fresh.get(&entry.event)?;
            Some(entry.began - *enqueued)
        });
        let longest = waits.max().expect("fresh events");
        assert!(longest <= s(5), "a fresh event of {name} waited {longest:?}");
    }
    let sent: HashSet<Uuid> = [&quick, &usual, &healthy]
        .iter()
        .flat_map(|sink| sink.delivered())
        .collect();
    assert!(fresh.keys().all(|id| sent.contains(id)));
    assert!(slow.delivered().len() > 1_000, "the slow destination goes on");
}

#[tokio::test(start_paused = true)]
async fn a_suspect_is_tried_although_rows_of_a_hung_destination_wait() {
    let fixture = Fixture::new();
    lone_suspects(&fixture, "quick", 1).await;
    for _ in 0..1_500 {
        fixture.enqueue(event().destination("hung"));
    }
    let (quick, hung) = (FakeSink::willing(), FakeSink::hanging());
    let worker = fixture.start_with(
        vec![destination("quick", &quick), destination("hung", &hung)],
        vec![],
    );
    let began = Instant::now();
    until("the suspect is delivered", || quick.delivered().len() == 1).await;
    // Two sweeps, and a moment.
    assert!(began.elapsed() < s(22), "{:?}", began.elapsed());
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn after_the_last_suspect_no_quiet_time_follows_although_a_destination_is_paused() {
    let fixture = Fixture::new();
    lone_suspects(&fixture, "quick", 1).await;
    fixture
        .outbox
        .disable(Uuid::nil(), "paused", "gone")
        .await
        .unwrap();
    let (quick, paused) = (FakeSink::willing(), FakeSink::willing());
    let worker = fixture.start_with(
        vec![destination("quick", &quick), destination("paused", &paused)],
        vec![],
    );
    until("the suspect is delivered", || quick.delivered().len() == 1).await;
    tokio::time::sleep(s(5)).await;
    let before = fixture.store.calls()["claim"];
    tokio::time::sleep(s(60)).await;
    let claims = fixture.store.calls()["claim"] - before;
    assert!(claims <= 1, "{claims} claims");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn suspects_of_a_busy_destination_do_not_wait_for_the_end_of_its_backlog() {
    let fixture = Fixture::new();
    let hanging = FakeSink::hanging();
    let suspects: HashSet<Uuid> = fixture.enqueue_many(64).into_iter().collect();
    let worker = fixture.start(&hanging);
    until("all are being sent", || hanging.running() == 64).await;
    worker.kill().await;
    tokio::time::sleep(s(61)).await;
    fixture.enqueue_many(8_000);
    let busy = taking(ms(200));
    let worker = fixture.start_with(vec![destination("there", &busy).concurrency(16)], vec![]);
    let began = Instant::now();
    until("the suspects are delivered", || {
        busy.delivered().iter().filter(|id| suspects.contains(id)).count() == 64
    })
    .await;
    assert!(began.elapsed() < s(60), "{:?}", began.elapsed());
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn one_suspect_does_not_stop_all_workers() {
    let fixture = Fixture::new();
    for _ in 0..20 {
        fixture.enqueue(event().destination("busy"));
    }
    let suspect = lone_suspects(&fixture, "quick", 1).await[0];
    let (quick, busy) = (taking(s(1)), taking(ms(300)));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            fixture.start_with(
                vec![destination("quick", &quick), destination("busy", &busy)],
                vec![],
            )
        })
        .collect();
    let mut longest = ms(0);
    let mut last = Instant::now();
    for _ in 0..300 {
        fixture.enqueue(event().destination("busy"));
        let count = busy.ledger().len();
        tokio::time::sleep(ms(100)).await;
        if busy.ledger().len() > count {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    assert_eq!(quick.delivered(), [suspect]);
    assert!(longest < s(2), "nothing was sent for {longest:?}");
    for worker in workers {
        worker.stop().await;
    }
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
    assert!(slow.ledger().iter().all(|entry| entry.attempts == 3));
    let apart = slow
        .ledger()
        .windows(2)
        .all(|pair| pair[1].began - pair[0].began >= ms(50));
    assert!(apart, "each begins alone");
    let waits: Vec<_> = quick
        .ledger()
        .windows(2)
        .map(|pair| pair[1].began - pair[0].began)
        .collect();
    assert!(waits.iter().all(|wait| *wait <= s(5)), "{waits:?}");
    assert_eq!(slow.ledger().len(), 3);
}
