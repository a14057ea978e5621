//! One channel, and the messages that take it.
//!
//! The client hands a returned message to whichever confirmation on the channel comes next, in no order
//! at all if the broker confirms several at once. Judged one by one, an unroutable message can pass for
//! delivered, and be lost. But when every message on the channel has been confirmed, every returned one
//! is in our hands. So messages go in cohorts: those that are waiting are sent at once, none is sent
//! until the last of them is confirmed, and then all are judged together by their ids.
//!
//! The cohort belongs to a task of its own: a delivery that is dropped takes nothing with it that the
//! others need.
//!
//! **If we die here** the cohort is uncertain, and comes again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, Connection, Error};
use pillarbox::Outcome;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::classify::{self, Published};

/// How many messages wait for each other at the most.
const COHORT: usize = 256;
/// What is larger travels alone: if the broker's limit is below it, no neighbour is harmed.
const LARGE: usize = 1024 * 1024;

/// What is published.
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

/// The way to a channel.
pub(super) struct Lane {
    jobs: mpsc::UnboundedSender<Job>,
    waiting: Arc<AtomicUsize>,
}

impl Lane {
    /// How many messages are in it.
    pub(super) fn load(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Hands a message over. How many may wait is the dispatcher's affair.
    pub(super) fn hand_over(&self, message: Message) -> Ticket {
        let (done, outcome) = oneshot::channel();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let taken = self.jobs.send(Job { message, done }).is_ok();
        Ticket(taken.then_some(outcome))
    }
}

/// What a message that was handed over waits for.
pub(super) struct Ticket(Option<oneshot::Receiver<Outcome>>);

impl Ticket {
    pub(super) async fn outcome(self) -> Outcome {
        let Some(outcome) = self.0 else {
            return Outcome::unavailable("the connection was closed before the message was sent");
        };
        let lost = "the connection was closed before the confirmation";
        outcome.await.unwrap_or_else(|_| Outcome::connection_lost(lost))
    }
}

/// Starts a lane. It ends with its owner, or with `tasks`.
pub(super) fn start(
    connection: &Arc<Connection>,
    exchange: &ShortString,
    mandatory: bool,
    tasks: &mut JoinSet<()>,
) -> Lane {
    let (jobs, queue) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let worker = Worker {
        connection: connection.clone(),
        channel: None,
        exchange: exchange.clone(),
        options: BasicPublishOptions {
            mandatory,
            ..BasicPublishOptions::default()
        },
        waiting: waiting.clone(),
    };
    tasks.spawn(worker.run(queue));
    Lane { jobs, waiting }
}

struct Worker {
    connection: Arc<Connection>,
    channel: Option<Channel>,
    exchange: ShortString,
    options: BasicPublishOptions,
    waiting: Arc<AtomicUsize>,
}

impl Worker {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Job>) {
        let mut batch = Vec::with_capacity(COHORT);
        while queue.recv_many(&mut batch, COHORT).await > 0 {
            let taken = batch.len();
            // Whoever does not wait any more has not been sent, and will be tried again.
            batch.retain(|job: &Job| !job.done.is_closed());
            self.waiting.fetch_sub(taken - batch.len(), Ordering::Relaxed);
            // A large one goes after those before it and before those after it: keys keep their order.
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

    /// Sends a cohort and answers each of its members.
    async fn send(&mut self, cohort: Vec<Job>) {
        if cohort.is_empty() {
            return;
        }
        let outcomes = match self.channel().await {
            Ok(channel) => {
                classify::cohort(join_all(cohort.iter().map(|job| self.publish(&channel, job))).await)
            }
            Err(error) => {
                let reason = format!("RabbitMQ gave no channel: {}", classify::words(&error));
                vec![Outcome::unavailable(reason); cohort.len()]
            }
        };
        self.waiting.fetch_sub(cohort.len(), Ordering::Relaxed);
        for (job, outcome) in cohort.into_iter().zip(outcomes) {
            job.done.send(outcome).ok(); // nobody may be waiting any more
        }
    }

    async fn publish(&self, channel: &Channel, job: &Job) -> Published {
        let message = &job.message;
        Published {
            id: message.id.clone(),
            len: message.body.len(),
            result: self.confirmed(channel, message).await,
        }
    }

    async fn confirmed(&self, channel: &Channel, message: &Message) -> Result<Confirmation, Error> {
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
    async fn channel(&mut self) -> Result<Channel, Error> {
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
