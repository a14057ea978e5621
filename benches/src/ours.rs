//! Pillarbox as an application embeds it: a store, a dispatcher, destinations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, RetryPolicy, Sink};
use pillarbox_dispatch::{Destination, Dispatcher, Policy, Route, Settings, Snapshot};
use pillarbox_store::Store;
use pillarbox_store::stores::postgres::adopt::Table;
use pillarbox_store::stores::postgres::{Options, Postgres};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::backlog::Backlog;
use crate::database::Database;
use crate::failure::Failure;
use crate::latency::Arrivals;

/// The default of a broker's sink, so that only the engine limits the rate.
pub(crate) const CONCURRENCY: usize = 1024;

/// The outbox, filled with plain INSERTs.
pub(crate) const TABLE: &str = "pillarbox.outbox_events";

/// Without progress for this long, a run has failed.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How often progress is checked: far below the length of a run.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// An outbox in a database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ours<'a> {
    database: &'a Database,
    /// The adopted tables that it serves.
    tables: &'a [Table],
    /// Are delivered rows deleted?
    deletes: bool,
}

impl<'a> Ours<'a> {
    /// Creates or updates the outbox.
    pub(crate) async fn new(database: &'a Database) -> Result<Self, Failure> {
        let ours = Self {
            database,
            tables: &[],
            deletes: false,
        };
        let store = ours.store()?;
        store.migrate().await?;
        store.close().await;
        Ok(ours)
    }

    /// The same, serving these adopted tables.
    pub(crate) fn adopting(self, tables: &'a [Table]) -> Self {
        Self { tables, ..self }
    }

    /// The same, deleting rows when they are delivered.
    pub(crate) fn deleting(self) -> Self {
        Self {
            deletes: true,
            ..self
        }
    }

    /// Fails unless every row is delivered, or deleted.
    pub(crate) async fn verify(&self, rows: u32) -> Result<(), Failure> {
        if self.deletes {
            self.backlog().verify_empty().await
        } else {
            self.backlog().verify(rows).await
        }
    }

    pub(crate) fn backlog(&self) -> Backlog<'a> {
        Backlog {
            database: self.database,
            table: TABLE,
        }
    }

    fn store(&self) -> Result<Postgres, Failure> {
        Ok(Postgres::new(&self.database.url(), Options::default())?)
    }

    /// Starts a dispatcher with one destination and default settings.
    pub(crate) async fn start(&self, sink: Arc<dyn Sink>, concurrency: usize) -> Result<Running, Failure> {
        self.start_to(vec![("destination".to_owned(), sink)], concurrency)
            .await
    }

    /// Starts a dispatcher that routes every event without a destination to all of these. It is connected when this returns.
    pub(crate) async fn start_to(
        &self,
        destinations: Vec<(String, Arc<dyn Sink>)>,
        concurrency: usize,
    ) -> Result<Running, Failure> {
        self.start_with(destinations, concurrency, RetryPolicy::default())
            .await
    }

    /// The same, with this retry policy.
    pub(crate) async fn start_with(
        &self,
        destinations: Vec<(String, Arc<dyn Sink>)>,
        concurrency: usize,
        retry: RetryPolicy,
    ) -> Result<Running, Failure> {
        let store = self.store()?;
        store.check().await?;
        store
            .adopt(self.tables)
            .await
            .map_err(|error| Failure::new(error.to_string()))?;
        let mut settings = Settings::default();
        settings.retention.keep.delivered = self.deletes.then_some(Duration::ZERO);
        let timeout = settings.timeout;
        let mut builder = Dispatcher::builder(Arc::new(store.clone())).settings(settings);
        for (name, sink) in destinations {
            sink.check().await.map_err(Failure::Message)?;
            let destination = Destination::shared(name.clone(), sink)
                .policy(Policy::default().timeout(timeout).retry(retry.clone()))
                .concurrency(concurrency);
            builder = builder.route(Route::to(name)).destination(destination);
        }
        let dispatcher = builder.build()?;
        let shutdown = CancellationToken::new();
        Ok(Running {
            store,
            counters: dispatcher.counters(),
            task: tokio::spawn(dispatcher.run(shutdown.clone())),
            shutdown,
        })
    }

    /// Drains a backlog of `rows` and returns the time from the start to the last settle.
    pub(crate) async fn drain(
        &self,
        rows: u32,
        sink: Arc<dyn Sink>,
        concurrency: usize,
    ) -> Result<Duration, Failure> {
        let began = Instant::now();
        let running = self.start(sink, concurrency).await?;
        let drained = running.delivered(u64::from(rows)).await;
        let took = began.elapsed();
        let snapshot = running.stop().await?;
        drained?;
        if snapshot.delivered != snapshot.claimed {
            return Err(Failure::new(format!(
                "some rows needed more than one attempt: {snapshot:?}"
            )));
        }
        Ok(took)
    }

    /// Drains a backlog into a sink that does nothing.
    pub(crate) async fn drain_to_null(&self, rows: u32) -> Result<Duration, Failure> {
        self.drain(rows, Arc::new(NullSink), CONCURRENCY).await
    }
}

