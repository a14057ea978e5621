//! The loop: receives messages from the subscription and starts their processing.
//!
//! The messages of one key are processed by one task, one after another. A message without a key has a task of its own. The
//! subscription bounds the messages in flight; the processor bounds the handlers that run.
//!
//! At a shutdown no attempt begins, and running attempts finish. Only then does the subscription close and release the other
//! messages. If it closed earlier, another process could handle a later event of a key while an earlier one runs here.
//!
//! **If we die here** only committed events are acknowledged, and the broker delivers all others again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::database::Database;
use crate::key_queues::KeyQueues;
use crate::processor::Processor;
use crate::subscription::{Message, MessageSender, OrderingKey, Subscription};

/// How long a subscription may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Engine<D: Database> {
    processor: Arc<Processor<D>>,
    queues: Arc<KeyQueues<OrderingKey, Message>>,
    /// The tasks that process messages.
    tasks: JoinSet<()>,
}

impl<D: Database> Engine<D> {
    pub(crate) fn new(processor: Arc<Processor<D>>) -> Self {
        Self {
            processor,
            queues: Arc::new(KeyQueues::new()),
            tasks: JoinSet::new(),
        }
    }

    /// Runs until the consumer is stopped.
    pub(crate) async fn run(mut self, subscription: impl Subscription) {
        let (sender, mut messages) = MessageSender::new(self.processor.counters.clone());
        let end = CancellationToken::new();
        let consumer = self.processor.attempts.consumer.clone();
        let mut listening = JoinSet::new();
        listening.spawn(listen(
            Box::new(subscription),
            consumer.clone(),
            sender,
            end.clone(),
        ));
        self.receive(&mut messages).await;
        self.finish().await;
        end.cancel();
        // Messages that still come are not received, so that no task starts. The broker gets them back with the rest.
        match timeout(CLOSE_TIMEOUT, listening.join_next()).await {
            Ok(ended) => drop(ended.map(resume_panic)),
            Err(_) => {
                tracing::warn!(consumer, timeout = ?CLOSE_TIMEOUT, "subscription did not close in time")
            }
        }
        while messages.try_recv().is_ok() {
            self.processor.counters.released();
        }
    }

    async fn receive(&mut self, messages: &mut mpsc::UnboundedReceiver<Message>) {
        let stop = self.processor.stop.clone();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(ended) = self.tasks.join_next() => resume_panic(ended),
                message = messages.recv() => match message {
                    Some(message) => self.start(message),
                    None => return, // the subscription ends by itself only if it panics
                },
            }
        }
    }

    fn start(&mut self, message: Message) {
        self.processor.counters.received();
        let processor = self.processor.clone();
        let Some(key) = message.ordering_key.clone() else {
            self.tasks.spawn(async move { processor.process(message).await });
            return;
        };
        let Some(first) = self.queues.push(&key, message) else {
            return; // the key's task will process it
        };
        let queues = self.queues.clone();
        self.tasks.spawn(async move {
            let mut next = Some(first);
            while let Some(message) = next {
                processor.process(message).await;
                next = queues.pop(&key);
            }
        });
    }

    /// Waits for running attempts, up to the grace period. A longer one is dropped: its transaction rolls back.
    async fn finish(&mut self) {
        let grace = self.processor.attempts.settings.grace;
        let all = async {
            while let Some(ended) = self.tasks.join_next().await {
                resume_panic(ended);
            }
        };
        if timeout(grace, all).await.is_err() {
            let consumer = &self.processor.attempts.consumer;
            let unfinished = self.tasks.len();
            tracing::warn!(
                consumer,
                unfinished,
                ?grace,
                "grace period over, handlers cancelled; the broker delivers their events again"
            );
            self.tasks.shutdown().await;
        }
    }
}

async fn listen(
    subscription: Box<impl Subscription>,
    consumer: String,
    sender: MessageSender,
    end: CancellationToken,
) {
    subscription.listen(&consumer, sender, end).await;
}

/// A handler's panic is caught at its call. A panic that arrives here is a bug of ours and must be seen.
fn resume_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

#[cfg(test)]
mod tests;
