//! Where events go: families, policies of routes, and what leads nowhere.

use std::collections::HashSet;

use pillarbox::{Event, Outcome};
use pillarbox_dispatch::{Overrides, Route, Unrouted};
use pillarbox_store::Operate;
use pillarbox_store::operate::{Filter, Record};
use pillarbox_store::store::UNROUTED;
use pillarbox_testkit::fakes::{FakeSink, Fault};
use uuid::Uuid;

use crate::world::{World, destination, event, keyed, retries, route, s, until};

async fn family(world: &World, event: Uuid) -> Vec<Record> {
    let filter = Filter {
        event: Some(event),
        ..Filter::default()
    };
    world.outbox.list(&filter).await.expect("memory answers")
}

fn places(family: &[Record]) -> HashSet<&str> {
    family
        .iter()
        .filter_map(|row| row.destination.as_deref())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_event_goes_once_to_every_place_that_routes_lead_to() {
    let world = World::new();
    let sinks = [FakeSink::willing(), FakeSink::willing(), FakeSink::willing()];
    let destinations = ["a", "b", "c"].into_iter().zip(&sinks);
    let id = world.enqueue(keyed("k"));
    let other = world.enqueue(Event::new("shop", "carts"));
    let worker = world.start_with(
        destinations.map(|(name, sink)| destination(name, sink)).collect(),
        vec![route("*", "a"), route("orders", "b"), route("orders", "a")],
    );
    world.until(3, "delivered").await;
    worker.stop().await;
    let first: HashSet<Uuid> = sinks[0].delivered().into_iter().collect();
    assert_eq!((first, sinks[0].ledger().len()), (HashSet::from([id, other]), 2));
    assert_eq!((sinks[1].delivered(), sinks[2].delivered()), (vec![id], vec![]));
    let rows = family(&world, id).await;
    assert_eq!((rows.len(), places(&rows)), (2, HashSet::from(["a", "b"])));
    assert!(
        rows.iter()
            .all(|row| row.event.id == id && row.seq == rows[0].seq)
    );
    assert_eq!(rows.iter().filter(|row| row.id == id).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_broken_at_one_place_reaches_the_others_once() {
    let world = World::new();
    let (broken, well) = (FakeSink::answering(|_| Outcome::retry("no")), FakeSink::willing());
    let id = world.enqueue(event());
    let worker = world.start_with(
        vec![destination("broken", &broken), destination("well", &well)],
        vec![Route::to("broken"), Route::to("well")],
    );
    world.until(1, "dead").await;
    worker.stop().await;
    assert_eq!((well.ledger().len(), broken.ledger().len()), (1, 5));
    let rows = family(&world, id).await;
    let status = |place: &str| {
        let row = rows.iter().find(|row| row.destination.as_deref() == Some(place));
        row.map(|row| (row.status.as_str(), row.attempts))
    };
    assert_eq!(status("well"), Some(("delivered", 1)));
    assert_eq!(status("broken"), Some(("dead", 5)));
}

#[tokio::test(start_paused = true)]
async fn a_family_is_written_once_whatever_becomes_of_the_answer() {
    for fault in [Fault::Before, Fault::After] {
        let first = std::sync::atomic::AtomicBool::new(true);
        let mut world = World::failing(move |method| {
            if method == "route" && first.swap(false, std::sync::atomic::Ordering::SeqCst) {
                fault
            } else {
                Fault::None
            }
        });
        world.settings.lease = s(40);
        let (a, b) = (FakeSink::willing(), FakeSink::willing());
        let ids: Vec<Uuid> = (0..3).map(|_| world.enqueue(keyed("k"))).collect();
        let worker = world.start_with(
            vec![destination("a", &a), destination("b", &b)],
            vec![Route::to("a"), Route::to("b")],
        );
        world.until(6, "delivered").await;
        worker.stop().await;
        assert_eq!(
            (a.delivered(), b.delivered()),
            (ids.clone(), ids.clone()),
            "{fault:?}"
        );
        assert_eq!(world.rows().await.len(), 6);
    }
}

#[tokio::test(start_paused = true)]
async fn what_leads_nowhere_is_held_in_nobodys_way_and_comes_back_when_there_is_a_route() {
    let world = World::new();
    let sink = FakeSink::willing();
    let lost: Vec<Uuid> = (0..3)
        .map(|_| world.enqueue(Event::new("shop", "elsewhere").ordering_key("k")))
        .collect();
    let fine = world.enqueue(keyed("k"));
    let worker = world.start_with(vec![destination("a", &sink)], vec![route("orders", "a")]);
    world.until(1, "delivered").await;
    assert_eq!(sink.delivered(), [fine]);
    until("they are held", || worker.counters.snapshot().released == 3).await;
    let row = world.row(lost[0]).await;
    assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
    assert_eq!(
        (row.destination.as_deref(), row.unordered),
        (Some(UNROUTED), true)
    );
    assert!(row.last_error.expect("a reason").ends_with("add a route"));
    let stats = world
        .outbox
        .stats(&pillarbox_store::Scope::All)
        .await
        .expect("memory answers");
    assert_eq!((stats.unrouted, stats.pending), (3, 3));
    let claimed = worker.counters.snapshot().claimed;
    tokio::time::sleep(s(300)).await;
    assert_eq!(worker.stop().await.claimed, claimed, "nobody looks at them again");

    let sink = FakeSink::willing();
    let worker = world.start_with(
        vec![destination("a", &sink)],
        vec![route("orders", "a"), route("elsewhere", "a")],
    );
    world.until(4, "delivered").await;
    let arrived: HashSet<Uuid> = sink.delivered().into_iter().collect();
    assert_eq!(arrived, lost.into_iter().collect());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_leads_nowhere_can_be_dead_or_discarded_instead() {
    let mut world = World::new();
    world.settings.unrouted = Unrouted::Dead;
    let sink = FakeSink::willing();
    let start = |world: &World| world.start_with(vec![destination("a", &sink)], vec![route("orders", "a")]);
    let id = world.enqueue(Event::new("shop", "elsewhere"));
    let worker = start(&world);
    world.until(1, "dead").await;
    worker.stop().await;
    assert!(
        world
            .row(id)
            .await
            .last_error
            .expect("a reason")
            .contains("no route")
    );

    world.settings.unrouted = Unrouted::Delete;
    let id = world.enqueue(Event::new("shop", "elsewhere"));
    let worker = start(&world);
    until("it is gone", || worker.counters.snapshot().deleted == 1).await;
    worker.stop().await;
    assert_eq!(world.outbox.show(id).await.expect("memory answers"), None);
    assert!(sink.ledger().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_row_for_a_destination_that_is_not_configured_is_left_alone() {
    let world = World::new();
    let id = world.enqueue(event().destination("long gone"));
    let worker = world.start(&FakeSink::willing());
    tokio::time::sleep(s(100)).await;
    assert_eq!(worker.stop().await.claimed, 0);
    let row = world.row(id).await;
    assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
    let listed = world
        .outbox
        .destinations(&pillarbox_store::Scope::All)
        .await
        .expect("memory answers");
    assert_eq!((listed[0].name.as_str(), listed[0].pending), ("long gone", 1));
}

#[tokio::test(start_paused = true)]
async fn a_route_has_its_own_retries_and_timeout() {
    let world = World::new();
    let sink = FakeSink::hanging();
    let hasty = Route {
        overrides: Overrides {
            retry: Some(retries(2)),
            timeout: Some(s(1)),
            ..Overrides::default()
        },
        ..route("hasty", "a")
    };
    let quick = world.enqueue(Event::new("shop", "hasty"));
    let slow = world.enqueue(event());
    let worker = world.start_with(vec![destination("a", &sink)], vec![hasty, Route::to("a")]);
    world.until(2, "dead").await;
    worker.stop().await;
    assert_eq!(
        (world.row(quick).await.attempts, world.row(slow).await.attempts),
        (2, 5)
    );
    let reason = world.row(quick).await.last_error.expect("a reason");
    assert!(reason.contains("1s"), "{reason}");
}
