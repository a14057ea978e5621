//! Connections that are lost while events are sent, and which event is to blame.

use std::sync::Arc;

use pillarbox::Outcome;
use pillarbox_testkit::fakes::FakeSink;
use tokio::sync::watch;
use uuid::Uuid;

use crate::fixture::{Fixture, event, ms, until};

/// A broker with one connection: when it closes, everything that is being sent loses it.
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
async fn when_the_broker_is_unavailable_no_event_is_to_blame() {
    let fixture = Fixture::new();
    let broker = Broker::new();
    let sink = broker.sink(None);
    fixture.enqueue_many(40);
    let worker = fixture.start(&sink);
    until("all are being sent", || sink.running() == 40).await;
    sink.set_away(true);
    broker.cut();
    until("all are released", || worker.counters.snapshot().released == 40).await;
    assert_eq!(
        sink.checks(),
        1,
        "rows that lose the connection together share one check"
    );
    for row in fixture.rows().await {
        assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
        let reason = row.last_error.expect("a reason");
        assert_eq!(
            reason,
            "the broker closed the connection; health check failed: connection refused"
        );
    }
    sink.set_away(false);
    fixture.until(40, "delivered").await;
    assert!(fixture.rows().await.iter().all(|row| row.attempts == 1));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn when_the_broker_is_available_all_events_are_suspects() {
    let fixture = Fixture::new();
    let broker = Broker::new();
    let sink = broker.sink(None);
    fixture.enqueue_many(40);
    let worker = fixture.start(&sink);
    until("all are being sent", || sink.running() == 40).await;
    broker.cut();
    until("all are suspects", || worker.counters.snapshot().suspected == 40).await;
    assert_eq!(sink.checks(), 1);
    for row in fixture.rows().await {
        assert_eq!((row.status.as_str(), row.attempts), ("processing", 1));
        assert_eq!(row.max_attempts, Some(5));
    }
    fixture.until(40, "delivered").await;
    let second: Vec<_> = sink
        .ledger()
        .into_iter()
        .filter(|entry| entry.attempts == 2)
        .collect();
    assert!(
        second.iter().all(|entry| entry.company <= 16),
        "suspects are tried in small groups"
    );
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_sent_alone_is_to_blame_whatever_the_check_finds() {
    let fixture = Fixture::new();
    let id = fixture.enqueue(event());
    let sink = Broker::new().sink(Some(id));
    sink.set_away(true);
    let worker = fixture.start(&sink);
    until("it is a suspect", || worker.counters.snapshot().suspected == 1).await;
    assert_eq!(fixture.row(id).await.attempts, 1);
    assert_eq!(worker.counters.snapshot().released, 0);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_broker_cannot_handle_ends_dead_and_alone() {
    let fixture = Fixture::new();
    let ids = fixture.enqueue_many(200);
    let poison = ids[77];
    let sink = Broker::new().sink(Some(poison));
    let worker = fixture.start(&sink);
    fixture.until(1, "dead").await;
    fixture.until(199, "delivered").await;
    let row = fixture.row(poison).await;
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
    let most = fixture
        .rows()
        .await
        .iter()
        .filter(|row| row.id != poison)
        .map(|row| row.attempts)
        .max();
    assert!(most <= Some(3), "another event used {most:?} attempts");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_until_the_health_check_has_ended() {
    let fixture = Fixture::new();
    let cut = fixture.enqueue(event());
    let long = fixture.enqueue(event());
    let sink = FakeSink::scripted(move |delivery| async move {
        if delivery.event.id == cut {
            tokio::time::sleep(ms(2)).await;
            return Outcome::connection_lost("the broker closed the connection");
        }
        // Still being sent while lost connections are collected.
        tokio::time::sleep(ms(40)).await;
        Outcome::Delivered
    });
    sink.set_away(true);
    let worker = fixture.start(&sink);
    until("both are being sent", || sink.running() == 2).await;
    until("one has lost its connection", || sink.running() == 1).await;
    fixture.enqueue_many(10);
    fixture.wake.notify();
    until("it is released", || worker.counters.snapshot().released >= 1).await;
    assert_eq!(sink.ledger().len(), 2);
    assert_eq!(sink.delivered(), [long]);
    assert_eq!(
        worker.counters.snapshot().claimed,
        12,
        "the others waited in the queue"
    );
    worker.stop().await;
}
