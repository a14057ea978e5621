//! Each destination for itself: one that hangs, refuses or is paused slows no other.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pillarbox::Outcome;
use pillarbox_dispatch::{Rate, Route};
use pillarbox_store::Operate;
use pillarbox_testkit::fakes::FakeSink;
use uuid::Uuid;

use crate::world::{World, destination, event, keyed, ms, s, until};

#[tokio::test(start_paused = true)]
async fn a_hung_a_refusing_and_a_flapping_destination_slow_no_other() {
    let mut world = World::new();
    world.settings.max_in_flight = 200;
    world.settings.batch = 50;
    let flip = AtomicBool::new(false);
    let sinks = [
        ("hung", FakeSink::hanging()),
        ("refusing", FakeSink::answering(|_| Outcome::reject("never"))),
        (
            "flapping",
            FakeSink::answering(move |_| match flip.fetch_xor(true, Ordering::SeqCst) {
                true => Outcome::unavailable("gone for a moment"),
                false => Outcome::Delivered,
            }),
        ),
        ("well", FakeSink::willing()),
    ];
    let destinations = sinks.iter().map(|(name, sink)| destination(name, sink)).collect();
    let routes = sinks.iter().map(|(name, _)| Route::to(*name)).collect();
    let worker = world.start_with(destinations, routes);
    let began = tokio::time::Instant::now();
    for n in 0..2_000 {
        world.enqueue(if n % 2 == 0 {
            event()
        } else {
            keyed(&format!("key-{}", n % 20))
        });
    }
    let well = &sinks[3].1;
    until("all reach the one that is well", || {
        well.delivered().len() == 2_000
    })
    .await;
    assert!(began.elapsed() < s(60), "{:?}", began.elapsed());
    assert!(sinks[0].1.under_way() <= 64);
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_memory_is_bounded_whatever_the_backlog() {
    let mut world = World::new();
    world.settings.max_in_flight = 100;
    let hung: Vec<FakeSink> = (0..5).map(|_| FakeSink::hanging()).collect();
    for n in 0..3_000 {
        world.enqueue(event().destination(format!("d{}", n % 5)));
    }
    let destinations = hung
        .iter()
        .enumerate()
        .map(|(n, sink)| destination(&format!("d{n}"), sink))
        .collect();
    let worker = world.start_with(destinations, vec![Route::to("d0")]);
    for _ in 0..100 {
        tokio::time::sleep(ms(500)).await;
        assert!(world.count("processing").await <= 100);
    }
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_destination_is_not_claimed_for_also_after_a_restart() {
    let world = World::new();
    let sink = FakeSink::willing();
    world
        .outbox
        .pause("there", "lunch")
        .await
        .expect("memory answers");
    let ids: Vec<Uuid> = (0..3)
        .map(|_| world.enqueue(event().destination("there")))
        .collect();
    for _ in 0..2 {
        let worker = world.start(&sink);
        tokio::time::sleep(s(100)).await;
        assert_eq!(worker.stop().await.claimed, 0);
    }
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    tokio::time::sleep(s(1)).await;
    assert!(world.outbox.resume("there").await.expect("memory answers"));
    world.until(3, "delivered").await;
    assert_eq!(sink.delivered(), ids);
    assert_eq!(world.row(ids[0]).await.attempts, 1, "the pause burned no attempt");
    world
        .outbox
        .pause("there", "again")
        .await
        .expect("memory answers");
    tokio::time::sleep(s(1)).await;
    let late = world.enqueue(event());
    tokio::time::sleep(s(100)).await;
    assert_eq!(world.row(late).await.status, "pending");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_here_is_given_back_when_its_destination_is_paused() {
    let world = World::new();
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(s(2)).await;
        Outcome::Delivered
    });
    let mut there = destination("there", &sink);
    there.concurrency = 1;
    let ids = world.enqueue_many(50);
    let worker = world.start_with(vec![there], vec![]);
    until("the first is under way", || sink.under_way() == 1).await;
    world
        .outbox
        .pause("there", "lunch")
        .await
        .expect("memory answers");
    world.until(1, "delivered").await;
    world.until(49, "pending").await;
    assert_eq!(sink.ledger().len(), 1);
    assert_eq!(world.row(ids[30]).await.attempts, 0);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_gone_is_paused_for_everybody_until_a_person_resumes_it() {
    let world = World::new();
    let is_gone = Arc::new(AtomicBool::new(true));
    let gone = Arc::clone(&is_gone);
    let sink = FakeSink::answering(move |_| match gone.load(Ordering::SeqCst) {
        true => Outcome::Disable {
            reason: "410 Gone".into(),
        },
        false => Outcome::Delivered,
    });
    let worker = world.start(&sink);
    let rival = world.start(&sink);
    let id = world.enqueue(event());
    let began = tokio::time::Instant::now();
    let paused = loop {
        let listed = world
            .outbox
            .destinations(&pillarbox_store::Scope::All)
            .await
            .expect("memory answers");
        if let Some(paused) = listed.into_iter().find_map(|there| there.paused) {
            break paused;
        }
        assert!(began.elapsed() < s(10));
        tokio::time::sleep(ms(100)).await;
    };
    assert_eq!(paused.reason, "410 Gone");
    tokio::time::sleep(s(2)).await;
    let asked = sink.ledger().len();
    world.enqueue_many(20);
    tokio::time::sleep(s(100)).await;
    assert_eq!(sink.ledger().len(), asked, "nobody calls it any more");
    is_gone.store(false, Ordering::SeqCst);
    world.outbox.resume("there").await.expect("memory answers");
    world.until(21, "delivered").await;
    assert_eq!(world.row(id).await.attempts, 1);
    worker.stop().await;
    rival.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_kept_and_holds_nobody_else_up() {
    let world = World::new();
    let (slow, quick) = (FakeSink::willing(), FakeSink::willing());
    let mut limited = destination("limited", &slow);
    limited.rate = Some(Rate {
        per_second: 10.0,
        burst: 5,
    });
    let worker = world.start_with(
        vec![limited, destination("quick", &quick)],
        vec![Route::to("limited"), Route::to("quick")],
    );
    let began = tokio::time::Instant::now();
    world.enqueue_many(305);
    until("the quick one has all", || quick.delivered().len() == 305).await;
    assert!(began.elapsed() < s(5), "{:?}", began.elapsed());
    until("the limited one has all", || slow.delivered().len() == 305).await;
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
async fn a_flood_of_one_tenant_does_not_hold_up_the_others_where_that_is_asked_for() {
    let mut world = World::new();
    world.settings.max_in_flight = 100;
    world.settings.batch = 20;
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(100)).await;
        Outcome::Delivered
    });
    let mut fair = destination("fair", &sink);
    fair.fair_by_tenant = true;
    fair.concurrency = 4;
    let (loud, quiet) = (Uuid::from_u128(1), Uuid::from_u128(2));
    for _ in 0..2_000 {
        world.enqueue(event().tenant(loud));
    }
    let worker = world.start_with(vec![fair], vec![]);
    until("the flood is under way", || sink.delivered().len() > 20).await;
    let ids: HashSet<Uuid> = (0..10).map(|_| world.enqueue(event().tenant(quiet))).collect();
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
async fn thousands_of_destinations_are_served_in_rotation() {
    let world = World::new();
    let sink = FakeSink::willing();
    let names: Vec<String> = (0..1_500).map(|n| format!("channel-{n}")).collect();
    for name in &names {
        world.enqueue(event().destination(name.clone()));
    }
    let destinations = names.iter().map(|name| destination(name, &sink)).collect();
    let worker = world.start_with(destinations, vec![Route::to("channel-0")]);
    let began = tokio::time::Instant::now();
    until("all are served", || sink.delivered().len() == 1_500).await;
    assert!(began.elapsed() < s(30), "{:?}", began.elapsed());
    worker.stop().await;
}
