//! Messages that were published together, until each has its outcome.
//!
//! Usually all are confirmed within milliseconds and are classified at once. A queue that cannot store its messages
//! withholds their confirmations, for as long as that lasts. Then each message that is confirmed gets its outcome, and the
//! others wait on their own.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{Confirmation, Error};
use pillarbox::Outcome;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::channel::{Job, Message};
use super::classify::{self, Published};

/// How long the channel waits for all confirmations before it goes on without the late ones. A busy broker with slow disks
/// confirms within this time; a wrong guess costs three round trips.
pub(super) const STALL: Duration = Duration::from_millis(250);
/// How long closing a channel may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Publishes a member of the cohort when it is first polled, and waits for its confirmation.
struct Confirmed {
    index: usize,
    result: BoxFuture<'static, Result<Confirmation, Error>>,
}

impl Future for Confirmed {
    type Output = (usize, Result<Confirmation, Error>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let index = self.index;
        self.result.as_mut().poll(context).map(|result| (index, result))
    }
}

/// See the module.
pub(super) struct Cohort {
    waiting: FuturesUnordered<Confirmed>,
    published: Vec<Published>,
    /// Where the outcomes go; none after they are reported.
    receivers: Vec<Option<oneshot::Sender<Outcome>>>,
    /// How many messages the client has written to the socket.
    sent: Arc<AtomicUsize>,
}

impl Cohort {
    /// Publishes the messages in their order.
    pub(super) fn publish(
        channel: &lapin::Channel,
        exchange: &ShortString,
        options: BasicPublishOptions,
        jobs: Vec<Job>,
    ) -> Self {
        let (channel, sent) = (Arc::new(channel.clone()), Arc::new(AtomicUsize::new(0)));
        let mut cohort = Self {
            waiting: FuturesUnordered::new(),
            published: Vec::with_capacity(jobs.len()),
            receivers: Vec::with_capacity(jobs.len()),
            sent: sent.clone(),
        };
        for (index, Job { message, done }) in jobs.into_iter().enumerate() {
            cohort.published.push(Published {
                id: message.id.clone(),
                len: message.body.len(),
                result: None,
            });
            cohort.receivers.push(Some(done));
            let (channel, exchange, sent) = (channel.clone(), exchange.clone(), sent.clone());
            let result = async move { confirmed(&channel, exchange, options, message, &sent).await }.boxed();
            cohort.waiting.push(Confirmed { index, result });
        }
        cohort
    }

    /// Waits until every message has a result. Safe to cancel.
    pub(super) async fn complete(&mut self) {
        while let Some((index, result)) = self.waiting.next().await {
            self.published[index].result = Some(result);
        }
    }

    /// Takes the outcomes that are known, with their receivers.
    pub(super) fn take_known(&mut self) -> Vec<(oneshot::Sender<Outcome>, Outcome)> {
        let seen: Vec<bool> = self.published.iter().map(|it| it.result.is_some()).collect();
        self.poll_again();
        let outcomes = classify::cohort(&self.published).into_iter();
        let all = outcomes.zip(&mut self.receivers).zip(seen);
        all.filter_map(|((outcome, receiver), seen)| {
            let outcome = outcome.filter(|_| seen)?;
            Some((receiver.take()?, outcome))
        })
        .collect()
    }

    /// Polls every message that has no result. A confirmation may carry the return of a message that was confirmed after
    /// it. After this, every confirmation is known that was earlier than those known before.
    fn poll_again(&mut self) {
        let mut waiting: Vec<Confirmed> = std::mem::take(&mut self.waiting).into_iter().collect();
        waiting.sort_unstable_by_key(|confirmed| confirmed.index); // some may not be published yet
        for mut confirmed in waiting {
            match (&mut confirmed).now_or_never() {
                Some((index, result)) => self.published[index].result = Some(result),
                None => self.waiting.push(confirmed),
            }
        }
    }

    /// Are all messages written to the socket?
    pub(super) fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire) == self.published.len()
    }

    /// Have the attempts of all messages without a result been dropped?
    pub(super) fn is_abandoned(&self) -> bool {
        let mut all = self.published.iter().zip(&self.receivers);
        all.all(|(published, receiver)| {
            published.result.is_some() || receiver.as_ref().is_none_or(oneshot::Sender::is_closed)
        })
    }

    /// How many outcomes are not reported.
    pub(super) fn len(&self) -> usize {
        self.receivers.iter().flatten().count()
    }

    /// Waits for late confirmations, and closes the channel when all are there or no attempt waits any more. Its messages
    /// would count against the broker's credit for the channel otherwise.
    pub(super) async fn wait_apart(mut self, channel: lapin::Channel) {
        while timeout(STALL, self.complete()).await.is_err() {
            report(self.take_known());
            if self.is_abandoned() {
                break;
            }
        }
        report(self.take_known());
        let closed = channel.close(200, "no confirmation in time".into());
        timeout(CLOSE_TIMEOUT, closed).await.ok(); // it ends with the connection
    }
}

/// Reports outcomes. An attempt may have been dropped.
pub(super) fn report(known: Vec<(oneshot::Sender<Outcome>, Outcome)>) {
    for (receiver, outcome) in known {
        receiver.send(outcome).ok();
    }
}

async fn confirmed(
    channel: &lapin::Channel,
    exchange: ShortString,
    options: BasicPublishOptions,
    message: Message,
    sent: &AtomicUsize,
) -> Result<Confirmation, Error> {
    let Message {
        routing_key,
        properties,
        body,
        ..
    } = message;
    let published = channel.basic_publish(exchange, routing_key, options, &body, properties);
    let confirm = published.await?;
    drop(body);
    sent.fetch_add(1, Ordering::Release);
    confirm.await
}
