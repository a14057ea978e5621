//! The port to the brokers.
//!
//! A subscription is one task. It stays connected while the consumer runs, and sends every message to the engine with a
//! receipt. The engine reports through the receipt what became of the message. A subscription never retries an event and never
//! decides about one.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use pillarbox::failpoint;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::counters::Counters;
use crate::dead_letter::DeadLetter;
use crate::received::Received;

/// What a consumer receives from: [`RabbitMq`](crate::rabbitmq::RabbitMq) or [`Kafka`](crate::kafka::Kafka).
///
/// Sealed: only these two implement it.
pub trait Subscription: sealed::Listen {}

impl<S: sealed::Listen> Subscription for S {}

pub(crate) mod sealed {
    use super::{CancellationToken, MessageSender, async_trait};

    /// What a subscription does.
    #[async_trait]
    pub trait Listen: Send + 'static {
        /// Sends messages to the engine until `end`, then closes: the broker gets back every message that is not
        /// acknowledged, in its order. Reconnects as often as needed.
        ///
        /// * Messages of one key come in the broker's order.
        /// * The messages in flight are bounded, in number and in bytes. A larger message is in flight alone.
        /// * The receipt of a message that was lost to another process says so.
        async fn listen(self: Box<Self>, consumer: &str, sender: MessageSender, end: CancellationToken);
    }
}

/// Sends a subscription's messages to the engine.
#[derive(Clone, Debug)]
pub struct MessageSender {
    messages: mpsc::UnboundedSender<Message>,
    counters: Arc<Counters>,
}

impl MessageSender {
    pub(crate) fn new(counters: Arc<Counters>) -> (Self, mpsc::UnboundedReceiver<Message>) {
        let (messages, receiver) = mpsc::unbounded_channel();
        (Self { messages, counters }, receiver)
    }

    /// The broker is connected, or is not.
    pub(crate) fn connected(&self, is_connected: bool) {
        self.counters.metrics.set_broker(is_connected);
    }

    /// Sends a message. After the consumer has stopped it is dropped, and the broker delivers it again.
    pub(crate) fn send(&self, message: Message) {
        failpoint::hit("consume_received");
        self.messages.send(message).ok();
    }
}

/// A message on its way to a handler.
pub(crate) struct Message {
    /// The event, or why the message holds none.
    pub(crate) event: Result<Received<Bytes>, String>,
    /// Messages of one key are handled one after another.
    pub(crate) ordering_key: Option<OrderingKey>,
    pub(crate) receipt: Box<dyn Receipt>,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.event.as_ref().map(|event| event.id);
        f.debug_struct("Message")
            .field("event", &id)
            .finish_non_exhaustive()
    }
}

/// A key within its namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OrderingKey {
    pub(crate) namespace: String,
    pub(crate) key: Vec<u8>,
}

impl OrderingKey {
    pub(crate) fn of(event: &Received<Bytes>) -> Option<Self> {
        Some(Self {
            namespace: event.namespace.clone(),
            key: event.ordering_key.clone()?.into_bytes(),
        })
    }
}

/// Tells the subscription what became of one message. If it is dropped unused, the broker gets the message back when the
/// subscription ends.
#[async_trait]
pub(crate) trait Receipt: Send + Sync {
    /// A handler is about to start. Returns false if the message was lost to another process; then it must not start.
    fn begin(&self) -> bool;

    /// Waits until the message is lost to another process, if that can be noticed.
    async fn lost(&self) {
        std::future::pending().await
    }

    /// The handler and everything after it have ended. Called once for each `begin` that returned true.
    fn end(&self) {}

    /// Acknowledges the message. Has no effect if the message was lost meanwhile; then the broker delivers it again.
    async fn acknowledge(&self);

    /// Publishes an unchanged copy of the message as a dead letter. Returns when the broker has confirmed it.
    ///
    /// # Errors
    /// When the copy may be missing. The caller tries again.
    async fn publish_dead_letter(&self, letter: &DeadLetter) -> Result<(), String>;
}

/// Marks a handler as running. The subscription waits until this is dropped.
pub(crate) struct HandlerGuard<'a>(&'a dyn Receipt);

impl<'a> HandlerGuard<'a> {
    /// None if the message was lost to another process.
    pub(crate) fn begin(receipt: &'a dyn Receipt) -> Option<Self> {
        // A guard that exists is dropped, and ends what it has not begun.
        receipt.begin().then(|| Self(receipt))
    }
}

impl Drop for HandlerGuard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use super::*;

    /// A message with the number of its running handlers.
    struct Counted {
        is_lost: bool,
        running: AtomicI32,
    }

    #[async_trait]
    impl Receipt for Counted {
        fn begin(&self) -> bool {
            if !self.is_lost {
                self.running.fetch_add(1, Ordering::SeqCst);
            }
            !self.is_lost
        }

        fn end(&self) {
            self.running.fetch_sub(1, Ordering::SeqCst);
        }

        async fn acknowledge(&self) {}

        async fn publish_dead_letter(&self, _: &DeadLetter) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn a_handler_ends_once_if_it_began_and_never_if_it_did_not() {
        for is_lost in [false, true] {
            let receipt = Counted {
                is_lost,
                running: AtomicI32::new(0),
            };
            let running = HandlerGuard::begin(&receipt);
            assert_eq!(running.is_none(), is_lost);
            assert_eq!(receipt.running.load(Ordering::SeqCst), i32::from(!is_lost));
            drop(running);
            assert_eq!(receipt.running.load(Ordering::SeqCst), 0);
        }
    }
}
