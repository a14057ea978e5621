//! A consumer that runs beside the test, on either broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pillarbox_consume::{Consumer, Handler, HandlerError, Received, Snapshot, Subscription};
use pillarbox_testkit::captured_logs::keep_enabled;
use sqlx::{PgPool, PgTransaction};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ledger::{Entry, Ledger, WriteEntry};

/// The configuration of a broker.
pub(crate) trait BrokerConfig {
    fn source(self) -> impl Subscription;
}

#[cfg(feature = "kafka")]
impl BrokerConfig for pillarbox_consume::kafka::Config {
    fn source(self) -> impl Subscription {
        pillarbox_consume::kafka::Kafka::new(self).unwrap()
    }
}

#[cfg(feature = "rabbitmq")]
impl BrokerConfig for pillarbox_consume::rabbitmq::Config {
    fn source(self) -> impl Subscription {
        pillarbox_consume::rabbitmq::RabbitMq::new(self).unwrap()
    }
}

/// A consumer that runs.
pub(crate) struct Running {
    pub(crate) stop: CancellationToken,
    task: JoinSet<Snapshot>,
}

impl Running {
    pub(crate) fn start(consumer: Consumer<PgPool>, config: impl BrokerConfig) -> Self {
        keep_enabled();
        let stop = CancellationToken::new();
        let shutdown = stop.clone();
        let mut task = JoinSet::new();
        let source = config.source();
        task.spawn(async move { consumer.run(source, shutdown).await.unwrap() });
        Self { stop, task }
    }

    /// Runs until the process is killed.
    pub(crate) async fn forever(mut self) {
        let ended = self.task.join_next().await;
        panic!("the consumer ended: {ended:?}");
    }

    pub(crate) async fn stop(mut self) -> Snapshot {
        self.stop.cancel();
        self.task.join_next().await.unwrap().unwrap()
    }
}

/// Waits inside of the handler for a permit.
pub(crate) struct HoldInHandler {
    inside: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
    write_entry: WriteEntry,
}

impl HoldInHandler {
    /// A consumer whose handlers wait for a permit, and how many handlers have started.
    pub(crate) fn consumer(
        ledger: &Ledger,
        permits: &Arc<Semaphore>,
    ) -> (Consumer<PgPool>, Arc<AtomicUsize>) {
        let inside = Arc::new(AtomicUsize::new(0));
        let handler = Self {
            inside: inside.clone(),
            permits: permits.clone(),
            write_entry: ledger.write_entry(),
        };
        let consumer = Consumer::new("ledger", ledger.pool.clone())
            .inbox(ledger.inbox())
            .on("EntryMade", 1, handler);
        (consumer, inside)
    }
}

impl Handler<PgTransaction<'static>, Entry> for HoldInHandler {
    async fn handle(
        &self,
        transaction: &mut PgTransaction<'static>,
        event: Received<Entry>,
    ) -> Result<(), HandlerError> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        self.permits.acquire().await?.forget();
        self.write_entry.handle(transaction, event).await
    }
}
