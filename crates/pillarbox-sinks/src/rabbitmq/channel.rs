//! One AMQP channel, and the task that publishes on it.
//!
//! The task publishes what waits as long as its window has room, and reports each outcome as it comes. `window.rs` says when
//! an outcome is known.
//!
//! One queue that does not confirm must not hold up the others. Late messages keep their place in the window while there is
//! room for others. If there are too many, all that wait do so apart, and the task goes on with a new AMQP channel. A channel that
//! is silent is asked for an answer, so that a connection that hangs is found.
//!
//! While the broker blocks publishers, messages stay in the queue of the task. `alarm.rs` says for how long.
//!
//! A task owns the window, so a delivery that is dropped does not affect the others.
//!
//! **If we die here** the outcome of what was in flight is unknown, and it is sent again.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Error};
use pillarbox::Outcome;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::alarm::Alarm;
use super::classify;
use super::reply::Reply;
use super::settings::Settings;
use super::window::{self, MOST, Window};

/// How many windows of one task may wait apart. The next one holds the task up, until its attempts time out.
const MAX_APART: usize = 64;
/// A larger message waits for an empty window and has it alone. If it exceeds the limit of the broker, no other message fails
/// with it.
const LARGE: usize = 1024 * 1024;
/// How often a window is checked for late messages: twice in the time after which they are late.
const CHECK: Duration = Duration::from_millis(125);

/// A message to publish.
pub(super) struct Message {
    pub(super) id: Uuid,
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
    pub(super) body: Bytes,
}

/// A message and where its outcome goes.
pub(super) struct Job {
    pub(super) message: Message,
    pub(super) reply: Reply,
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
    pub(super) fn publish(&self, job: Job) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if let Err(SendError(job)) = self.jobs.send(job) {
            let reason = "the connection was closed before the message was sent";
            job.reply.report(Outcome::unavailable(reason));
        }
    }
}

/// Starts the task. It ends with its handle, with `tasks`, or when it or another finds that the connection hangs and sets
/// `lost`.
pub(super) fn start(
    connection: &Arc<lapin::Connection>,
    settings: &Settings,
    alarm: &Alarm,
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
        alarm: alarm.clone(),
        answer_timeout: settings.connect_timeout,
        waiting: waiting.clone(),
        window: Window::new(),
        queued: VecDeque::new(),
        taken: Vec::new(),
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
    channel: Option<Arc<lapin::Channel>>,
    exchange: ShortString,
    options: BasicPublishOptions,
    alarm: Alarm,
    answer_timeout: Duration,
    waiting: Arc<AtomicUsize>,
    window: Window,
    /// Messages that were taken from the queue and are not published, in their order.
    queued: VecDeque<Job>,
    /// Empty between two steps.
    taken: Vec<Job>,
    /// Windows whose confirmations are late.
    apart: JoinSet<()>,
    lost: Arc<watch::Sender<bool>>,
}

