//! The messages of one AMQP channel that wait for their outcome.
//!
//! Usually every confirmation is plain: an ack or a nack without a returned message. Each is reported as it comes, in any
//! order, and the next message takes its place.
//!
//! The client library attaches a returned message to the next confirmation on the channel, which may be that of another
//! message. It never attaches one to a later confirmation than its own. So a plain confirmation is final as soon as all
//! confirmations before it are known, and [`Window::collect`] takes them all. The first confirmation that is not plain closes the
//! window: no further message is published, and all that wait are classified together until the last has its result.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{Confirmation, Error};
use pillarbox::Outcome;
use tokio::time::{Instant, timeout};

use super::channel::{Job, Message};
use super::classify::{self, Published};
use super::reply::Reply;

/// The most messages that wait on one channel. RabbitMQ stops reading from a connection after about 400 messages on one
/// channel that their queue has not processed.
pub(super) const MOST: usize = 256;
/// How many late messages a window may hold. They take the place of others.
const MOST_LATE: usize = MOST / 4;
/// A message is late if the broker has processed what was sent this long after it, or if it keeps a full or closed window from
/// going on for this long. A busy broker with slow disks confirms within this time; a wrong guess costs three round trips.
const STALL: Duration = Duration::from_millis(250);
/// How long closing a channel may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// An outcome and where it goes.
pub(super) type Known = (Reply, Outcome);

/// See the module.
pub(super) struct Window {
    waiting: FuturesUnordered<Confirmed>,
    /// The messages without an outcome by their number, in the order of publishing; in a closed window also the others.
    entries: BTreeMap<u64, Entry>,
    /// The messages whose result came since the last report.
    fresh: Vec<u64>,
    /// How many messages were published: the number of the next.
    published: u64,
    /// How many of them the client has written to the socket.
    sent: Arc<AtomicU64>,
    /// Since when no further message is published.
    closed: Option<Instant>,
    /// Was one of the results not plain?
    is_judged: bool,
    /// The last sign of life of the broker on this channel.
    heard: Instant,
    /// The broker has processed what was published before, except for late messages.
    processed: Instant,
}

struct Entry {
    published: Published,
    at: Instant,
    /// Where the outcome goes; none after it is reported.
    reply: Option<Reply>,
}

impl Entry {
    fn plain(self) -> Option<Known> {
        let outcome = classify::plain(self.published.result.as_ref()?)?;
        Some((self.reply?, outcome))
    }
}

