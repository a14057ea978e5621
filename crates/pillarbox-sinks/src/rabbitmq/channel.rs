//! One AMQP channel, and the task that publishes on it.
//!
//! The client library attaches a returned message to the next confirmation on the channel. That may be the confirmation of
//! another message if the broker confirms several at once. Classified one by one, an unroutable message could count as
//! delivered and be lost. After every message on the channel is confirmed, every returned message is known. So messages
//! are published in cohorts: all that wait are sent at once, and the next is sent after the last confirmation. Then the
//! whole cohort is classified by message id.
//!
//! A task owns the cohort, so a delivery that is dropped does not affect the others.
//!
//! **If we die here** the outcome of the cohort is unknown, and it is sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Confirmation, Error};
use pillarbox::Outcome;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::classify::{self, Published};

/// The most messages in one cohort.
const COHORT: usize = 256;
/// A larger message is a cohort of its own. If it exceeds the limit of the broker, no other message fails with it.
const LARGE: usize = 1024 * 1024;

/// A message to publish.
pub(super) struct Message {
    pub(super) id: ShortString,
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
    pub(super) body: Bytes,
}

struct Job {
    message: Message,
    done: oneshot::Sender<Outcome>,
}

/// A handle of the task.
pub(super) struct Channel {
    jobs: mpsc::UnboundedSender<Job>,
    waiting: Arc<AtomicUsize>,
}

impl Channel {
    /// How many messages wait for a confirmation or to be sent.
    pub(super) fn load(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Queues a message. The dispatcher bounds how many wait.
    pub(super) fn publish(&self, message: Message) -> Receipt {
        let (done, outcome) = oneshot::channel();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let is_queued = self.jobs.send(Job { message, done }).is_ok();
        Receipt(is_queued.then_some(outcome))
    }
}

/// Resolves to the outcome of a queued message.
pub(super) struct Receipt(Option<oneshot::Receiver<Outcome>>);

impl Receipt {
    pub(super) async fn outcome(self) -> Outcome {
        let Some(outcome) = self.0 else {
            return Outcome::unavailable("the connection was closed before the message was sent");
        };
        let lost = "the connection was closed before the confirmation";
        outcome.await.unwrap_or_else(|_| Outcome::connection_lost(lost))
    }
}

/// Starts the task. It ends with its handle, or with `tasks`.
pub(super) fn start(
    connection: &Arc<lapin::Connection>,
    exchange: &ShortString,
    mandatory: bool,
    tasks: &mut JoinSet<()>,
) -> Channel {
    let (jobs, queue) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let publisher = Publisher {
        connection: connection.clone(),
        channel: None,
        exchange: exchange.clone(),
        options: BasicPublishOptions {
            mandatory,
            ..BasicPublishOptions::default()
        },
        waiting: waiting.clone(),
    };
    tasks.spawn(publisher.run(queue));
    Channel { jobs, waiting }
}

struct Publisher {
    connection: Arc<lapin::Connection>,
    channel: Option<lapin::Channel>,
    exchange: ShortString,
    options: BasicPublishOptions,
    waiting: Arc<AtomicUsize>,
}

impl Publisher {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Job>) {
        let mut batch = Vec::with_capacity(COHORT);
        while queue.recv_many(&mut batch, COHORT).await > 0 {
            let taken = batch.len();
            // A dropped attempt is not sent: the dispatcher makes another.
            batch.retain(|job: &Job| !job.done.is_closed());
            self.waiting.fetch_sub(taken - batch.len(), Ordering::Relaxed);
            // A large message keeps its place in the queue, so that keys keep their order.
            let mut cohort = Vec::with_capacity(batch.len());
            for job in batch.drain(..) {
                let is_large = job.message.body.len() > LARGE;
                if is_large {
                    self.send(std::mem::take(&mut cohort)).await;
                }
                cohort.push(job);
                if is_large {
                    self.send(std::mem::take(&mut cohort)).await;
                }
            }
            self.send(cohort).await;
        }
    }

    /// Sends a cohort and reports the outcome of each message.
    async fn send(&mut self, cohort: Vec<Job>) {
        if cohort.is_empty() {
            return;
        }
        let outcomes = match self.channel().await {
            Ok(channel) => {
                classify::cohort(join_all(cohort.iter().map(|job| self.publish(&channel, job))).await)
            }
            Err(error) => {
                let reason = format!("RabbitMQ channel cannot be opened: {}", classify::words(&error));
                vec![Outcome::unavailable(reason); cohort.len()]
            }
        };
        self.waiting.fetch_sub(cohort.len(), Ordering::Relaxed);
        for (job, outcome) in cohort.into_iter().zip(outcomes) {
            job.done.send(outcome).ok(); // the attempt may have been dropped
        }
    }

    async fn publish(&self, channel: &lapin::Channel, job: &Job) -> Published {
        let message = &job.message;
        Published {
            id: message.id.clone(),
            len: message.body.len(),
            result: self.confirmed(channel, message).await,
        }
    }

    async fn confirmed(&self, channel: &lapin::Channel, message: &Message) -> Result<Confirmation, Error> {
        let confirm = channel
            .basic_publish(
                self.exchange.clone(),
                message.routing_key.clone(),
                self.options,
                &message.body,
                message.properties.clone(),
            )
            .await?;
        confirm.await
    }

    /// The channel, or a new one if the broker closed it.
    async fn channel(&mut self) -> Result<lapin::Channel, Error> {
        let usable = self.channel.take().filter(|channel| channel.status().connected());
        let channel = match usable {
            Some(channel) => channel,
            None => {
                let channel = self.connection.create_channel().await?;
                channel.confirm_select(ConfirmSelectOptions::default()).await?;
                channel
            }
        };
        Ok(self.channel.insert(channel).clone())
    }
}