impl Publisher {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Job>) {
        let mut check_at = Instant::now() + CHECK;
        while self.step(&mut queue, check_at).await {
            self.report();
            let now = Instant::now();
            if now >= check_at {
                check_at = now + CHECK;
                self.check().await;
            }
            self.publish().await;
        }
    }

    /// Waits for results, and for messages if there is room. Is the queue still open?
    async fn step(&mut self, queue: &mut mpsc::UnboundedReceiver<Job>, check_at: Instant) -> bool {
        let room = match self.queued.is_empty() {
            true if self.alarm.lasts() => MOST, // they are answered, not published
            true => self.window.room(),
            false => 0, // those go first
        };
        let is_idle = self.window.is_empty() && room > 0; // nothing can be late
        let step = async {
            tokio::select! {
                biased;
                () = self.window.collect() => true,
                () = self.alarm.changed() => true,
                taken = queue.recv_many(&mut self.taken, room), if room > 0 => taken > 0,
            }
        };
        let is_open = match is_idle {
            true => step.await,
            false => timeout_at(check_at, step).await.unwrap_or(true),
        };
        self.queued.extend(self.taken.drain(..));
        is_open
    }

    /// Publishes what there is room for.
    async fn publish(&mut self) {
        let taken = self.queued.len();
        // A dropped attempt is not sent: the dispatcher makes another.
        self.queued.retain(|job| !job.reply.is_closed());
        self.subtract(taken - self.queued.len());
        if self.alarm.lasts() {
            return self.answer_queued(&classify::blocked());
        }
        let is_blocked = self.connection.status().blocked();
        if is_blocked || self.queued.is_empty() || self.window.room() == 0 {
            return;
        }
        let channel = match self.channel().await {
            Ok(Some(channel)) => channel,
            // The messages on a closed channel get their results before the next is opened.
            Ok(None) => return self.window.close(),
            Err(reason) => {
                let reason = format!("RabbitMQ channel cannot be opened: {reason}");
                return self.answer_queued(&Outcome::unavailable(reason));
            }
        };
        while self.window.room() > 0 {
            let Some(job) = self.queued.pop_front() else {
                return;
            };
            let is_large = job.message.body.len() > LARGE;
            if is_large && !self.window.is_empty() {
                self.queued.push_front(job); // it keeps its place, so that keys keep their order
                return self.window.close();
            }
            self.window.publish(&channel, &self.exchange, self.options, job);
            if is_large {
                self.window.close();
            }
        }
    }

    /// No message can be published.
    fn answer_queued(&mut self, outcome: &Outcome) {
        self.subtract(self.queued.len());
        for job in self.queued.drain(..) {
            job.reply.report(outcome.clone());
        }
    }

    /// Looks for late messages, and for a broker that does not answer.
    async fn check(&mut self) {
        let (is_late, is_silent) = (self.window.is_late(), self.window.is_silent());
        if !(is_late || is_silent) || self.connection.status().blocked() {
            return; // an alarm delays every message
        }
        let is_abandoned = self.window.is_abandoned();
        match self.window.is_sent() {
            true if is_late || is_abandoned => self.go_on_without().await,
            true => self.ask().await,
            false if is_silent && is_abandoned => self.give_up(),
            false if is_late => self.window.close(), // until it is sent
            false => {}
        }
    }

    /// Lets the window wait apart. The next one gets a new AMQP channel.
    async fn go_on_without(&mut self) {
        let Some(channel) = self.channel.take() else {
            return;
        };
        // A channel answers in order. So the broker has passed on all messages before, and a message on the next channel
        // cannot overtake one of its key.
        let order = channel.confirm_select(ConfirmSelectOptions::default());
        if answer(&self.connection, self.answer_timeout, order)
            .await
            .is_none()
        {
            return self.give_up();
        }
        let window = std::mem::replace(&mut self.window, Window::new());
        self.subtract(window.unreported());
        while self.apart.try_join_next().is_some() {}
        let apart = window.wait_apart(channel);
        if self.apart.len() < MAX_APART {
            self.apart.spawn(apart);
        } else {
            apart.await;
        }
    }

    /// Asks a silent channel for an answer, unless a confirmation comes first.
    async fn ask(&mut self) {
        let Some(channel) = self.channel.clone() else {
            return;
        };
        let asked = Instant::now();
        let order = channel.confirm_select(ConfirmSelectOptions::default());
        let answered = tokio::select! {
            biased;
            () = self.window.collect() => return,
            answered = answer(&self.connection, self.answer_timeout, order) => answered,
        };
        match answered {
            Some(_) => self.window.answered(asked), // an error also ends the messages
            None => self.give_up(),
        }
    }

    /// The channel, or a new one if it was closed; none while messages wait on a closed one.
    async fn channel(&mut self) -> Result<Option<Arc<lapin::Channel>>, String> {
        if let Some(channel) = self.channel.as_ref().filter(|it| it.status().connected()) {
            return Ok(Some(channel.clone()));
        }
        if !self.window.is_empty() {
            return Ok(None);
        }
        let opening = confirm_channel(&self.connection);
        match answer(&self.connection, self.answer_timeout, opening).await {
            Some(Ok(channel)) => Ok(Some(self.channel.insert(Arc::new(channel)).clone())),
            Some(Err(error)) => Err(classify::words(&error)),
            None => {
                self.give_up();
                Err(format!("no answer within {:?}", self.answer_timeout))
            }
        }
    }

    /// The broker does not read from the connection any more. Ends all tasks, and the sink opens another connection.
    fn give_up(&self) {
        self.lost.send_replace(true);
    }

    fn report(&mut self) {
        let known = self.window.take_known();
        // First, so that the next message finds this channel free.
        self.subtract(known.len());
        window::report(known);
    }

    fn subtract(&self, messages: usize) {
        self.waiting.fetch_sub(messages, Ordering::Relaxed);
    }
}

/// The broker's answer; none if the connection hangs. A broker that blocks publishers answers when its alarm is over.
async fn answer<T>(
    connection: &lapin::Connection,
    limit: Duration,
    answer: impl Future<Output = T>,
) -> Option<T> {
    let mut answer = pin!(answer);
    loop {
        match timeout(limit, &mut answer).await {
            Ok(answer) => return Some(answer),
            Err(_) if connection.status().blocked() => {}
            Err(_) => return None,
        }
    }
}

async fn confirm_channel(connection: &lapin::Connection) -> Result<lapin::Channel, Error> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}
