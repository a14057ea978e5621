//! One AMQP channel, and the task that publishes on it.
//!
//! The client library attaches a returned message to the next confirmation on the channel. That may be the confirmation of
//! another message if the broker confirms several at once. Classified one by one, an unroutable message could count as
//! delivered and be lost. So messages are published in cohorts: all that wait are sent at once, and the next is sent after
//! the last confirmation. Then the whole cohort is classified by message id.
//!
//! One queue that does not confirm must not hold up the others. If confirmations are late, the cohort waits for them apart,
//! and the task goes on with a new AMQP channel.
//!
//! A task owns the cohort, so a delivery that is dropped does not affect the others.
//!
//! **If we die here** the outcome of the cohort is unknown, and it is sent again.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Error};
use pillarbox::Outcome;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::classify;
use super::cohort::{self, Cohort, STALL};
use super::settings::Settings;

/// The most messages in one cohort. RabbitMQ stops reading from a connection after about 400 messages on one channel that
/// their queue has not processed.
const COHORT: usize = 256;
/// How many cohorts of one task may wait apart. The next one holds the task up, until its attempts time out.
const MAX_APART: usize = 64;
/// A larger message is a cohort of its own. If it exceeds the limit of the broker, no other message fails with it.
const LARGE: usize = 1024 * 1024;

/// A message to publish.
pub(super) struct Message {
    pub(super) id: ShortString,
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
    pub(super) body: Bytes,
}

/// A message and where its outcome goes.
pub(super) struct Job {
    pub(super) message: Message,
    pub(super) done: oneshot::Sender<Outcome>,
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

/// Starts the task. It ends with its handle, with `tasks`, or when it or another finds that the connection hangs and sets
/// `lost`.
pub(super) fn start(
    connection: &Arc<lapin::Connection>,
    settings: &Settings,
    lost: &Arc<watch::Sender<bool>>,
    tasks: &mut JoinSet<()>,
) -> Channel {
    let (jobs, queue) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let publisher = Publisher {
        connection: connection.clone(),
        channel: None,
        exchange: settings.exchange.clone(),
        options: BasicPublishOptions {
            mandatory: settings.mandatory,
            ..BasicPublishOptions::default()
        },
        answer_timeout: settings.connect_timeout,
        waiting: waiting.clone(),
        apart: JoinSet::new(),
        lost: lost.clone(),
    };
    let mut is_lost = lost.subscribe();
    tasks.spawn(async move {
        tokio::select! {
            biased;
            _ = is_lost.wait_for(|lost| *lost) => {}
            () = publisher.run(queue) => {}
        }
    });
    Channel { jobs, waiting }
}

struct Publisher {
    connection: Arc<lapin::Connection>,
    channel: Option<lapin::Channel>,
    exchange: ShortString,
    options: BasicPublishOptions,
    answer_timeout: Duration,
    waiting: Arc<AtomicUsize>,
    /// Cohorts whose confirmations are late.
    apart: JoinSet<()>,
    lost: Arc<watch::Sender<bool>>,
}

impl Publisher {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Job>) {
        let mut batch = Vec::with_capacity(COHORT);
        while queue.recv_many(&mut batch, COHORT).await > 0 {
            let taken = batch.len();
            // A dropped attempt is not sent: the dispatcher makes another.
            batch.retain(|job: &Job| !job.done.is_closed());
            self.subtract(taken - batch.len());
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
    async fn send(&mut self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let channel = match self.channel().await {
            Ok(channel) => channel,
            Err(reason) => {
                self.subtract(jobs.len());
                let reason = format!("RabbitMQ channel cannot be opened: {reason}");
                for job in jobs {
                    job.done.send(Outcome::unavailable(reason.clone())).ok(); // the attempt may have been dropped
                }
                return;
            }
        };
        let mut cohort = Cohort::publish(&channel, &self.exchange, self.options, jobs);
        while timeout(STALL, cohort.complete()).await.is_err() {
            self.report(&mut cohort);
            if self.connection.status().blocked() {
                continue; // an alarm delays every message
            }
            if cohort.is_sent() {
                return self.go_on_without(cohort, channel).await;
            }
            if cohort.is_abandoned() {
                return self.give_up();
            }
        }
        self.report(&mut cohort);
    }

    /// Lets a cohort wait apart. The next one gets a new AMQP channel.
    async fn go_on_without(&mut self, cohort: Cohort, channel: lapin::Channel) {
        self.channel = None;
        // A channel answers in order. So the broker has passed on all messages before, and a message on the next channel
        // cannot overtake one of its key.
        let order = channel.confirm_select(ConfirmSelectOptions::default());
        if self.answer(order).await.is_none() {
            return;
        }
        self.subtract(cohort.len());
        while self.apart.try_join_next().is_some() {}
        let apart = cohort.wait_apart(channel);
        if self.apart.len() < MAX_APART {
            self.apart.spawn(apart);
        } else {
            apart.await;
        }
    }

    /// The channel, or a new one if it was closed.
    async fn channel(&mut self) -> Result<lapin::Channel, String> {
        if let Some(channel) = self.channel.as_ref().filter(|it| it.status().connected()) {
            return Ok(channel.clone());
        }
        match self.answer(confirm_channel(&self.connection)).await {
            Some(Ok(channel)) => Ok(self.channel.insert(channel).clone()),
            Some(Err(error)) => Err(classify::words(&error)),
            None => Err(format!("no answer within {:?}", self.answer_timeout)),
        }
    }

    /// The broker's answer; none if the connection hangs. A broker that blocks publishers answers when its alarm is over.
    async fn answer<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = pin!(answer);
        loop {
            match timeout(self.answer_timeout, &mut answer).await {
                Ok(answer) => return Some(answer),
                Err(_) if self.connection.status().blocked() => {}
                Err(_) => {
                    self.give_up();
                    return None;
                }
            }
        }
    }

    /// The broker does not read from the connection any more. Ends all tasks, and the sink opens another connection.
    fn give_up(&self) {
        self.lost.send_replace(true);
    }

    fn report(&self, cohort: &mut Cohort) {
        let known = cohort.take_known();
        // First, so that the next message finds this channel free.
        self.subtract(known.len());
        cohort::report(known);
    }

    fn subtract(&self, messages: usize) {
        self.waiting.fetch_sub(messages, Ordering::Relaxed);
    }
}

async fn confirm_channel(connection: &lapin::Connection) -> Result<lapin::Channel, Error> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}
