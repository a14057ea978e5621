//! Handles rebalances: the group assigns partitions and revokes them.
//!
//! librdkafka calls back while the subscription polls. A new partition is assigned at once. A revoked partition is only
//! reported to the subscription, which waits for its running handlers and then unassigns it. The group waits meanwhile. A
//! partition that is lost (the session timed out) belongs to another member already.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pillarbox_sinks::ConnectionLog;
use pillarbox_sinks::kafka::log;
use rdkafka::TopicPartitionList;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset};
use tokio::sync::mpsc;

use super::partition::Partition;
use crate::subscription::MessageSender;

/// Sends librdkafka's log lines to ours.
#[derive(Clone, Copy)]
pub(super) struct LogContext;

impl ClientContext for LogContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // For every attempt to connect. A dead letter that cannot be published is logged by itself.
        tracing::debug!(target: "librdkafka", %error, reason);
    }
}

/// The partitions that are assigned to this member.
#[derive(Default)]
pub(super) struct Partitions(Mutex<HashMap<(String, i32), Arc<Partition>>>);

impl Partitions {
    pub(super) fn find(&self, topic: &str, number: i32) -> Option<Arc<Partition>> {
        self.all().get(&(topic.to_owned(), number)).cloned()
    }

    /// The offsets that can be committed and are not stored yet.
    pub(super) fn offsets_to_store(&self) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for partition in self.all().values() {
            if let Some(offset) = partition.offset_to_store() {
                let added =
                    list.add_partition_offset(&partition.topic, partition.number, Offset::Offset(offset));
                if let Err(error) = added {
                    tracing::debug!(%error, "offset not stored");
                }
            }
        }
        list
    }

    pub(super) fn of(&self, list: &TopicPartitionList) -> Vec<Arc<Partition>> {
        let all = self.all();
        keys(list)
            .iter()
            .filter_map(|key| all.get(key).cloned())
            .collect()
    }

    fn add(&self, list: &TopicPartitionList) {
        let mut all = self.all();
        for (topic, number) in keys(list) {
            let partition = Arc::new(Partition::new(&topic, number));
            // An earlier assignment that was never removed is void now.
            if let Some(before) = all.insert((topic, number), partition) {
                before.lose();
            }
        }
    }

    /// Removes partitions that belong to another member from now on.
    pub(super) fn remove(&self, list: &TopicPartitionList) {
        let mut all = self.all();
        for key in keys(list) {
            if let Some(partition) = all.remove(&key) {
                partition.lose();
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

/// The callbacks of librdkafka.
pub(super) struct Member {
    pub(super) log: Arc<ConnectionLog>,
    /// Shows whether the brokers are connected.
    pub(super) engine: MessageSender,
    pub(super) is_encrypted: bool,
    pub(super) partitions: Arc<Partitions>,
    /// Revoked partitions, which the subscription unassigns when their handlers have ended. Closed at the end: then a revoked
    /// partition is unassigned at once.
    pub(super) revoked: mpsc::UnboundedSender<TopicPartitionList>,
    /// What the connections said last, such as that a certificate is not trusted. The errors of the client do not.
    pub(super) last_error: Mutex<Option<String>>,
}

impl Member {
    /// The brokers cannot be reached.
    pub(super) fn down(&self, error: &str) {
        self.engine.connected(false);
        self.log.down(self.last_error().as_deref().unwrap_or(error));
    }

    fn last_error(&self) -> MutexGuard<'_, Option<String>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Member {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // Also for every attempt to connect; the connection's own log has an outage once a minute.
        tracing::debug!(target: "librdkafka", %error, reason);
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.down(reason);
        } else {
            *self.last_error() = Some(reason.to_owned());
        }
    }
}

impl ConsumerContext for Member {
    fn rebalance(&self, client: &BaseConsumer<Self>, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let done = if what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.log.connected(self.is_encrypted);
            self.engine.connected(true);
            self.partitions.add(list);
            assign(client, list)
        } else if client.assignment_lost() || self.revoked.send(list.clone()).is_err() {
            self.partitions.remove(list);
            unassign(client, list)
        } else {
            for partition in self.partitions.of(list) {
                partition.revoke();
            }
            Ok(())
        };
        if let Err(error) = done {
            tracing::warn!(%error, "rebalance failed");
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::info!(%error, "offset commit failed, will retry");
        }
    }
}

fn assign<C: ConsumerContext>(client: &BaseConsumer<C>, list: &TopicPartitionList) -> KafkaResult<()> {
    match client.rebalance_protocol() {
        RebalanceProtocol::Cooperative => client.incremental_assign(list),
        RebalanceProtocol::Eager | RebalanceProtocol::None => client.assign(list),
    }
}

/// Unassigns partitions. librdkafka commits the stored offsets first.
///
/// librdkafka remembers a paused partition after it is unassigned, and would assign it paused again. So it is resumed first.
pub(super) fn unassign<C: ConsumerContext>(
    client: &impl Consumer<C>,
    list: &TopicPartitionList,
) -> KafkaResult<()> {
    if let Err(error) = client.resume(list) {
        tracing::debug!(%error, "revoked partitions not resumed");
    }
    match client.rebalance_protocol() {
        RebalanceProtocol::Cooperative => client.incremental_unassign(list),
        RebalanceProtocol::Eager | RebalanceProtocol::None => client.unassign(),
    }
}
