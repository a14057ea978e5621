//! A consumer, put together in a few lines of `main`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use pillarbox::inbox::Inbox;
use pillarbox::versions::Upcasters;
use pillarbox::{Clock, RetryPolicy, SystemClock};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::attempt::Attempts;
use crate::counters::{Counters, Snapshot};
use crate::database::Database;
use crate::engine::Engine;
use crate::handler::{Handler, Raw, Typed};
use crate::keeper;
use crate::registry::{Registry, StartError};
use crate::settings::{Newer, Redelivered, Settings, Unknown};
use crate::source::Source;
use crate::work::Work;

/// Takes events from a broker and hands each to its handler, once.
///
/// ```no_run
/// # #[cfg(all(feature = "postgres", feature = "rabbitmq"))]
/// # mod example {
/// use pillarbox_consume::rabbitmq::{Config, RabbitMq};
/// use pillarbox_consume::{Consumer, Failed, Received};
/// use sqlx::{PgPool, PgTransaction};
/// use tokio_util::sync::CancellationToken;
///
/// #[derive(serde::Deserialize)]
/// struct OrderCreated {
///     order: i64,
/// }
///
/// async fn order_created(
///     transaction: &mut PgTransaction<'static>,
///     event: Received<OrderCreated>,
/// ) -> Result<(), Failed> {
///     sqlx::query("insert into letters (order_id) values ($1)")
///         .bind(event.body.order)
///         .execute(&mut **transaction)
///         .await?;
///     Ok(())
/// }
///
/// # async fn run(pool: PgPool, shutdown: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::new("amqp://guest:guest@localhost", "letters").bind("events", "orders");
/// Consumer::new("letters", pool)
///     .on("OrderCreated", 1, order_created)
///     .run(RabbitMq::new(config)?, shutdown)
///     .await?;
/// # Ok(())
/// # }
/// # }
/// ```
#[must_use = "a consumer does nothing until it runs"]
pub struct Consumer<D: Database> {
    name: String,
    database: D,
    inbox: Inbox,
    registry: Registry<D::Transaction>,
    settings: Settings,
    counters: Arc<Counters>,
    clock: Arc<dyn Clock>,
}

impl<D: Database> Consumer<D> {
    /// A consumer whose handlers work in this database. The inbox knows it by its name: under another one it would
    /// handle everything again.
    pub fn new(name: impl Into<String>, database: D) -> Self {
        Self {
            name: name.into(),
            database,
            inbox: Inbox::default(),
            registry: Registry::new(),
            settings: Settings::default(),
            counters: Arc::default(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Hands events of this type to `handler`, which understands this version. Older ones are upcast before; newer ones
    /// are [`newer`](Self::newer)'s affair.
    pub fn on<T, H>(mut self, event_type: impl Into<String>, version: i32, handler: H) -> Self
    where
        H: Handler<D::Transaction, T>,
        T: DeserializeOwned + Send + 'static,
    {
        let handler = Box::new(Typed::new(handler));
        self.registry.add(event_type.into(), version, handler);
        self
    }

    /// Hands every other event to `handler`, as it came: not upcast and not decoded.
    pub fn otherwise<H>(mut self, handler: H) -> Self
    where
        H: Handler<D::Transaction, Bytes>,
    {
        self.registry.add_other(Box::new(Raw(handler)));
        self
    }

    /// Sets how older versions of events become newer ones.
    pub fn upcasters(mut self, upcasters: Upcasters) -> Self {
        self.registry.upcasters = upcasters;
        self
    }

    /// Sets the inbox: one in another schema, one that was there before, one that remembers for longer.
    pub fn inbox(mut self, inbox: Inbox) -> Self {
        self.inbox = inbox;
        self
    }

    /// Knows events by their dedupe key instead of their id. Those without one are known by their id.
    pub fn by_dedupe_key(mut self) -> Self {
        self.settings.by_dedupe_key = true;
        self
    }

    /// Sets how many events are handled at once; 16 unless said otherwise, and at least one. The database's pool needs
    /// as many connections, and one more.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets when a failed attempt is made again, and when the event goes to the dead letters: after ten attempts, which
    /// take between four and eight minutes, unless said otherwise.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// Sets what becomes of events of types that nobody handles here.
    pub fn unknown(mut self, unknown: Unknown) -> Self {
        self.settings.unknown = unknown;
        self
    }

    /// Sets what becomes of events in a newer version than their handler understands.
    pub fn newer(mut self, newer: Newer) -> Self {
        self.settings.newer = newer;
        self
    }

    /// Sets how long handlers that are at work may take to finish at a shutdown; 30 seconds unless said otherwise.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Says for how long after its first delivery an event may come again: as long as it is retried by the dispatcher,
    /// kept by the broker and replayed by people. If the inbox forgets earlier, the start says so.
    pub fn redelivered_within(mut self, age: Duration) -> Self {
        self.settings.redelivered = Redelivered::Within(age);
        self
    }

    /// The same, from what is known of the dispatcher: its policy, and the age up to which people replay events.
    pub fn redelivered_by(mut self, policy: &RetryPolicy, replay: Duration) -> Self {
        self.settings.redelivered = Redelivered::by(policy, replay);
        self
    }

    /// Takes the time on dead letters from another clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What it does, in numbers. To be asked before it runs, and read at any time.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Consumes until `shutdown`: then no handler starts any more, those at work finish, and what was not handled goes
    /// back to the broker. A broker or a database that is away is waited for, for as long as it takes.
    ///
    /// Not to be dropped half-way: handlers at work would be cut off, and their events come again.
    ///
    /// # Errors
    /// When the handlers contradict each other or the upcasters have a gap; nothing was consumed then.
    ///
    /// # Panics
    /// When there is a bug in the consumer itself. A handler that panics is a failed attempt.
    pub async fn run(self, source: impl Source, shutdown: CancellationToken) -> Result<Snapshot, StartError> {
        if self.name.trim().is_empty() {
            return Err(StartError::NoName);
        }
        self.registry.check()?;
        if let Some(short) = self.settings.redelivered.outlives(self.inbox.kept()) {
            tracing::warn!(consumer = self.name, "{short}");
        }
        let work = Arc::new(Work {
            turns: Semaphore::new(self.settings.concurrency),
            attempts: Attempts {
                consumer: self.name,
                database: self.database,
                inbox: self.inbox,
                registry: self.registry,
                settings: self.settings,
            },
            counters: self.counters.clone(),
            clock: self.clock,
            stop: shutdown,
            is_away: AtomicBool::new(false),
        });
        let consumer = &work.attempts.consumer;
        tracing::info!(consumer, "the consumer starts");
        let mut side_jobs = JoinSet::new();
        side_jobs.spawn(keeper::keep(work.clone()));
        Engine::new(work.clone()).run(source).await;
        side_jobs.join_all().await;
        let snapshot = self.counters.snapshot();
        tracing::info!(consumer, ?snapshot, "the consumer has stopped");
        Ok(snapshot)
    }
}
