//! Pillarbox as an application links it: a store, a dispatcher, destinations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Sink};
use pillarbox_dispatch::{Destination, Dispatcher, Policy, Route, Settings, Snapshot};
use pillarbox_store::Store;
use pillarbox_store::stores::postgres::adopt::Table;
use pillarbox_store::stores::postgres::{Options, Postgres};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::backlog::Backlog;
use crate::database::Database;
use crate::failure::Failure;

/// As many as a broker's default: what the engine costs when nothing else does.
pub(crate) const CONCURRENCY: usize = 1024;

/// The table that backlogs are written to, by plain INSERTs.
pub(crate) const TABLE: &str = "pillarbox.outbox_events";

/// A backlog that does not shrink for so long will not.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often we look whether it is over: far below what a run takes.
const LOOK: Duration = Duration::from_millis(1);

/// An outbox in a database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ours<'a> {
    database: &'a Database,
    /// Tables of others that it works on.
    tables: &'a [Table],
}

impl<'a> Ours<'a> {
    /// Migrates it if that was not done.
    pub(crate) async fn new(database: &'a Database) -> Result<Self, Failure> {
        let ours = Self {
            database,
            tables: &[],
        };
        let store = ours.store()?;
        store.migrate().await?;
        store.close().await;
        Ok(ours)
    }

    /// The same that works on these tables of others.
    pub(crate) fn adopting(self, tables: &'a [Table]) -> Self {
        Self { tables, ..self }
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

    /// Starts a dispatcher with one destination, with the settings of the house.
    pub(crate) async fn start(&self, sink: Arc<dyn Sink>, concurrency: usize) -> Result<Running, Failure> {
        self.start_to(vec![("there".to_owned(), sink)], concurrency).await
    }

    /// Starts a dispatcher that has its connection and sends everything that knows no destination to all of these.
    pub(crate) async fn start_to(
        &self,
        destinations: Vec<(String, Arc<dyn Sink>)>,
        concurrency: usize,
    ) -> Result<Running, Failure> {
        let store = self.store()?;
        store.check().await?;
        store
            .adopt(self.tables)
            .await
            .map_err(|error| Failure::said(error.to_string()))?;
        let settings = Settings::default();
        let timeout = settings.timeout;
        let mut builder = Dispatcher::builder(Arc::new(store.clone())).settings(settings);
        for (name, sink) in destinations {
            sink.check().await.map_err(Failure::Said)?;
            let destination = Destination::shared(name.clone(), sink)
                .policy(Policy::default().timeout(timeout))
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

    /// Drains a backlog of `rows` and says how long it took, from the start to the last settle.
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
            return Err(Failure::said(format!(
                "not every attempt was the first and the last: {snapshot:?}"
            )));
        }
        Ok(took)
    }

    /// Drains a backlog into nothing.
    pub(crate) async fn drain_into_nothing(&self, rows: u32) -> Result<Duration, Failure> {
        self.drain(rows, Arc::new(Nothing), CONCURRENCY).await
    }
}

/// A dispatcher at work.
pub(crate) struct Running {
    store: Postgres,
    counters: Arc<pillarbox_dispatch::Counters>,
    shutdown: CancellationToken,
    task: JoinHandle<Snapshot>,
}

impl Running {
    /// What it has done so far.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.counters.snapshot()
    }

    /// Waits until so many rows are written down as delivered.
    pub(crate) async fn delivered(&self, rows: u64) -> Result<(), Failure> {
        let mut last = (0, Instant::now());
        loop {
            let delivered = self.counters.snapshot().delivered;
            if delivered >= rows {
                return Ok(());
            }
            if delivered > last.0 {
                last = (delivered, Instant::now());
            }
            if last.1.elapsed() > PATIENCE {
                return Err(Failure::said(format!(
                    "{delivered} of {rows} delivered, and no more for {PATIENCE:?}"
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Stops it, and says what it did.
    pub(crate) async fn stop(self) -> Result<Snapshot, Failure> {
        self.shutdown.cancel();
        let snapshot = self
            .task
            .await
            .map_err(|error| Failure::said(format!("the dispatcher: {error}")))?;
        self.store.close().await;
        Ok(snapshot)
    }
}

/// A sink that takes everything and does nothing.
#[derive(Debug)]
pub(crate) struct Nothing;

#[async_trait]
impl Sink for Nothing {
    async fn deliver(&self, _: &Delivery) -> Outcome {
        Outcome::Delivered
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A sink that never answers.
#[derive(Debug)]
pub(crate) struct Hanging;

#[async_trait]
impl Sink for Hanging {
    async fn deliver(&self, _: &Delivery) -> Outcome {
        std::future::pending().await
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
