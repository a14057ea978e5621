//! The subscription: a member of a consumer group.
//!
//! Records are received while `max_in_flight` and `max_in_flight_bytes` leave room for them. Beyond that the partitions are paused. The client is
//! still polled, or the group would consider this member dead.
//!
//! A revoked partition is unassigned when its handlers have ended, so that two members never handle two records of one key at
//! the same time. The group waits for that, up to a limit.
//!
//! **If we die here** the group notices after its session timeout, and the next member starts at the committed offset.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use pillarbox::failpoint;
use pillarbox_sinks::ConnectionLog;
use pillarbox_sinks::kafka::refused;
use pillarbox_sinks::registry::ConfigError;
use rdkafka::TopicPartitionList;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::client::{Member, Partitions, unassign};
use super::config::Config;
use super::dead_letters::{self, DeadLetters};
use super::partition::Partition;
use super::read::Record;
use crate::dead_letter::DeadLetter;
use crate::in_flight::{Held, InFlight};
use crate::settings::reconnect_policy;
use crate::subscription::sealed::Listen;
use crate::subscription::{Message, MessageSender, Receipt};

/// How often offsets are stored in the client, which commits them every second.
const STORE_INTERVAL: Duration = Duration::from_millis(200);
/// How long to wait for a permit before the partitions are paused. Pausing drops the prefetched records.
const PAUSE_AFTER: Duration = Duration::from_millis(250);
/// Wait after a failed request.
const ERROR_WAIT: Duration = Duration::from_millis(200);

/// Receives from Kafka topics.
pub struct Kafka {
    config: Config,
    client: ClientConfig,
    dead_letters: Arc<DeadLetters>,
}

impl Kafka {
    /// A subscription with this configuration. It joins its group when the consumer runs.
    ///
    /// # Errors
    /// When the configuration is invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Ok(Self {
            client: config.consumer()?,
            dead_letters: Arc::new(DeadLetters::new(&config)?),
            config,
        })
    }

    fn join(&self, log: &Arc<ConnectionLog>, engine: &MessageSender) -> Result<Membership, String> {
        let partitions = Arc::new(Partitions::default());
        let (sender, revoked) = mpsc::unbounded_channel();
        let member = Member {
            log: log.clone(),
            engine: engine.clone(),
            is_encrypted: self.config.is_encrypted(),
            partitions: partitions.clone(),
            revoked: sender,
            last_error: Mutex::default(),
        };
        let client: StreamConsumer<Member> = self
            .client
            .create_with_context(member)
            .map_err(|error| refused(&error).to_string())?;
        let topics: Vec<&str> = self.config.topics.iter().map(String::as_str).collect();
        client.subscribe(&topics).map_err(|error| error.to_string())?;
        Ok(Membership {
            client,
            log: log.clone(),
            is_encrypted: self.config.is_encrypted(),
            partitions,
            revoked,
            dead_letters: self.dead_letters.clone(),
            in_flight: InFlight::new(self.config.max_in_flight, self.config.max_in_flight_bytes),
            waiting: VecDeque::new(),
            since: Instant::now(),
            paused: false,
            hand_over: self.config.hand_over,
        })
    }

    async fn declare(&self, consumer: &str) {
        if self.config.declare
            && let Err(reason) = dead_letters::declare(&self.config).await
        {
            tracing::warn!(
                consumer,
                reason,
                "dead letter topic not created; create it by hand"
            );
        }
    }
}

#[async_trait]
impl Listen for Kafka {
    #[expect(clippy::disallowed_methods, reason = "the wait before the next connection")]
    async fn listen(self: Box<Self>, consumer: &str, sender: MessageSender, end: CancellationToken) {
        if let Some(exposure) = self.config.exposure() {
            tracing::warn!(consumer, reason = %exposure, "credentials are sent unencrypted");
        }
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            () = self.declare(consumer) => {}
        }
        let retry = reconnect_policy();
        let log = Arc::new(ConnectionLog::of_consumer(consumer, self.config.brokers.clone()));
        let mut failures = 0;
        while !end.is_cancelled() {
            let reason = match self.join(&log, &sender) {
                Ok(membership) => membership.receive(consumer, &sender, &end).await,
                Err(reason) => Some(reason),
            };
            let Some(reason) = reason else { return };
            sender.connected(false);
            failures += 1;
            let delay = retry.delay(failures, fastrand::f64()).unwrap_or_default();
            tracing::warn!(consumer, reason, retry_in = ?delay, "consumer group left; rejoining");
            tokio::select! {
                biased;
                () = end.cancelled() => return,
                () = sleep(delay) => {}
            }
        }
    }
}

