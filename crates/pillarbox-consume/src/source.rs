//! The port to the brokers: what a consumer needs of one.
//!
//! A source is one task. It keeps connected for as long as the consumer runs, and hands every message on with a
//! receipt, by which it hears what came of it. It never retries an event and never decides about one.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use pillarbox::failpoint;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use crate::dead::DeadLetter;
use crate::received::Received;

/// Where messages come from: [`RabbitMq`](crate::rabbitmq::RabbitMq) or [`Kafka`](crate::kafka::Kafka).
///
/// Implemented for these and for no others.
pub trait Source: sealed::Listen {}

impl<S: sealed::Listen> Source for S {}

pub(crate) mod sealed {
    use super::{CancellationToken, Inlet, async_trait};

    /// What a source does.
    #[async_trait]
    pub trait Listen: Send + 'static {
        /// Hands messages on until `end`, and says goodbye then: whatever has not been acknowledged goes back to the
        /// broker, in its order. Connects again for as long as it takes.
        ///
        /// * Messages of one key come in the order of the broker.
        /// * How many are held at once is bounded.
        /// * A message that is not ours any more has a receipt that says so.
        async fn listen(self: Box<Self>, consumer: &str, inlet: Inlet, end: CancellationToken);
    }
}

/// Where a source puts its messages.
#[derive(Clone, Debug)]
pub struct Inlet(mpsc::UnboundedSender<Message>);

impl Inlet {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Message>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Hands a message on. After the end of the consumer nobody takes it, and it goes back.
    pub(crate) fn put(&self, message: Message) {
        failpoint::hit("consume_received");
        self.0.send(message).ok();
    }
}

/// A message on its way to a handler.
pub(crate) struct Message {
    /// The event, or why the message is none.
    pub(crate) event: Result<Received<Bytes>, String>,
    /// Messages of one lane are handled one after another.
    pub(crate) lane: Option<Lane>,
    pub(crate) receipt: Box<dyn Receipt>,
    /// The place that the message takes while it is held, where the broker does not count.
    pub(crate) _room: Option<OwnedSemaphorePermit>,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.event.as_ref().map(|event| event.id);
        f.debug_struct("Message")
            .field("event", &id)
            .finish_non_exhaustive()
    }
}

/// A namespace and a key in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Lane {
    pub(crate) namespace: String,
    pub(crate) key: Vec<u8>,
}

impl Lane {
    pub(crate) fn of(event: &Received<Bytes>) -> Option<Self> {
        Some(Self {
            namespace: event.namespace.clone(),
            key: event.ordering_key.clone()?.into_bytes(),
        })
    }
}

/// What a source hears of one message. Dropped without a word, the message is given back when the source ends.
#[async_trait]
pub(crate) trait Receipt: Send + Sync {
    /// A handler is about to start. False if the message is no longer ours: then nothing is to be done about it.
    fn begin(&self) -> bool;

    /// The handler has ended, and so has what follows from it. Comes once for each `begin` that was true.
    fn end(&self) {}

    /// The message is done with. Nothing happens if it is no longer ours; then it comes again, here or elsewhere.
    async fn acknowledge(&self);

    /// Puts a copy of the message, as it came, among the dead letters, and returns when the broker has confirmed.
    ///
    /// # Errors
    /// When it is not certain that the copy is there. To be tried again.
    async fn bury(&self, letter: &DeadLetter) -> Result<(), String>;
}

/// A handler is at work: until this is dropped, the source waits for it.
pub(crate) struct AtWork<'a>(&'a dyn Receipt);

impl<'a> AtWork<'a> {
    /// None if the message is no longer ours.
    pub(crate) fn begin(receipt: &'a dyn Receipt) -> Option<Self> {
        receipt.begin().then_some(Self(receipt))
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