impl Window {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            waiting: FuturesUnordered::new(),
            entries: BTreeMap::new(),
            fresh: Vec::with_capacity(MOST),
            published: 0,
            sent: Arc::new(AtomicU64::new(0)),
            closed: None,
            is_judged: false,
            heard: now,
            processed: now,
        }
    }

    /// Does no message wait for its result?
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many more messages may be published.
    pub(super) fn room(&self) -> usize {
        match self.closed {
            Some(_) => 0,
            None => MOST.saturating_sub(self.waiting.len()),
        }
    }

    /// Publishes a message behind those before it.
    pub(super) fn publish(
        &mut self,
        channel: &Arc<lapin::Channel>,
        exchange: &ShortString,
        options: BasicPublishOptions,
        Job { message, reply }: Job,
    ) {
        let now = Instant::now();
        if self.waiting.is_empty() {
            self.heard = now;
        }
        let entry = Entry {
            published: Published {
                id: message.id,
                len: message.body.len(),
                result: None,
            },
            at: now,
            reply: Some(reply),
        };
        let number = self.published;
        self.entries.insert(number, entry);
        self.published += 1;
        let (channel, exchange, sent) = (channel.clone(), exchange.clone(), self.sent.clone());
        let result = async move { confirmed(&channel, exchange, options, message, &sent).await }.boxed();
        self.waiting.push(Confirmed { number, result });
    }

    /// Publishes no further message until all have their result.
    pub(super) fn close(&mut self) {
        self.closed.get_or_insert_with(Instant::now);
    }

    /// Takes all results that are there, and waits if there is none. Safe to cancel.
    pub(super) async fn collect(&mut self) {
        poll_fn(|context| self.poll_collect(context)).await;
    }

    /// The client sets results one after the other, and wakes us for each before it sets the next. So after one was found,
    /// those before it are among the messages that woke us. A poll without a further wake shows that all of them were polled.
    fn poll_collect(&mut self, context: &Context<'_>) -> Poll<()> {
        let wakes = Arc::new(Wakes {
            again: AtomicBool::new(false),
            task: context.waker().clone(),
        });
        let waker = Waker::from(wakes.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            while let Poll::Ready(Some((number, result))) = self.waiting.poll_next_unpin(&mut context) {
                self.note(number, result);
            }
            if !wakes.again.swap(false, Ordering::AcqRel) {
                break;
            }
        }
        match self.fresh.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    fn note(&mut self, number: u64, result: Result<Confirmation, Error>) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return; // every message that waits has an entry
        };
        self.is_judged |= classify::plain(&result).is_none();
        self.processed = self.processed.max(entry.at);
        entry.published.result = Some(result);
        self.fresh.push(number);
    }

    /// Takes the outcomes that are known. Call it after [`collect`](Self::collect).
    pub(super) fn take_known(&mut self) -> Vec<Known> {
        let mut known = Vec::with_capacity(self.fresh.len());
        if !self.fresh.is_empty() {
            self.heard = Instant::now();
        }
        if self.is_judged {
            self.close();
            self.fresh.clear();
            self.judge(&mut known);
        }
        for number in self.fresh.drain(..) {
            let entry = self.entries.remove(&number);
            known.extend(entry.and_then(Entry::plain));
        }
        if self.waiting.is_empty() {
            self.entries.clear();
            (self.closed, self.is_judged) = (None, false);
        }
        known
    }

    fn judge(&mut self, known: &mut Vec<Known>) {
        let published: Vec<&Published> = self.entries.values().map(|entry| &entry.published).collect();
        let outcomes = classify::cohort(&published);
        for (entry, outcome) in self.entries.values_mut().zip(outcomes) {
            if let Some(outcome) = outcome {
                known.extend(entry.reply.take().map(|reply| (reply, outcome)));
            }
        }
    }

    /// Has the broker been silent, although a message waits?
    pub(super) fn is_silent(&self) -> bool {
        !self.is_empty() && self.heard.elapsed() >= STALL
    }

    /// The broker answered a request that was sent at `asked`.
    pub(super) fn answered(&mut self, asked: Instant) {
        self.processed = self.processed.max(asked);
        self.heard = Instant::now();
    }

    /// Do late messages delay others?
    pub(super) fn is_late(&self) -> bool {
        let is_late = |entry: &&Entry| {
            entry.published.result.is_none() && self.processed.saturating_duration_since(entry.at) >= STALL
        };
        let is_closed_for_long = self.closed.is_some_and(|since| since.elapsed() >= STALL);
        let is_stuck = self.room() == 0 && self.is_silent();
        let has_many = || self.entries.values().filter(is_late).count() >= MOST_LATE;
        !self.is_empty() && (is_closed_for_long || is_stuck || has_many())
    }

    /// Are all messages written to the socket?
    pub(super) fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire) == self.published
    }

    /// Have the attempts of all messages without a result been dropped?
    pub(super) fn is_abandoned(&self) -> bool {
        let mut waiting = self.entries.values().filter(|it| it.published.result.is_none());
        waiting.all(|entry| entry.reply.as_ref().is_none_or(Reply::is_closed))
    }

    /// How many outcomes are not reported.
    pub(super) fn unreported(&self) -> usize {
        let replies = self.entries.values().map(|entry| &entry.reply);
        replies.flatten().count()
    }

    /// Waits for late confirmations, and closes the channel when all are there or no attempt waits any more. Its messages
    /// would count against the broker's credit for the channel otherwise.
    pub(super) async fn wait_apart(mut self, channel: Arc<lapin::Channel>) {
        while !self.is_empty() {
            let collected = timeout(STALL, self.collect()).await;
            report(self.take_known());
            if collected.is_err() && self.is_abandoned() {
                break;
            }
        }
        let closed = channel.close(200, "no confirmation in time".into());
        timeout(CLOSE_TIMEOUT, closed).await.ok(); // it ends with the connection
    }
}

pub(super) fn report(known: Vec<Known>) {
    for (reply, outcome) in known {
        reply.report(outcome);
    }
}

/// Publishes a message when it is first polled, and waits for its confirmation.
struct Confirmed {
    number: u64,
    result: BoxFuture<'static, Result<Confirmation, Error>>,
}

impl Future for Confirmed {
    type Output = (u64, Result<Confirmation, Error>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let number = self.number;
        self.result.as_mut().poll(context).map(|result| (number, result))
    }
}

async fn confirmed(
    channel: &lapin::Channel,
    exchange: ShortString,
    options: BasicPublishOptions,
    message: Message,
    sent: &AtomicU64,
) -> Result<Confirmation, Error> {
    let Message {
        routing_key,
        properties,
        body,
        ..
    } = message;
    let published = channel.basic_publish(exchange, routing_key, options, &body, properties);
    let confirm = published.await;
    drop(body);
    sent.fetch_add(1, Ordering::Release); // also if it will never be sent
    confirm?.await
}

/// Wakes the task, and remembers that it did.
struct Wakes {
    again: AtomicBool,
    task: Waker,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.again.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}
