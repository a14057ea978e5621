//! Where events go: families, policies of routes, and unrouted events.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use pillarbox::{Event, Outcome};
use pillarbox_dispatch::{Overrides, Route, Unrouted};
use pillarbox_store::Operate;
use pillarbox_store::operate::{Filter, Record};
use pillarbox_store::store::UNROUTED;
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::fakes::{FakeSink, Fault};
use uuid::Uuid;

use crate::fixture::{Fixture, destination, event, keyed, ms, retries, route, s, until};

async fn family(fixture: &Fixture, event: Uuid) -> Vec<Record> {
    let filter = Filter {
        event: Some(event),
        ..Filter::default()
    };
    fixture
        .outbox
        .list(&OPERATOR, &filter)
        .await
        .expect("memory store")
}

fn names(family: &[Record]) -> HashSet<&str> {
    family
        .iter()
        .filter_map(|row| row.destination.as_deref())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_event_goes_once_to_every_destination_of_its_routes() {
    let fixture = Fixture::new();
    let sinks = [FakeSink::willing(), FakeSink::willing(), FakeSink::willing()];
    let destinations = ["a", "b", "c"].into_iter().zip(&sinks);
    let id = fixture.enqueue(keyed("k"));
    let other = fixture.enqueue(Event::new("shop", "carts"));
    let worker = fixture.start_with(
        destinations.map(|(name, sink)| destination(name, sink)).collect(),
        vec![route("*", "a"), route("orders", "b"), route("orders", "a")],
    );
    fixture.until(3, "delivered").await;
    worker.stop().await;
    let first: HashSet<Uuid> = sinks[0].delivered().into_iter().collect();
    assert_eq!((first, sinks[0].ledger().len()), (HashSet::from([id, other]), 2));
    assert_eq!((sinks[1].delivered(), sinks[2].delivered()), (vec![id], vec![]));
    let rows = family(&fixture, id).await;
    assert_eq!((rows.len(), names(&rows)), (2, HashSet::from(["a", "b"])));
    assert!(
        rows.iter()
            .all(|row| row.event.id == id && row.seq == rows[0].seq)
    );
    assert_eq!(rows.iter().filter(|row| row.id == id).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_fails_at_one_destination_reaches_the_others_once() {
    let fixture = Fixture::new();
    let (broken, well) = (FakeSink::answering(|_| Outcome::retry("no")), FakeSink::willing());
    let id = fixture.enqueue(event());
    let worker = fixture.start_with(
        vec![destination("broken", &broken), destination("well", &well)],
        vec![Route::to("broken"), Route::to("well")],
    );
    fixture.until(1, "dead").await;
    worker.stop().await;
    assert_eq!((well.ledger().len(), broken.ledger().len()), (1, 5));
    let rows = family(&fixture, id).await;
    let status = |name: &str| {
        let row = rows.iter().find(|row| row.destination.as_deref() == Some(name));
        row.map(|row| (row.status.as_str(), row.attempts))
    };
    assert_eq!(status("well"), Some(("delivered", 1)));
    assert_eq!(status("broken"), Some(("dead", 5)));
}

#[tokio::test(start_paused = true)]
async fn a_family_is_written_once_even_if_the_answer_is_lost() {
    for fault in [Fault::Before, Fault::After] {
        let first = std::sync::atomic::AtomicBool::new(true);
        let mut fixture = Fixture::failing(move |method| {
            if method == "route" && first.swap(false, std::sync::atomic::Ordering::SeqCst) {
                fault
            } else {
                Fault::None
            }
        });
        fixture.settings.lease = s(40);
        let (a, b) = (FakeSink::willing(), FakeSink::willing());
        let ids: Vec<Uuid> = (0..3).map(|_| fixture.enqueue(keyed("k"))).collect();
        let worker = fixture.start_with(
            vec![destination("a", &a), destination("b", &b)],
            vec![Route::to("a"), Route::to("b")],
        );
        fixture.until(6, "delivered").await;
        worker.stop().await;
        assert_eq!(
            (a.delivered(), b.delivered()),
            (ids.clone(), ids.clone()),
            "{fault:?}"
        );
        assert_eq!(fixture.rows().await.len(), 6);
    }
}

/// A fixture whose store cannot write families.
fn unroutable() -> Fixture {
    Fixture::failing(|method| match method {
        "route" => Fault::Before,
        _ => Fault::None,
    })
}

#[tokio::test(start_paused = true)]
async fn families_that_cannot_be_written_are_released_and_others_are_sent() {
    let fixture = unroutable();
    let (a, b) = (FakeSink::willing(), FakeSink::willing());
    let id = fixture.enqueue(event());
    let worker = fixture.start_with(
        vec![destination("a", &a), destination("b", &b)],
        vec![Route::to("a"), Route::to("b")],
    );
    until("it is released", || worker.counters.snapshot().released == 1).await;
    assert_eq!(fixture.store.calls()["route"], 5);
    let other = fixture.enqueue(event().destination("a"));
    until("the other is sent", || a.delivered() == [other]).await;
    worker.stop().await;
    let row = fixture.row(id).await;
    assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
    assert!(b.ledger().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_rows_that_wait_for_their_family() {
    let fixture = unroutable();
    let (a, b) = (FakeSink::willing(), FakeSink::willing());
    // The second has one destination and waits with the first of its key.
    let ids = [
        fixture.enqueue(keyed("k")),
        fixture.enqueue(Event::new("shop", "carts").ordering_key("k")),
    ];
    let worker = fixture.start_with(
        vec![destination("a", &a), destination("b", &b)],
        vec![Route::to("a"), route("orders", "b")],
    );
    until("writing has failed", || {
        fixture.store.calls().contains_key("route")
    })
    .await;
    worker.stop().await;
    for id in ids {
        let row = fixture.row(id).await;
        assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
    }
    assert!(a.ledger().is_empty() && b.ledger().is_empty());
}

#[tokio::test(start_paused = true)]
async fn unrouted_events_are_held_apart_and_rerouted_when_there_is_a_route() {
    let fixture = Fixture::new();
    let sink = FakeSink::willing();
    let unrouted: Vec<Uuid> = (0..3)
        .map(|_| fixture.enqueue(Event::new("shop", "elsewhere").ordering_key("k")))
        .collect();
    let fine = fixture.enqueue(keyed("k"));
    let worker = fixture.start_with(vec![destination("a", &sink)], vec![route("orders", "a")]);
    fixture.until(1, "delivered").await;
    assert_eq!(sink.delivered(), [fine]);
    until("they are held", || worker.counters.snapshot().released == 3).await;
    let row = fixture.row(unrouted[0]).await;
    assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
    assert_eq!(
        (row.destination.as_deref(), row.unordered),
        (Some(UNROUTED), true)
    );
    assert!(row.last_error.expect("a reason").ends_with("(add a route)"));
    let stats = fixture
        .outbox
        .stats(&OPERATOR, &pillarbox_store::Scope::All)
        .await
        .expect("memory store");
    assert_eq!((stats.unrouted, stats.pending), (3, 3));
    let claimed = worker.counters.snapshot().claimed;
    tokio::time::sleep(s(300)).await;
    assert_eq!(worker.stop().await.claimed, claimed, "they are not claimed again");

    let sink = FakeSink::willing();
    let worker = fixture.start_with(
        vec![destination("a", &sink)],
        vec![route("orders", "a"), route("elsewhere", "a")],
    );
    fixture.until(4, "delivered").await;
    let arrived: HashSet<Uuid> = sink.delivered().into_iter().collect();
    assert_eq!(arrived, unrouted.into_iter().collect());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unrouted_events_can_be_dead_or_deleted_instead() {
    let mut fixture = Fixture::new();
    fixture.settings.unrouted = Unrouted::Dead;
    let sink = FakeSink::willing();
    let start =
        |fixture: &Fixture| fixture.start_with(vec![destination("a", &sink)], vec![route("orders", "a")]);
    let id = fixture.enqueue(Event::new("shop", "elsewhere"));
    let worker = start(&fixture);
    fixture.until(1, "dead").await;
    worker.stop().await;
    assert!(
        fixture
            .row(id)
            .await
            .last_error
            .expect("a reason")
            .contains("no route")
    );

    fixture.settings.unrouted = Unrouted::Delete;
    let id = fixture.enqueue(Event::new("shop", "elsewhere"));
    let worker = start(&fixture);
    until("it is deleted", || worker.counters.snapshot().deleted == 1).await;
    worker.stop().await;
    assert_eq!(
        fixture.outbox.show(&OPERATOR, id).await.expect("memory store"),
        None
    );
    assert!(sink.ledger().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_row_for_an_unknown_destination_is_not_claimed() {
    let fixture = Fixture::new();
    let id = fixture.enqueue(event().destination("unknown"));
    let worker = fixture.start(&FakeSink::willing());
    tokio::time::sleep(s(100)).await;
    assert_eq!(worker.stop().await.claimed, 0);
    let row = fixture.row(id).await;
    assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
    let listed = fixture
        .outbox
        .destinations(&OPERATOR, &pillarbox_store::Scope::All, &[])
        .await
        .expect("memory store");
    assert_eq!((listed[0].name.as_str(), listed[0].pending), ("unknown", 1));
}

#[tokio::test(start_paused = true)]
async fn rows_for_a_destination_that_is_configured_later_are_delivered_in_order() {
    let fixture = Fixture::new();
    for n in 0..500 {
        fixture.enqueue(event().destination(format!("unknown-{n}")));
    }
    let ids: Vec<Uuid> = (0..20)
        .map(|_| fixture.enqueue(keyed("k").destination("late")))
        .collect();
    let without = fixture.start(&FakeSink::willing());
    tokio::time::sleep(s(100)).await;
    assert_eq!(without.stop().await.claimed, 0);
    let sink = FakeSink::willing();
    let worker = fixture.start_with(vec![destination("late", &sink)], Vec::new());
    fixture.until(20, "delivered").await;
    assert_eq!(sink.delivered(), ids);
    assert_eq!(worker.stop().await.claimed, 20);
}

#[tokio::test(start_paused = true)]
async fn a_route_has_its_own_retries_and_timeout() {
    let fixture = Fixture::new();
    let sink = FakeSink::hanging();
    let hasty = Route {
        overrides: Overrides {
            retry: Some(retries(2)),
            timeout: Some(s(1)),
            ..Overrides::default()
        },
        ..route("hasty", "a")
    };
    let quick = fixture.enqueue(Event::new("shop", "hasty"));
    let slow = fixture.enqueue(event());
    let worker = fixture.start_with(vec![destination("a", &sink)], vec![hasty, Route::to("a")]);
    fixture.until(2, "dead").await;
    worker.stop().await;
    assert_eq!(
        (
            fixture.row(quick).await.attempts,
            fixture.row(slow).await.attempts
        ),
        (2, 5)
    );
    let reason = fixture.row(quick).await.last_error.expect("a reason");
    assert!(reason.contains("1s"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_large_fan_out_stays_within_the_room() {
    let mut fixture = Fixture::new();
    fixture.settings.max_in_flight = 100;
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(100)).await;
        Outcome::Delivered
    });
    let names: Vec<String> = (0..40).map(|n| format!("d{n}")).collect();
    fixture.enqueue_many(30);
    let destinations = names.iter().map(|name| destination(name, &sink)).collect();
    let routes = names.iter().map(|name| Route::to(name.clone())).collect();
    let worker = fixture.start_with(destinations, routes);
    let mut most = 0;
    while sink.delivered().len() < 30 * 40 {
        tokio::time::sleep(ms(20)).await;
        most = most.max(fixture.count("processing").await);
    }
    assert!(most <= 100 + 40, "{most} rows were in flight");
    fixture.until(30 * 40, "delivered").await;
    let done = worker.stop().await;
    assert!(done.claimed <= 200, "{} claims of 30 events", done.claimed);
    assert_eq!(done.lost, 0, "what was never written cannot be lost");
}

#[tokio::test(start_paused = true)]
async fn a_chunk_of_families_that_cannot_be_written_is_halved() {
    let failures = AtomicUsize::new(3);
    let fixture = Fixture::failing(move |method| {
        let fails = method == "route"
            && failures
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok();
        if fails { Fault::Before } else { Fault::None }
    });
    let (a, b) = (FakeSink::willing(), FakeSink::willing());
    fixture.enqueue_many(32);
    let worker = fixture.start_with(
        vec![destination("a", &a), destination("b", &b)],
        vec![Route::to("a"), Route::to("b")],
    );
    fixture.until(64, "delivered").await;
    worker.stop().await;
    assert_eq!((a.ledger().len(), b.ledger().len()), (32, 32));
    // 32, 16 and 8 events fail. Then 4, 8, 16 and the last 4 are written.
    assert_eq!(fixture.store.calls()["route"], 3 + 4);
}

#[tokio::test(start_paused = true)]
async fn families_that_cannot_be_written_delay_no_other_row() {
    let fixture = Fixture::failing(|method| match method {
        "route" => Fault::Before,
        _ => Fault::None,
    });
    let (a, b) = (FakeSink::willing(), FakeSink::willing());
    let families = fixture.enqueue_many(3);
    let direct = fixture.enqueue(event().destination("a"));
    let single = fixture.enqueue(Event::new("shop", "carts"));
    let worker = fixture.start_with(
        vec![destination("a", &a), destination("b", &b)],
        vec![Route::to("a"), route("orders", "b")],
    );
    until("the others are delivered", || a.delivered().len() == 2).await;
    let sent: HashSet<Uuid> = a.delivered().into_iter().collect();
    assert_eq!(sent, HashSet::from([direct, single]));
    let reason = |row: Record| {
        row.last_error
            .is_some_and(|error| error.starts_with("routing failed"))
    };
    loop {
        if reason(fixture.row(families[0]).await) {
            break;
        }
        tokio::time::sleep(s(1)).await;
    }
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn the_next_claim_runs_while_families_are_written() {
    let mut fixture = Fixture::failing(|method| match method {
        "route" => Fault::Slow(s(5)),
        _ => Fault::None,
    });
    fixture.settings.batch = 2;
    fixture.enqueue_many(6);
    let (a, b) = (FakeSink::willing(), FakeSink::willing());
    let worker = fixture.start_with(
        vec![destination("a", &a), destination("b", &b)],
        vec![Route::to("a"), Route::to("b")],
    );
    until("two claims", || worker.counters.snapshot().claimed >= 4).await;
    assert_eq!(fixture.store.calls()["route"], 1, "the first still runs");
    assert!(a.ledger().is_empty());
    assert_eq!(worker.counters.snapshot().claimed, 4, "only one claim ahead");
    fixture.until(12, "delivered").await;
    worker.stop().await;
    assert_eq!((a.ledger().len(), b.ledger().len()), (6, 6));
}

#[tokio::test(start_paused = true)]
async fn room_is_kept_for_siblings_that_are_not_written_yet() {
    let mut fixture = Fixture::failing(|method| match method {
        "route" => Fault::Slow(s(5)),
        _ => Fault::None,
    });
    fixture.settings.batch = 2;
    fixture.settings.max_in_flight = 4;
    fixture.enqueue_many(4);
    let (a, b) = (FakeSink::hanging(), FakeSink::hanging());
    let worker = fixture.start_with(
        vec![destination("a", &a), destination("b", &b)],
        vec![Route::to("a"), Route::to("b")],
    );
    until("the first claim is sent", || a.running() + b.running() == 4).await;
    assert_eq!(worker.counters.snapshot().claimed, 2);
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_every_claim_that_waits_for_its_families() {
    let mut fixture = Fixture::failing(|method| match method {
        "route" => Fault::Slow(s(5)),
        _ => Fault::None,
    });
    fixture.settings.batch = 2;
    fixture.enqueue_many(4);
    let (a, b) = (FakeSink::willing(), FakeSink::willing());
    let worker = fixture.start_with(
        vec![destination("a", &a), destination("b", &b)],
        vec![Route::to("a"), Route::to("b")],
    );
    until("two claims", || worker.counters.snapshot().claimed >= 4).await;
    let snapshot = worker.stop().await;
    // The families of the first claim are written, those of the second are not.
    assert_eq!((snapshot.delivered, snapshot.released), (0, 6));
    assert_eq!(fixture.count("pending").await, 6);
}
