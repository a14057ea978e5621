//! The prefetch of a RabbitMQ consumer follows the bytes of its messages.

use std::sync::Arc;
use std::time::Duration;

use pillarbox_sinks::message::Format;
use pillarbox_testkit::CapturedLogs;
use pillarbox_testkit::wait::until;
use tokio::sync::Semaphore;

use crate::hung_handler::{LARGE, large};
use crate::ledger::{Ledger, entry};
use crate::rabbitmq::{Broker, deliver};
use crate::running::{HoldInHandler, Running};

/// Every prefetch that the consumer of this queue reconnected with.
fn changes(logs: &CapturedLogs, queue: &str) -> Vec<String> {
    let lines = logs.lines().into_iter();
    let of_queue = lines.filter(|line| line.field("queue") == Some(queue));
    of_queue
        .filter_map(|line| line.field("prefetch").map(str::to_owned))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halved_prefetch_grows_back_when_messages_are_small_again() {
    let logs = CapturedLogs::of_process();
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let permits = Arc::new(Semaphore::new(0));
    let (consumer, _) = HoldInHandler::consumer(&ledger, &permits);
    let config = broker
        .config()
        .prefetch(8)
        .max_in_flight_bytes(4 * LARGE + 8 * 1024)
        .grow_after(Duration::from_secs(1));
    let running = Running::start(consumer, config);
    broker.until_consumed().await;
    broker.publish(&large(16)).await;
    until("four are in flight", || async {
        broker.waiting(&broker.queue).await == Some(12)
    })
    .await;
    permits.add_permits(100_000);
    until("all are handled", || async { ledger.len().await == 16 }).await;
    assert_eq!(changes(&logs, &broker.queue), ["4"]);

    let sink = broker.sink(Format::Plain).await;
    let mut sent = 16;
    until("the prefetch grows", async || {
        deliver(&*sink, &[entry("a", sent)]).await;
        sent += 1;
        changes(&logs, &broker.queue) == ["4", "8"]
    })
    .await;
    until("all are handled", || async { ledger.len().await == sent }).await;
    running.stop().await;
    ledger.drop().await;
    broker.clean_up().await;
}
