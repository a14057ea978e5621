//! A connection that is closed under events: whose fault was it?

use std::sync::Arc;

use pillarbox::Outcome;
use pillarbox_testkit::fakes::FakeSink;
use tokio::sync::watch;
use uuid::Uuid;

use crate::world::{World, event, ms, until};

/// A broker with one connection: when it is closed, everything in flight is cut.
#[derive(Clone)]
struct Broker {
    connection: Arc<watch::Sender<u64>>,
}

impl Broker {
    fn new() -> Self {
        let (connection, _) = watch::channel(0);
        Self {
            connection: Arc::new(connection),
        }
    }

    fn cut(&self) {
        self.connection.send_modify(|generation| *generation += 1);
    }

    /// A sink on this broker. The poison makes the broker close the connection.
    fn sink(&self, poison: Option<Uuid>) -> FakeSink {
        let broker = self.clone();
        FakeSink::scripted(move |delivery| {
            let broker = broker.clone();
            let mut connection = broker.connection.subscribe();
            async move {
                if Some(delivery.event.id) == poison {
                    tokio::time::sleep(ms(2)).await;
                    broker.cut();
                    return Outcome::connection_lost("the broker closed the connection");
                }
                tokio::select! {
                    () = tokio::time::sleep(ms(5)) => Outcome::Delivered,
                    _ = connection.changed() => Outcome::connection_lost("the broker closed the connection"),
                }
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_broker_went_away_nobody_is_to_blame() {
    let world = World::new();
    let broker = Broker::new();
    let sink = broker.sink(None);
    world.enqueue_many(40);
    let worker = world.start(&sink);
    until("all are under way", || sink.under_way() == 40).await;
    sink.set_away(true);
    broker.cut();
    until("all are given back", || worker.counters.snapshot().released == 40).await;
    assert_eq!(sink.checks(), 1, "those cut together share one check");
    for row in world.rows().await {
        assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
        let reason = row.last_error.expect("a reason");
        assert_eq!(
            reason,
            "the broker closed the connection; health check failed: nobody is there"
        );
    }
    sink.set_away(false);
    world.until(40, "delivered").await;
    assert!(world.rows().await.iter().all(|row| row.attempts == 1));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn when_the_broker_is_still_there_all_of_them_are_suspects() {
    let world = World::new();
    let broker = Broker::new();
    let sink = broker.sink(None);
    world.enqueue_many(40);
    let worker = world.start(&sink);
    until("all are under way", || sink.under_way() == 40).await;
    broker.cut();
    until("all are suspects", || worker.counters.snapshot().suspected == 40).await;
    assert_eq!(sink.checks(), 1);
    for row in world.rows().await {
        assert_eq!((row.status.as_str(), row.attempts), ("processing", 1));
        assert_eq!(row.max_attempts, Some(5));
    }
    world.until(40, "delivered").await;
    let second: Vec<_> = sink
        .ledger()
        .into_iter()
        .filter(|entry| entry.attempts == 2)
        .collect();
    assert!(
        second.iter().all(|entry| entry.company <= 16),
        "they come back in small groups"
    );
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_was_alone_is_to_blame_whatever_the_check_says() {
    let world = World::new();
    let id = world.enqueue(event());
    let sink = Broker::new().sink(Some(id));
    sink.set_away(true);
    let worker = world.start(&sink);
    until("it is a suspect", || worker.counters.snapshot().suspected == 1).await;
    assert_eq!(world.row(id).await.attempts, 1);
    assert_eq!(worker.counters.snapshot().released, 0);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_broker_cannot_bear_ends_dead_and_alone() {
    let world = World::new();
    let ids = world.enqueue_many(200);
    let poison = ids[77];
    let sink = Broker::new().sink(Some(poison));
    let worker = world.start(&sink);
    world.until(1, "dead").await;
    world.until(199, "delivered").await;
    let row = world.row(poison).await;
    assert_eq!((row.status.as_str(), row.attempts), ("dead", 5));
    assert_eq!(
        row.last_error.as_deref(),
        Some("the broker closed the connection")
    );
    let alone = sink
        .ledger()
        .into_iter()
        .filter(|entry| entry.event == poison && entry.attempts > 2);
    assert!(alone.map(|entry| entry.company).eq([1, 1, 1]));
    let most = world
        .rows()
        .await
        .iter()
        .filter(|row| row.id != poison)
        .map(|row| row.attempts)
        .max();
    assert!(most <= Some(3), "a neighbour used up {most:?} attempts");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_it_is_not_known_whether_anybody_is_there() {
    let world = World::new();
    let cut = world.enqueue(event());
    let long = world.enqueue(event());
    let sink = FakeSink::scripted(move |delivery| async move {
        if delivery.event.id == cut {
            tokio::time::sleep(ms(2)).await;
            return Outcome::connection_lost("the broker closed the connection");
        }
        // Still under way while the cuts are collected.
        tokio::time::sleep(ms(40)).await;
        Outcome::Delivered
    });
    sink.set_away(true);
    let worker = world.start(&sink);
    until("both are under way", || sink.under_way() == 2).await;
    until("one is cut", || sink.under_way() == 1).await;
    world.enqueue_many(10);
    world.wake.ring();
    until("the cut one is given back", || {
        worker.counters.snapshot().released >= 1
    })
    .await;
    assert_eq!(sink.ledger().len(), 2);
    assert_eq!(sink.delivered(), [long]);
    assert_eq!(worker.counters.snapshot().claimed, 12, "the others waited here");
    worker.stop().await;
}
