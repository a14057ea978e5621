//! The source: a member of a consumer group.
//!
//! Records are taken as long as there is room for them. When there is none, the partitions are paused: the client has to
//! be asked all the time nevertheless, or the group believes that we are gone.
//!
//! A partition that goes to another member is let go when no handler works on it any more, so that two members do not
//! handle two records of one key at the same time. The group waits for that, up to a limit.
//!
//! **If we die here** the group notices after its session timeout, and the next member begins where we said that
//! everything is done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use pillarbox::failpoint;
use pillarbox_sinks::kafka::refused;
use pillarbox_sinks::registry::ConfigError;
use rdkafka::TopicPartitionList;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::client::{Member, Partitions, let_go};
use super::config::Config;
use super::dead::{self, Graves};
use super::partition::Partition;
use super::read::Record;
use crate::dead::DeadLetter;
use crate::settings::outage;
use crate::source::sealed::Listen;
use crate::source::{Inlet, Message, Receipt};

/// How often the client is told what is done; it writes that down every second.
const TELL: Duration = Duration::from_millis(200);
/// How long to wait for room before the partitions are paused, which throws away what was fetched ahead.
const FULL: Duration = Duration::from_millis(250);
/// After an answer that is none.
const PAUSE: Duration = Duration::from_millis(200);

/// Records from topics of Kafka.
pub struct Kafka {
    config: Config,
    client: ClientConfig,
    graves: Arc<Graves>,
}

impl Kafka {
    /// What the configuration says. Joins its group when the consumer runs.
    ///
    /// # Errors
    /// When the configuration cannot be true.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Ok(Self {
            client: config.receiving()?,
            graves: Arc::new(Graves::new(&config)?),
            config,
        })
    }

    fn join(&self) -> Result<Membership, String> {
        let partitions = Arc::new(Partitions::default());
        let (sender, leaving) = mpsc::unbounded_channel();
        let member = Member {
            partitions: partitions.clone(),
            leaving: sender,
        };
        let client: StreamConsumer<Member> = self
            .client
            .create_with_context(member)
            .map_err(|error| refused(&error).to_string())?;
        let topics: Vec<&str> = self.config.topics.iter().map(String::as_str).collect();
        client.subscribe(&topics).map_err(|error| error.to_string())?;
        Ok(Membership {
            client,
            partitions,
            leaving,
            graves: self.graves.clone(),
            room: Arc::new(Semaphore::new(self.config.held)),
            waiting: VecDeque::new(),
            since: Instant::now(),
            paused: false,
            hand_over: self.config.hand_over,
        })
    }

    async fn declare(&self, consumer: &str) {
        if self.config.declare
            && let Err(reason) = dead::declare(&self.config).await
        {
            tracing::warn!(consumer, reason, "create the topic for dead letters by hand");
        }
    }
}

#[async_trait]
impl Listen for Kafka {
    #[expect(clippy::disallowed_methods, reason = "the wait before the next connection")]
    async fn listen(self: Box<Self>, consumer: &str, inlet: Inlet, end: CancellationToken) {
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            () = self.declare(consumer) => {}
        }
        let patience = outage();
        let mut in_vain = 0;
        while !end.is_cancelled() {
            let reason = match self.join() {
                Ok(membership) => membership.receive(consumer, &inlet, &end).await,
                Err(reason) => Some(reason),
            };
            let Some(reason) = reason else { return };
            in_vain += 1;
            let delay = patience.delay(in_vain, fastrand::f64()).unwrap_or_default();
            tracing::warn!(consumer, reason, ?delay, "joining the group anew");
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
    partitions: Arc<Partitions>,
    leaving: mpsc::UnboundedReceiver<TopicPartitionList>,
    graves: Arc<Graves>,
    room: Arc<Semaphore>,
    /// Records that came and for which there is no room, since when.
    waiting: VecDeque<(Arc<Partition>, Record)>,
    since: Instant,
    paused: bool,
    hand_over: Duration,
}

/// What happened to a member.
enum Happened {
    End,
    Leaving(TopicPartitionList),
    TimeToTell,
    Room(OwnedSemaphorePermit),
    Full,
    Came(Record),
    Trouble(KafkaError),
}

impl Membership {
    /// Hands records on until the end, or until the client is of no more use, and says why.
    #[expect(clippy::disallowed_methods, reason = "the wait after an error of the client")]
    async fn receive(mut self, consumer: &str, inlet: &Inlet, end: &CancellationToken) -> Option<String> {
        let mut tell = interval(TELL);
        tell.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let reason = loop {
            let happened = self.next(&mut tell, end).await;
            match happened {
                Happened::End => break None,
                Happened::Leaving(list) => self.hand_over(&list).await,
                Happened::TimeToTell => self.tell(),
                Happened::Room(room) => self.hand_on(room, inlet),
                Happened::Full => self.pause(),
                Happened::Came(record) => self.came(record, inlet),
                Happened::Trouble(KafkaError::MessageConsumptionFatal(error)) => {
                    break Some(format!("the client is broken: {error}"));
                }
                Happened::Trouble(error) => {
                    tracing::warn!(consumer, %error, "Kafka did not answer as it should; trying again");
                    sleep(PAUSE).await;
                }
            }
        };
        self.close().await;
        reason
    }

