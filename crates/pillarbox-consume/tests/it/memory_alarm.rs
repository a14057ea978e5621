//! RabbitMQ runs out of memory and blocks publishers.

use std::sync::Arc;

use pillarbox::Event;
use pillarbox_consume::rabbitmq::QueueKind;
use pillarbox_consume::{Consumer, Handler, HandlerError, Received};
use pillarbox_testkit::Private;
use sqlx::PgTransaction;
use tokio::sync::Semaphore;

use crate::ledger::{Entry, Ledger, WriteEntry, entry};
use crate::rabbitmq::Broker;
use crate::running::Running;
use pillarbox_testkit::wait::until;

/// Rejects events of account `z` and writes entries for all others. Each waits for a permit.
struct AwaitPermit {
    rejects: Arc<Semaphore>,
    entries: Arc<Semaphore>,
    write_entry: WriteEntry,
}

impl Handler<PgTransaction<'static>, Entry> for AwaitPermit {
    async fn handle(
        &self,
        transaction: &mut PgTransaction<'static>,
        event: Received<Entry>,
    ) -> Result<(), HandlerError> {
        if event.body.account == "z" {
            self.rejects.acquire().await?.forget();
            return Err(HandlerError::reject("it is z"));
        }
        self.entries.acquire().await?.forget();
        self.write_entry.handle(transaction, event).await
    }
}

/// How many messages the queue has, with those that are not acknowledged.
fn messages(server: &Private, queue: &str) -> Option<u32> {
    let list = server.ask(&[
        "rabbitmqctl",
        "-q",
        "list_queues",
        "--no-table-headers",
        "name",
        "messages",
    ]);
    let line = list
        .lines()
        .find_map(|line| line.strip_prefix(queue)?.strip_prefix('\t'));
    line.and_then(|count| count.trim().parse().ok())
}

/// Is a connection of the consumer blocked? That of the sink may be blocked too.
fn is_blocked(server: &Private) -> bool {
    let list = server.ask(&[
        "rabbitmqctl",
        "-q",
        "list_connections",
        "state",
        "client_properties",
    ]);
    list.lines()
        .any(|line| line.starts_with("blocked\t") && line.contains(" of ledger"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_the_broker_blocks_delays_no_acknowledgement() {
    let server = Private::start("rabbitmq");
    let url = server.url("PILLARBOX_TEST_AMQP_URL");
    let (ledger, broker) = (Ledger::create().await, Broker::at(&url, "events", "ledger").await);
    let (rejects, entries) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let handler = AwaitPermit {
        rejects: rejects.clone(),
        entries: entries.clone(),
        write_entry: ledger.write_entry(),
    };
    let consumer = Consumer::new("ledger", ledger.pool.clone())
        .inbox(ledger.inbox())
        .concurrency(8)
        .on("EntryMade", 1, handler);
    let counters = consumer.counters();
    // A quorum queue updates its count only now and then.
    let running = Running::start(consumer, broker.config().kind(QueueKind::Classic));
    broker.until_consumed().await;
    let mut events: Vec<Event> = (0..3).map(|number| entry("z", number)).collect();
    events.extend((0..5).map(|number| entry(&number.to_string(), number)));
    broker.publish(&events).await;
    until("all are received", || async { counters.snapshot().received == 8 }).await;

    server.ask(&["rabbitmqctl", "-q", "set_vm_memory_high_watermark", "0"]);
    rejects.add_permits(3);
    until("the consumer is blocked", || async { is_blocked(&server) }).await;
    entries.add_permits(5);
    until("the others are acknowledged", || async {
        messages(&server, "ledger").is_some_and(|left| left <= 3)
    })
    .await;
    assert_eq!(ledger.len().await, 5);

    server.ask(&[
        "rabbitmqctl",
        "-q",
        "set_vm_memory_high_watermark",
        "absolute",
        "1GB",
    ]);
    until("the dead letters are written", || async {
        counters.snapshot().dead == 3
    })
    .await;
    running.stop().await;
    until("nothing is left", || async {
        messages(&server, "ledger") == Some(0)
    })
    .await;
    let reasons = broker.reasons().await;
    assert!(
        reasons.len() >= 3 && reasons.iter().all(|reason| reason == "it is z"),
        "{reasons:?}"
    );
    ledger.drop().await;
}
