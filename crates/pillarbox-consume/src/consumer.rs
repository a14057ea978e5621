//! Builds and runs a consumer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pillarbox::inbox::Inbox;
use pillarbox::versions::Upcasters;
use pillarbox::{Clock, RetryPolicy, SystemClock};
use pillarbox_sinks::message::{MAX_DECOMPRESSED, Memory};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::attempt::Attempts;
use crate::counters::{Counters, Snapshot};
use crate::database::Database;
use crate::database_health::DatabaseHealth;
use crate::engine::Engine;
use crate::handler::{Handler, Raw, Typed};
use crate::processor::{LogLimits, Processor};
use crate::pruner;
use crate::registry::{Registry, StartError};
use crate::settings::{Newer, Redelivered, Settings, Unknown};
use crate::subscription::Subscription;

/// Receives events from a broker and handles each once.
///
/// ```no_run
/// # #[cfg(all(feature = "postgres", feature = "rabbitmq"))]
/// # mod example {
/// use pillarbox_consume::rabbitmq::{Config, RabbitMq};
/// use pillarbox_consume::{Consumer, HandlerError, Received};
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
/// ) -> Result<(), HandlerError> {
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
    /// A consumer whose handlers work in this database. Its metrics are registered with the recorder that is installed now. The inbox stores marks under its name: a renamed consumer handles
    /// every event again.
    pub fn new(name: impl Into<String>, database: D) -> Self {
        let name = name.into();
        Self {
            counters: Arc::new(Counters::new(&name)),
            name,
            database,
            inbox: Inbox::default(),
            registry: Registry::new(),
            settings: Settings::default(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Handles events of this type with `handler`, which understands this version. Older versions are upcast first;
    /// [`newer`](Self::newer) decides about newer ones.
    pub fn on<T, H>(mut self, event_type: impl Into<String>, version: i32, handler: H) -> Self
    where
        H: Handler<D::Transaction, T>,
        T: DeserializeOwned + Send + 'static,
    {
        let handler = Box::new(Typed::new(handler));
        self.registry.add(event_type.into(), version, handler);
        self
    }

    /// Handles events of all other types with `handler`. Their bodies are neither upcast nor decoded.
    pub fn otherwise<H>(mut self, handler: H) -> Self
    where
        H: Handler<D::Transaction, Bytes>,
    {
        self.registry.add_other(Box::new(Raw(handler)));
        self
    }

    /// Sets the upcasters that turn older versions of events into newer ones.
    pub fn upcasters(mut self, upcasters: Upcasters) -> Self {
        self.registry.upcasters = upcasters;
        self
    }

    /// Sets the inbox: in another schema, in an existing table, or with a longer retention.
    pub fn inbox(mut self, inbox: Inbox) -> Self {
        self.inbox = inbox;
        self
    }

    /// Marks events by their dedupe key instead of their id. An event without a dedupe key is marked by its id.
    pub fn by_dedupe_key(mut self) -> Self {
        self.settings.by_dedupe_key = true;
        self
    }

    /// Sets how many events are handled at once: 16 by default, at least one. The database pool needs one connection more
    /// than that.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets when a failed attempt is retried, and after how many attempts the event becomes a dead letter. The default is ten
    /// attempts, which take between four and eight minutes.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// Sets how long a handler may take: one minute by default. A handler that takes longer is cancelled at its next
    /// `.await` and its transaction rolls back; the attempt has failed. A handler that blocks its thread cannot be cancelled.
    ///
    /// On PostgreSQL a single statement may take three quarters of that, unless the role, the database or the pool has its
    /// own `statement_timeout`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Sets what happens to events of types without a handler.
    pub fn unknown(mut self, unknown: Unknown) -> Self {
        self.settings.unknown = unknown;
        self
    }

    /// Sets what happens to events with a newer version than their handler understands.
    pub fn newer(mut self, newer: Newer) -> Self {
        self.settings.newer = newer;
        self
    }

    /// Sets how many events wait at once with [`Newer::Hold`]: 128 by default. Each takes one of the messages in flight, so
    /// choose fewer than those.
    pub fn hold_at_most(mut self, events: usize) -> Self {
        self.settings.hold_at_most = events.min(Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the largest decompressed body: 64 MiB by default. A larger one becomes a dead letter. All handlers together hold
    /// up to 64 MiB of decompressed bodies; a larger one is handled while no other is.
    pub fn max_decompressed(mut self, bytes: usize) -> Self {
        self.settings.max_decompressed = bytes;
        self
    }

    /// Sets how long running handlers may take to finish at a shutdown: 30 seconds by default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Sets how long after its first delivery an event may be delivered again. Dispatcher retries, broker retention and manual
    /// replays all count. If the inbox keeps marks for less, the consumer logs a warning at its start.
    pub fn redelivered_within(mut self, age: Duration) -> Self {
        self.settings.redelivered = Redelivered::Within(age);
        self
    }

    /// The same, computed from the dispatcher's retry policy and the age up to which operators replay events.
    pub fn redelivered_by(mut self, policy: &RetryPolicy, replay: Duration) -> Self {
        self.settings.redelivered = Redelivered::by(policy, replay);
        self
    }

    /// Sets the clock that dates dead letters.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The consumer's counters. Call this before `run`, and read them at any time.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Consumes until `shutdown`. Then no handler starts, running handlers finish, and the broker gets every other message
    /// back. The consumer waits as long as needed for an unavailable broker or database.
    ///
    /// Dropping the future cancels running handlers; the broker then delivers their events again.
    ///
    /// # Errors
    /// When two handlers have the same type or the upcasters have a gap. Nothing was consumed then.
    ///
    /// # Panics
    /// When the consumer itself has a bug. A handler that panics is a failed attempt.
    pub async fn run(
        self,
        subscription: impl Subscription,
        shutdown: CancellationToken,
    ) -> Result<Snapshot, StartError> {
        if self.name.trim().is_empty() {
            return Err(StartError::NoName);
        }
        self.registry.check()?;
        if let Some(short) = self.settings.redelivered.outlives(self.inbox.kept()) {
            tracing::warn!(consumer = self.name, reason = %short, "inbox retention too short");
        }
        let processor = Arc::new(Processor {
            permits: Semaphore::new(self.settings.concurrency),
            newer: Semaphore::new(self.settings.hold_at_most),
            attempts: Attempts {
                consumer: self.name,
                database: self.database,
                inbox: self.inbox,
                registry: self.registry,
                settings: self.settings,
                memory: Memory::new(MAX_DECOMPRESSED),
            },
            counters: self.counters.clone(),
            clock: self.clock,
            stop: shutdown,
            health: DatabaseHealth::default(),
            limits: LogLimits::default(),
        });
        let consumer = &processor.attempts.consumer;
        tracing::info!(consumer, "consumer started");
        let mut side_jobs = JoinSet::new();
        side_jobs.spawn(pruner::run(processor.clone()));
        Engine::new(processor.clone()).run(subscription).await;
        side_jobs.join_all().await;
        let snapshot = self.counters.snapshot();
        tracing::info!(consumer, ?snapshot, "consumer stopped");
        Ok(snapshot)
    }
}
