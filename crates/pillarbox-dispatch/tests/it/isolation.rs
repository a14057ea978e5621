//! A destination that hangs, fails or is paused slows no other.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pillarbox::Outcome;
use pillarbox_dispatch::{Rate, Route};
use pillarbox_store::Operate;
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::fakes::FakeSink;
use uuid::Uuid;

use crate::fixture::{Fixture, destination, event, keyed, ms, s, until};

#[tokio::test(start_paused = true)]
async fn a_hung_a_failing_and_a_flapping_destination_slow_no_other() {
    let mut fixture = Fixture::new();
    fixture.settings.max_in_flight = 200;
    fixture.settings.batch = 50;
    let flip = AtomicBool::new(false);
    let sinks = [
        ("hung", FakeSink::hanging()),
        ("refusing", FakeSink::answering(|_| Outcome::reject("never"))),
        (
            "flapping",
            FakeSink::answering(move |_| match flip.fetch_xor(true, Ordering::SeqCst) {
                true => Outcome::unavailable("unavailable for a moment"),
                false => Outcome::Delivered,
            }),
        ),
        ("well", FakeSink::willing()),
    ];
    let destinations = sinks.iter().map(|(name, sink)| destination(name, sink)).collect();
    let routes = sinks.iter().map(|(name, _)| Route::to(*name)).collect();
    let worker = fixture.start_with(destinations, routes);
    let began = tokio::time::Instant::now();
    for n in 0..2_000 {
        fixture.enqueue(if n % 2 == 0 {
            event()
        } else {
            keyed(&format!("key-{}", n % 20))
        });
    }
    let well = &sinks[3].1;
    until("the healthy destination has all events", || {
        well.delivered().len() == 2_000
    })
    .await;
    assert!(began.elapsed() < s(60), "{:?}", began.elapsed());
    assert!(sinks[0].1.running() <= 64);
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn rows_in_flight_are_bounded_whatever_the_backlog() {
    let mut fixture = Fixture::new();
    fixture.settings.max_in_flight = 100;
    let hung: Vec<FakeSink> = (0..5).map(|_| FakeSink::hanging()).collect();
    for n in 0..3_000 {
        fixture.enqueue(event().destination(format!("d{}", n % 5)));
    }
    let destinations = hung
        .iter()
        .enumerate()
        .map(|(n, sink)| destination(&format!("d{n}"), sink))
        .collect();
    let worker = fixture.start_with(destinations, vec![Route::to("d0")]);
    for _ in 0..100 {
        tokio::time::sleep(ms(500)).await;
        assert!(fixture.count("processing").await <= 100);
    }
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_stops_claims_and_outlives_a_restart() {
    let fixture = Fixture::new();
    let sink = FakeSink::willing();
    fixture
        .outbox
        .pause(&OPERATOR, "there", "lunch")
        .await
        .expect("memory store");
    let ids: Vec<Uuid> = (0..3)
        .map(|_| fixture.enqueue(event().destination("there")))
        .collect();
    for _ in 0..2 {
        let worker = fixture.start(&sink);
        tokio::time::sleep(s(100)).await;
        assert_eq!(worker.stop().await.claimed, 0);
    }
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    tokio::time::sleep(s(1)).await;
    assert!(
        fixture
            .outbox
            .resume(&OPERATOR, "there")
            .await
            .expect("memory store")
    );
    fixture.until(3, "delivered").await;
    assert_eq!(sink.delivered(), ids);
    assert_eq!(fixture.row(ids[0]).await.attempts, 1, "the pause used no attempt");
    fixture
        .outbox
        .pause(&OPERATOR, "there", "again")
        .await
        .expect("memory store");
    tokio::time::sleep(s(1)).await;
    let late = fixture.enqueue(event());
    tokio::time::sleep(s(100)).await;
    assert_eq!(fixture.row(late).await.status, "pending");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_rows_are_released_when_their_destination_is_paused() {
    let fixture = Fixture::new();
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(s(2)).await;
        Outcome::Delivered
    });
    let mut there = destination("there", &sink);
    there.concurrency = 1;
    let ids = fixture.enqueue_many(50);
    let worker = fixture.start_with(vec![there], vec![]);
    until("the first is being sent", || sink.running() == 1).await;
    fixture
        .outbox
        .pause(&OPERATOR, "there", "lunch")
        .await
        .expect("memory store");
    fixture.until(1, "delivered").await;
    fixture.until(49, "pending").await;
    assert_eq!(sink.ledger().len(), 1);
    assert_eq!(fixture.row(ids[30]).await.attempts, 0);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_disabled_destination_is_paused_for_all_workers_until_an_operator_resumes_it() {
    let fixture = Fixture::new();
    let is_disabled = Arc::new(AtomicBool::new(true));
    let disabled = Arc::clone(&is_disabled);
    let sink = FakeSink::answering(move |_| match disabled.load(Ordering::SeqCst) {
        true => Outcome::Disable {
            reason: "410 Gone".into(),
        },
        false => Outcome::Delivered,
    });
    let worker = fixture.start(&sink);
    let rival = fixture.start(&sink);
    let id = fixture.enqueue(event());
    let began = tokio::time::Instant::now();
    let paused = loop {
        let listed = fixture
            .outbox
            .destinations(&OPERATOR, &pillarbox_store::Scope::All, &[])
            .await
            .expect("memory store");
        if let Some(paused) = listed.into_iter().find_map(|there| there.paused) {
            break paused;
        }
        assert!(began.elapsed() < s(10));
        tokio::time::sleep(ms(100)).await;
    };
    assert_eq!(paused.reason, "410 Gone");
    tokio::time::sleep(s(2)).await;
    let calls = sink.ledger().len();
    fixture.enqueue_many(20);
    tokio::time::sleep(s(100)).await;
    assert_eq!(sink.ledger().len(), calls, "no worker calls it");
    is_disabled.store(false, Ordering::SeqCst);
    fixture
        .outbox
        .resume(&OPERATOR, "there")
        .await
        .expect("memory store");
    fixture.until(21, "delivered").await;
    assert_eq!(fixture.row(id).await.attempts, 1);
    worker.stop().await;
    rival.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_kept_and_slows_no_other_destination() {
    let fixture = Fixture::new();
    let (slow, quick) = (FakeSink::willing(), FakeSink::willing());
    let mut limited = destination("limited", &slow);
    limited.rate = Some(Rate {
        per_second: 10.0,
        burst: 5,
    });
    let worker = fixture.start_with(
        vec![limited, destination("quick", &quick)],
        vec![Route::to("limited"), Route::to("quick")],
    );
    let began = tokio::time::Instant::now();
    fixture.enqueue_many(305);
    until("the quick destination has all", || quick.delivered().len() == 305).await;
    assert!(began.elapsed() < s(5), "{:?}", began.elapsed());
    until("the limited destination has all", || {
        slow.delivered().len() == 305
    })
    .await;
    let took = began.elapsed();
    assert!((s(29)..s(36)).contains(&took), "{took:?}");
    worker.stop().await;
    let ledger = slow.ledger();
    for window in ledger.windows(26) {
        let span = window[25].began - window[0].began;
        assert!(span >= ms(1_900), "26 within {span:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fair_destination_does_not_let_one_tenant_delay_the_others() {
    let mut fixture = Fixture::new();
    fixture.settings.max_in_flight = 100;
    fixture.settings.batch = 20;
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(100)).await;
        Outcome::Delivered
    });
    let mut fair = destination("fair", &sink);
    fair.fair_by_tenant = true;
    fair.concurrency = 4;
    let (loud, quiet) = (Uuid::from_u128(1), Uuid::from_u128(2));
    for _ in 0..2_000 {
        fixture.enqueue(event().tenant(loud));
    }
    let worker = fixture.start_with(vec![fair], vec![]);
    until("the flood has begun", || sink.delivered().len() > 20).await;
    let ids: HashSet<Uuid> = (0..10).map(|_| fixture.enqueue(event().tenant(quiet))).collect();
    let began = tokio::time::Instant::now();
    until("the others arrive", || {
        let arrived: HashSet<Uuid> = sink.delivered().into_iter().collect();
        ids.is_subset(&arrived)
    })
    .await;
    // The flood alone takes fifty seconds.
    assert!(began.elapsed() < s(20), "{:?}", began.elapsed());
    assert!(sink.delivered().len() < 1_500);
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_backlogs_are_claimed_from_in_rotation() {
    let fixture = Fixture::new();
    let sink = FakeSink::willing();
    let names: Vec<String> = (0..1_500).map(|n| format!("channel-{n}")).collect();
    for name in &names {
        fixture.enqueue(event().destination(name.clone()));
    }
    let destinations = names.iter().map(|name| destination(name, &sink)).collect();
    let worker = fixture.start_with(destinations, vec![Route::to("channel-0")]);
    let began = tokio::time::Instant::now();
    until("all are delivered", || sink.delivered().len() == 1_500).await;
    assert!(began.elapsed() < s(30), "{:?}", began.elapsed());
    worker.stop().await;
}