    /// Waits for whatever is next. The client is asked unless records wait for room that is likely to come at once.
    #[expect(
        clippy::disallowed_methods,
        reason = "the wait for room, before the consumer pauses"
    )]
    async fn next(&mut self, tell: &mut tokio::time::Interval, end: &CancellationToken) -> Happened {
        let has_waiting = !self.waiting.is_empty();
        let room = self.room.clone();
        tokio::select! {
            biased;
            () = end.cancelled() => Happened::End,
            Some(list) = self.leaving.recv() => Happened::Leaving(list),
            _ = tell.tick() => Happened::TimeToTell,
            Ok(room) = room.acquire_owned(), if has_waiting => Happened::Room(room),
            () = sleep_until(self.since + FULL), if has_waiting && !self.paused => Happened::Full,
            record = self.client.recv(), if !has_waiting || self.paused => match record {
                Ok(record) => Happened::Came(Record::of(&record)),
                Err(error) => Happened::Trouble(error),
            },
        }
    }

    fn came(&mut self, record: Record, inlet: &Inlet) {
        let partition = self.partitions.find(&record.topic, record.partition);
        let Some(partition) = partition.filter(|partition| partition.came(record.offset)) else {
            return; // of a partition that is leaving: whoever gets that gets this too
        };
        if self.waiting.is_empty() {
            self.since = Instant::now();
        }
        self.waiting.push_back((partition, record));
        if let Ok(room) = self.room.clone().try_acquire_owned() {
            self.hand_on(room, inlet);
        } else if self.paused {
            self.pause(); // a partition that came meanwhile
        }
    }

    /// Hands on the record that waits longest.
    fn hand_on(&mut self, room: OwnedSemaphorePermit, inlet: &Inlet) {
        if let Some((partition, record)) = self.waiting.pop_front() {
            inlet.put(message(partition, record, room, &self.graves));
            self.since = Instant::now();
        }
        self.resume();
    }

    /// Asks for records again, if none waits any more.
    fn resume(&mut self) {
        if self.waiting.is_empty() && std::mem::take(&mut self.paused) {
            self.every_partition("resumed", |client, all| client.resume(all));
        }
    }

    fn pause(&mut self) {
        self.paused = true;
        self.every_partition("paused", |client, all| client.pause(all));
    }

    fn every_partition(
        &self,
        what: &str,
        act: impl FnOnce(&StreamConsumer<Member>, &TopicPartitionList) -> Result<(), KafkaError>,
    ) {
        let done = self.client.assignment().and_then(|all| act(&self.client, &all));
        if let Err(error) = done {
            tracing::warn!(%error, "the partitions were not {what}");
        }
    }

    /// Tells the client what is done. It writes that down from time to time, and when a partition goes.
    fn tell(&self) {
        let news = self.partitions.news();
        if news.count() == 0 {
            return;
        }
        if let Err(error) = self.client.store_offsets(&news) {
            tracing::debug!(%error, "what is done was of a partition that is gone; it comes again");
        }
    }

    /// Waits for the handlers that are at work on these partitions, and lets them go.
    async fn hand_over(&mut self, list: &TopicPartitionList) {
        let leaving = self.partitions.of(list);
        self.waiting
            .retain(|(partition, _)| !leaving.iter().any(|gone| Arc::ptr_eq(gone, partition)));
        let idle = join_all(leaving.iter().map(|partition| partition.idle()));
        if timeout(self.hand_over, idle).await.is_err() {
            tracing::warn!(
                "handlers were still at work after {:?} when their partition went to another member",
                self.hand_over
            );
        }
        self.tell();
        self.partitions.remove(list);
        if let Err(error) = let_go(&self.client, list) {
            tracing::warn!(%error, "the partitions were not let go");
        }
        failpoint::hit("consume_handed_over");
        self.resume(); // those that waited for room may all have been theirs
    }

    /// Leaves the group, on a thread of its own: the client blocks until it is out.
    async fn close(self) {
        self.tell();
        let (out, is_out) = oneshot::channel();
        let ending = std::thread::Builder::new().name("pillarbox-kafka-end".to_owned());
        let spawned = ending.spawn(move || {
            drop(self);
            out.send(()).ok();
        });
        match spawned {
            Ok(_) => drop(is_out.await),
            Err(error) => tracing::warn!(%error, "the Kafka client was ended on a thread of the runtime"),
        }
    }
}

impl Drop for Membership {
    /// The client, which is dropped next, waits until all partitions are let go: those it has asked for already, and those it
    /// will ask for.
    fn drop(&mut self) {
        self.leaving.close();
        while let Ok(list) = self.leaving.try_recv() {
            if let Err(error) = let_go(&self.client, &list) {
                tracing::debug!(%error, "the partitions were not let go at the end");
            }
        }
    }
}

fn message(
    partition: Arc<Partition>,
    record: Record,
    room: OwnedSemaphorePermit,
    graves: &Arc<Graves>,
) -> Message {
    let event = record.event();
    let lane = event.as_ref().ok().and_then(|event| record.lane(event));
    Message {
        event,
        lane,
        receipt: Box::new(Held {
            partition,
            record,
            graves: graves.clone(),
        }),
        _room: Some(room),
    }
}

/// A record of a partition that was ours when it came.
struct Held {
    partition: Arc<Partition>,
    record: Record,
    graves: Arc<Graves>,
}

#[async_trait]
impl Receipt for Held {
    fn begin(&self) -> bool {
        self.partition.begin()
    }

    fn end(&self) {
        self.partition.end();
    }

    async fn acknowledge(&self) {
        self.partition.done(self.record.offset);
    }

    async fn bury(&self, letter: &DeadLetter) -> Result<(), String> {
        self.graves.bury(&self.record, letter).await
    }
}
