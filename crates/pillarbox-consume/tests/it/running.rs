//! A consumer that runs beside the test, whatever broker it listens to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pillarbox_consume::{Consumer, Handler, HandlerError, Received, Snapshot, Subscription};
use sqlx::{PgPool, PgTransaction};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::books::{Books, Entry, Keeper};

/// What is said of a broker.
pub(crate) trait Listening {
    fn source(self) -> impl Subscription;
}

#[cfg(feature = "kafka")]
impl Listening for pillarbox_consume::kafka::Config {
    fn source(self) -> impl Subscription {
        pillarbox_consume::kafka::Kafka::new(self).unwrap()
    }
}

#[cfg(feature = "rabbitmq")]
impl Listening for pillarbox_consume::rabbitmq::Config {
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
    pub(crate) fn start(consumer: Consumer<PgPool>, config: impl Listening) -> Self {
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

/// Waits inside of the handler until it is let go.
pub(crate) struct Held {
    inside: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
    keeper: Keeper,
}

impl Held {
    /// A consumer whose handlers wait at this gate, and how many came to it.
    pub(crate) fn consumer(books: &Books, gate: &Arc<Semaphore>) -> (Consumer<PgPool>, Arc<AtomicUsize>) {
        let inside = Arc::new(AtomicUsize::new(0));
        let held = Self {
            inside: inside.clone(),
            gate: gate.clone(),
            keeper: books.keeper(),
        };
        let consumer = Consumer::new("books", books.pool.clone())
            .inbox(books.inbox())
            .on("EntryMade", 1, held);
        (consumer, inside)
    }
}

impl Handler<PgTransaction<'static>, Entry> for Held {
    async fn handle(
        &self,
        transaction: &mut PgTransaction<'static>,
        event: Received<Entry>,
    ) -> Result<(), HandlerError> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await?.forget();
        self.keeper.handle(transaction, event).await
    }
}