/// A member of the group.
struct Membership {
    client: StreamConsumer<Member>,
    log: Arc<ConnectionLog>,
    is_encrypted: bool,
    partitions: Arc<Partitions>,
    revoked: mpsc::UnboundedReceiver<TopicPartitionList>,
    dead_letters: Arc<DeadLetters>,
    in_flight: InFlight,
    /// Received records without room, and since when.
    waiting: VecDeque<(Arc<Partition>, Record)>,
    since: Instant,
    paused: bool,
    hand_over: Duration,
}

/// What happened to a member.
enum Happened {
    End,
    Revoked(TopicPartitionList),
    StoreDue,
    Room(Held),
    Full,
    Record(Record),
    Failed(KafkaError),
}

impl Membership {
    /// Receives until the end, or until the client fails for good, and returns the reason.
    #[expect(clippy::disallowed_methods, reason = "the wait after an error of the client")]
    async fn receive(
        mut self,
        consumer: &str,
        sender: &MessageSender,
        end: &CancellationToken,
    ) -> Option<String> {
        let mut store = interval(STORE_INTERVAL);
        store.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let reason = loop {
            let happened = self.next(&mut store, end).await;
            match happened {
                Happened::End => break None,
                Happened::Revoked(list) => self.hand_over(&list).await,
                Happened::StoreDue => self.store_offsets(),
                Happened::Room(held) => self.send_next(held, sender),
                Happened::Full => self.pause(),
                Happened::Record(record) => {
                    self.log.connected(self.is_encrypted);
                    sender.connected(true);
                    self.accept(record, sender);
                }
                Happened::Failed(KafkaError::MessageConsumptionFatal(error)) => {
                    break Some(format!("Kafka client failed: {error}"));
                }
                Happened::Failed(error) => {
                    match error.rdkafka_error_code() {
                        Some(code) if is_disconnected(code) => self.client.context().down(&error.to_string()),
                        // At most five a second.
                        Some(_) | None => {
                            tracing::warn!(consumer, %error, "broker request failed; retrying");
                        }
                    }
                    sleep(ERROR_WAIT).await;
                }
            }
        };
        self.close().await;
        reason
    }

