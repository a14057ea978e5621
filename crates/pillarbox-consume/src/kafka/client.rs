//! What the group tells us: partitions come, and go to others.
//!
//! The client calls back while it is asked for records. A partition that comes is taken at once. One that is to go is
//! only noted here and kept: whoever asks for records hears of it, waits for the handlers that are at work, and lets it go
//! then. The group waits for us meanwhile. One that is lost (we were silent for too long) is somebody else's already.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pillarbox_sinks::kafka::log;
use rdkafka::TopicPartitionList;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset};
use tokio::sync::mpsc;

use super::partition::Partition;

/// A client that speaks through our log.
#[derive(Clone, Copy)]
pub(super) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::info!(target: "librdkafka", %error, reason);
    }
}

/// The partitions that are assigned to us.
#[derive(Default)]
pub(super) struct Partitions(Mutex<HashMap<(String, i32), Arc<Partition>>>);

impl Partitions {
    pub(super) fn find(&self, topic: &str, number: i32) -> Option<Arc<Partition>> {
        self.all().get(&(topic.to_owned(), number)).cloned()
    }

    /// What is done, as far as it is news, in the form that the client takes.
    pub(super) fn news(&self) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for partition in self.all().values() {
            if let Some(offset) = partition.news() {
                let added =
                    list.add_partition_offset(&partition.topic, partition.number, Offset::Offset(offset));
                if let Err(error) = added {
                    tracing::debug!(%error, "an offset that cannot be");
                }
            }
        }
        list
    }

    pub(super) fn of(&self, list: &TopicPartitionList) -> Vec<Arc<Partition>> {
        let places = keys(list);
        let all = self.all();
        places
            .iter()
            .filter_map(|place| all.get(place).cloned())
            .collect()
    }

    fn add(&self, list: &TopicPartitionList) {
        let mut all = self.all();
        for (topic, number) in keys(list) {
            let partition = Arc::new(Partition::new(&topic, number));
            // One that is there still was never let go: what is done about it counts for nothing now.
            if let Some(before) = all.insert((topic, number), partition) {
                before.gone();
            }
        }
    }

    /// They are somebody else's from now on.
    pub(super) fn remove(&self, list: &TopicPartitionList) {
        let mut all = self.all();
        for place in keys(list) {
            if let Some(partition) = all.remove(&place) {
                partition.gone();
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<(String, i32), Arc<Partition>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keys(list: &TopicPartitionList) -> Vec<(String, i32)> {
    let elements = list.elements();
    elements
        .iter()
        .map(|element| (element.topic().to_owned(), element.partition()))
        .collect()
}

/// What the client calls back.
pub(super) struct Member {
    pub(super) partitions: Arc<Partitions>,
    /// Partitions that are to go, when nobody works on them any more. Closed when nobody works on anything any more: whatever
    /// is to go, goes at once.
    pub(super) leaving: mpsc::UnboundedSender<TopicPartitionList>,
}

impl ClientContext for Member {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::info!(target: "librdkafka", %error, reason);
    }
}

impl ConsumerContext for Member {
    fn rebalance(&self, client: &BaseConsumer<Self>, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let done = if what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.partitions.add(list);
            take(client, list)
        } else if client.assignment_lost() || self.leaving.send(list.clone()).is_err() {
            self.partitions.remove(list);
            let_go(client, list)
        } else {
            for partition in self.partitions.of(list) {
                partition.leave();
            }
            Ok(())
        };
        if let Err(error) = done {
            tracing::warn!(%error, "the partitions could not be shared out anew");
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::info!(%error, "what is done was not written down; it will be, or it comes again");
        }
    }
}

fn take<C: ConsumerContext>(client: &BaseConsumer<C>, list: &TopicPartitionList) -> KafkaResult<()> {
    match client.rebalance_protocol() {
        RebalanceProtocol::Cooperative => client.incremental_assign(list),
        RebalanceProtocol::Eager | RebalanceProtocol::None => client.assign(list),
    }
}

/// Lets partitions go. What is done is written down before by the client itself.
///
/// The client remembers which ones are paused even if they are not ours any more: they would come back paused.
pub(super) fn let_go<C: ConsumerContext>(
    client: &impl Consumer<C>,
    list: &TopicPartitionList,
) -> KafkaResult<()> {
    if let Err(error) = client.resume(list) {
        tracing::debug!(%error, "partitions that go were not resumed");
    }
    match client.rebalance_protocol() {
        RebalanceProtocol::Cooperative => client.incremental_unassign(list),
        RebalanceProtocol::Eager | RebalanceProtocol::None => client.unassign(),
    }
}