/// A running dispatcher.
pub(crate) struct Running {
    store: Postgres,
    counters: Arc<pillarbox_dispatch::Counters>,
    shutdown: CancellationToken,
    task: JoinHandle<Snapshot>,
}

impl Running {
    /// Its counters so far.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.counters.snapshot()
    }

    /// Waits until this many rows are settled as delivered.
    pub(crate) async fn delivered(&self, rows: u64) -> Result<(), Failure> {
        self.settled(rows, |snapshot| snapshot.delivered).await
    }

    /// Waits until this many rows are delivered or dead.
    pub(crate) async fn ended(&self, rows: u64) -> Result<(), Failure> {
        self.settled(rows, |snapshot| snapshot.delivered + snapshot.dead)
            .await
    }

    async fn settled(&self, rows: u64, count: impl Fn(&Snapshot) -> u64) -> Result<(), Failure> {
        let mut last = (0, Instant::now());
        loop {
            let settled = count(&self.counters.snapshot());
            if settled >= rows {
                return Ok(());
            }
            if settled > last.0 {
                last = (settled, Instant::now());
            }
            if last.1.elapsed() > STALL_TIMEOUT {
                return Err(Failure::new(format!(
                    "{settled} of {rows} rows settled, and no progress for {STALL_TIMEOUT:?}"
                )));
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Stops it and returns its counters.
    pub(crate) async fn stop(self) -> Result<Snapshot, Failure> {
        self.shutdown.cancel();
        let snapshot = self
            .task
            .await
            .map_err(|error| Failure::new(format!("dispatcher: {error}")))?;
        self.store.close().await;
        Ok(snapshot)
    }
}

/// A sink that confirms every event at once.
#[derive(Debug)]
pub(crate) struct NullSink;

#[async_trait]
impl Sink for NullSink {
    async fn deliver(&self, _: &Delivery) -> Outcome {
        Outcome::Delivered
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A sink that never answers.
#[derive(Debug)]
pub(crate) struct HangingSink;

#[async_trait]
impl Sink for HangingSink {
    async fn deliver(&self, _: &Delivery) -> Outcome {
        std::future::pending().await
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A sink that confirms every event at once and notes its arrival.
#[derive(Debug)]
pub(crate) struct Stopwatch(pub(crate) Arrivals);

#[async_trait]
impl Sink for Stopwatch {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        self.0.note(delivery.id);
        Outcome::Delivered
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A sink that ends every n-th attempt in this way and confirms the others at once.
#[derive(Debug)]
pub(crate) struct FailingSink {
    pub(crate) every: u64,
    pub(crate) outcome: Outcome,
    pub(crate) attempts: AtomicU64,
}

#[async_trait]
impl Sink for FailingSink {
    async fn deliver(&self, _: &Delivery) -> Outcome {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        if attempt.is_multiple_of(self.every) {
            self.outcome.clone()
        } else {
            Outcome::Delivered
        }
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
