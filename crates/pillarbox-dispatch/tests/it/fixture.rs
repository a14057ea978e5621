//! An outbox in memory, scripted destinations, and virtual time.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::Jitter;
use pillarbox::clock::TokioClock;
use pillarbox::{Clock, Event, RetryPolicy, Wake};
use pillarbox_dispatch::{Builder, Counters, Destination, Dispatcher, Policy, Route, Settings, Snapshot};
use pillarbox_store::operate::{Filter, Record};
use pillarbox_store::stores::memory::Memory;
use pillarbox_store::{Operate, Scope, Store};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::captured_logs::keep_enabled;
use pillarbox_testkit::fakes::{FakeSink, Fault, FlakyStore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// When every test begins.
pub(crate) const EPOCH: time::OffsetDateTime = time::macros::datetime!(2026-01-01 00:00 UTC);

pub(crate) fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An outbox, its clock, and the settings of workers.
pub(crate) struct Fixture {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) outbox: Memory,
    pub(crate) store: FlakyStore,
    pub(crate) settings: Settings,
    pub(crate) wake: Wake,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::failing(|_| Fault::None)
    }

    /// A store that fails as planned.
    pub(crate) fn failing(plan: impl Fn(&'static str) -> Fault + Send + Sync + 'static) -> Self {
        Self::with_clock(Arc::new(TokioClock::starting_at(EPOCH)), plan)
    }

    pub(crate) fn with_clock(
        clock: Arc<dyn Clock>,
        plan: impl Fn(&'static str) -> Fault + Send + Sync + 'static,
    ) -> Self {
        keep_enabled();
        let outbox = Memory::new(Arc::clone(&clock));
        let store = FlakyStore::new(Arc::new(outbox.clone()), plan);
        Self {
            clock,
            outbox,
            store,
            settings: Settings::default(),
            wake: Wake::default(),
        }
    }

    pub(crate) fn enqueue(&self, event: Event) -> Uuid {
        self.outbox.enqueue(event).expect("a valid event").id()
    }

    pub(crate) fn enqueue_many(&self, count: usize) -> Vec<Uuid> {
        (0..count).map(|_| self.enqueue(event())).collect()
    }

    pub(crate) fn builder(&self) -> Builder {
        let store: Arc<dyn Store> = Arc::new(self.store.clone());
        Dispatcher::builder(store)
            .settings(self.settings.clone())
            .clock(Arc::clone(&self.clock))
            .wake(self.wake.clone())
    }

    /// Starts a worker with this one destination.
    pub(crate) fn start(&self, sink: &FakeSink) -> Running {
        self.start_with(vec![destination("there", sink)], vec![])
    }

    pub(crate) fn start_with(&self, destinations: Vec<Destination>, routes: Vec<Route>) -> Running {
        let builder = destinations
            .into_iter()
            .fold(self.builder(), Builder::destination);
        let dispatcher = routes
            .into_iter()
            .fold(builder, Builder::route)
            .build()
            .expect("valid settings");
        Running::new(dispatcher)
    }

    pub(crate) async fn row(&self, id: Uuid) -> Record {
        let row = self.outbox.show(&OPERATOR, id).await.expect("memory store");
        row.expect("an existing row")
    }

    pub(crate) async fn rows(&self) -> Vec<Record> {
        let filter = Filter {
            limit: usize::MAX,
            ..Filter::default()
        };
        let mut rows = self.outbox.list(&OPERATOR, &filter).await.expect("memory store");
        rows.reverse();
        rows
    }

    pub(crate) async fn count(&self, status: &str) -> usize {
        let stats = self
            .outbox
            .stats(&OPERATOR, &Scope::All)
            .await
            .expect("memory store");
        let count = match status {
            "pending" => stats.pending,
            "processing" => stats.processing,
            "delivered" => stats.delivered,
            "dead" => stats.dead,
            other => panic!("{other} is no status"),
        };
        usize::try_from(count).expect("a small number")
    }

    /// Waits until so many rows have this status.
    pub(crate) async fn until(&self, count: usize, status: &str) {
        let began = tokio::time::Instant::now();
        while self.count(status).await != count {
            if began.elapsed() > s(3600) {
                panic!(
                    "timeout: {count} rows should be {status}: {:#?}",
                    self.rows().await
                );
            }
            tokio::time::sleep(pause(began)).await;
        }
    }
}

/// Waits for a fact, for at most one hour of virtual time.
pub(crate) async fn until(what: &str, mut fact: impl FnMut() -> bool) {
    let began = tokio::time::Instant::now();
    while !fact() {
        assert!(began.elapsed() < s(3600), "timeout: {what}");
        tokio::time::sleep(pause(began)).await;
    }
}

/// Short at first. An hour in steps of one millisecond takes long even in virtual time.
fn pause(began: tokio::time::Instant) -> Duration {
    (began.elapsed() / 100).max(ms(1))
}

pub(crate) fn event() -> Event {
    Event::new("shop", "orders")
}

pub(crate) fn keyed(key: &str) -> Event {
    event().ordering_key(key)
}

pub(crate) fn destination(name: &str, sink: &FakeSink) -> Destination {
    Destination::new(name, sink.clone())
        .policy(policy(5))
        .concurrency(64)
}

/// So many attempts of twenty seconds each.
pub(crate) fn policy(attempts: u32) -> Policy {
    Policy::default().retry(retries(attempts)).timeout(s(20))
}

/// 1 s, 2 s, 4 s … exactly.
pub(crate) fn retries(attempts: u32) -> RetryPolicy {
    RetryPolicy::exponential(s(1), s(60))
        .jitter(Jitter::None)
        .max_attempts(attempts)
}

pub(crate) fn route(topic: &str, destination: &str) -> Route {
    Route {
        topic: topic.into(),
        ..Route::to(destination)
    }
}

/// A running worker.
pub(crate) struct Running {
    task: JoinHandle<Snapshot>,
    shutdown: CancellationToken,
    pub(crate) counters: Arc<Counters>,
}

impl Running {
    fn new(dispatcher: Dispatcher) -> Self {
        let shutdown = CancellationToken::new();
        let counters = dispatcher.counters();
        let task = tokio::spawn(dispatcher.run(shutdown.clone()));
        Self {
            task,
            shutdown,
            counters,
        }
    }

    /// Shuts it down, and waits until it has stopped.
    pub(crate) async fn stop(self) -> Snapshot {
        self.shutdown.cancel();
        self.task.await.expect("no panic")
    }

    /// Begins its shutdown.
    pub(crate) fn cancel(&self) {
        self.shutdown.cancel();
    }

    /// Kills it: its future is dropped.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let killed = self.task.await.expect_err("a running worker");
        assert!(killed.is_cancelled());
    }
}