    /// Waits for what happens next. Does not poll the client while records wait for room that is likely to come soon.
    #[expect(
        clippy::disallowed_methods,
        reason = "the wait for room, before the consumer pauses"
    )]
    async fn next(&mut self, store: &mut tokio::time::Interval, end: &CancellationToken) -> Happened {
        let has_waiting = !self.waiting.is_empty();
        let first = self.waiting.front().map_or(0, |(_, record)| record.len());
        let room = self.in_flight.clone().hold(first);
        tokio::select! {
            biased;
            () = end.cancelled() => Happened::End,
            Some(list) = self.revoked.recv() => Happened::Revoked(list),
            _ = store.tick() => Happened::StoreDue,
            held = room, if has_waiting => Happened::Room(held),
            () = sleep_until(self.since + PAUSE_AFTER), if has_waiting && !self.paused => Happened::Full,
            record = self.client.recv(), if !has_waiting || self.paused => match record {
                Ok(record) => Happened::Record(Record::of(&record)),
                Err(error) => Happened::Failed(error),
            },
        }
    }

    fn accept(&mut self, record: Record, sender: &MessageSender) {
        let partition = self.partitions.find(&record.topic, record.partition);
        let Some(partition) = partition.filter(|partition| partition.receive(record.offset)) else {
            return; // of a revoked partition: the next member receives it
        };
        if self.waiting.is_empty() {
            self.since = Instant::now();
        }
        self.waiting.push_back((partition, record));
        let first = self.waiting.front().map_or(0, |(_, record)| record.len());
        if let Some(held) = self.in_flight.try_hold(first) {
            self.send_next(held, sender);
        } else if self.paused {
            self.pause(); // a partition that was assigned meanwhile
        }
    }

    /// Sends the record that waits longest.
    fn send_next(&mut self, held: Held, sender: &MessageSender) {
        if let Some((partition, record)) = self.waiting.pop_front() {
            sender.send(message(partition, record, held, &self.dead_letters));
            self.since = Instant::now();
        }
        self.resume();
    }

    /// Resumes the partitions if no record waits any more.
    fn resume(&mut self) {
        if self.waiting.is_empty() && std::mem::take(&mut self.paused) {
            self.every_partition("partitions not resumed", |client, all| client.resume(all));
        }
    }

    fn pause(&mut self) {
        self.paused = true;
        self.every_partition("partitions not paused", |client, all| client.pause(all));
    }

    fn every_partition(
        &self,
        failure: &'static str,
        act: impl FnOnce(&StreamConsumer<Member>, &TopicPartitionList) -> Result<(), KafkaError>,
    ) {
        let done = self.client.assignment().and_then(|all| act(&self.client, &all));
        if let Err(error) = done {
            tracing::warn!(%error, "{failure}");
        }
    }

    /// Stores the offsets in the client, which commits them from time to time and when a partition is unassigned.
    fn store_offsets(&self) {
        let offsets = self.partitions.offsets_to_store();
        if offsets.count() == 0 {
            return;
        }
        if let Err(error) = self.client.store_offsets(&offsets) {
            tracing::debug!(%error, "offsets not stored, partition lost; its records are delivered again");
        }
    }

    /// Waits for the running handlers of these partitions, and unassigns them.
    async fn hand_over(&mut self, list: &TopicPartitionList) {
        let revoked = self.partitions.of(list);
        self.waiting
            .retain(|(partition, _)| !revoked.iter().any(|it| Arc::ptr_eq(it, partition)));
        let idle = join_all(revoked.iter().map(|partition| partition.idle()));
        if timeout(self.hand_over, idle).await.is_err() {
            tracing::warn!(
                timeout = ?self.hand_over,
                "partition handed over while handlers were running"
            );
        }
        self.store_offsets();
        self.partitions.remove(list);
        if let Err(error) = unassign(&self.client, list) {
            tracing::warn!(%error, "partitions not unassigned");
        }
        failpoint::hit("consume_handed_over");
        self.resume(); // the waiting records may all have belonged to them
    }

    /// Leaves the group on a thread of its own, because dropping the client blocks until it has left.
    async fn close(self) {
        self.store_offsets();
        let (left, has_left) = oneshot::channel();
        let ending = std::thread::Builder::new().name("pillarbox-kafka-end".to_owned());
        let spawned = ending.spawn(move || {
            drop(self);
            left.send(()).ok();
        });
        match spawned {
            Ok(_) => drop(has_left.await),
            Err(error) => {
                tracing::warn!(%error, "no thread for closing the Kafka client; closed on the runtime")
            }
        }
    }
}

impl Drop for Membership {
    /// The client is dropped next and waits until all partitions are unassigned: those it has revoked, and those it will
    /// revoke.
    fn drop(&mut self) {
        self.revoked.close();
        while let Ok(list) = self.revoked.try_recv() {
            if let Err(error) = unassign(&self.client, &list) {
                tracing::debug!(%error, "partitions not unassigned");
            }
        }
    }
}

/// Does the error mean that no broker can be reached?
fn is_disconnected(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::Resolve
    )
}

fn message(
    partition: Arc<Partition>,
    record: Record,
    held: Held,
    dead_letters: &Arc<DeadLetters>,
) -> Message {
    let event = record.event();
    let ordering_key = event.as_ref().ok().and_then(|event| record.ordering_key(event));
    Message {
        event,
        ordering_key,
        receipt: Box::new(RecordReceipt {
            partition,
            record,
            dead_letters: dead_letters.clone(),
            _held: held,
        }),
    }
}

/// A record in flight.
struct RecordReceipt {
    partition: Arc<Partition>,
    record: Record,
    dead_letters: Arc<DeadLetters>,
    /// Its room among the records in flight.
    _held: Held,
}

#[async_trait]
impl Receipt for RecordReceipt {
    fn begin(&self) -> bool {
        self.partition.begin()
    }

    fn end(&self) {
        self.partition.end();
    }

    async fn acknowledge(&self) {
        self.partition.done(self.record.offset);
    }

    async fn publish_dead_letter(&self, letter: &DeadLetter) -> Result<(), String> {
        self.dead_letters.publish(&self.record, letter).await
    }
}
