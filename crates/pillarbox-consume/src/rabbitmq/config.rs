//! What can be said of a queue to consume from.

use std::time::Duration;

use pillarbox_sinks::rabbitmq::Config as Broker;
use pillarbox_sinks::{Secret, Tls};

/// A queue of RabbitMQ.
///
/// ```
/// use pillarbox_consume::rabbitmq::Config;
///
/// let config = Config::new("amqp://guest:guest@localhost", "letters")
///     .bind("events", "orders")
///     .bind("events", "payments.#");
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    pub(super) broker: Broker,
    pub(super) queue: String,
    pub(super) dead_queue: String,
    pub(super) kind: QueueKind,
    pub(super) bindings: Vec<Binding>,
    pub(super) declare: bool,
    pub(super) single_active: bool,
    pub(super) prefetch: u16,
    pub(super) delivery_limit: Option<u32>,
}

/// What kind of queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueKind {
    /// Replicated, and the one to take: it survives the loss of a node, and counts deliveries.
    #[default]
    Quorum,
    /// On one node. For brokers older than 3.8, and for queues that are there already.
    Classic,
}

/// What leads messages into the queue.
#[derive(Debug, Clone)]
pub(super) struct Binding {
    pub(super) exchange: String,
    pub(super) kind: String,
    pub(super) routing_key: String,
}

impl Config {
    /// This queue of the broker at this URL (`amqp://user:password@host:5672/vhost`, or `amqps://` for TLS). It is
    /// declared when connecting, and so is `{queue}.dead` for what is given up on.
    pub fn new(url: impl Into<Secret>, queue: impl Into<String>) -> Self {
        let queue = queue.into();
        Self {
            broker: Broker::new(url, ""),
            dead_queue: format!("{queue}.dead"),
            queue,
            kind: QueueKind::default(),
            bindings: Vec::new(),
            declare: true,
            single_active: true,
            prefetch: 256,
            delivery_limit: None,
        }
    }

    /// Leads messages with this routing key (`*` is one word of it, `#` any number) from a topic exchange into the queue.
    /// The exchange is declared as a `rabbitmq` destination of Pillarbox does, so that it does not matter who comes first.
    #[must_use]
    pub fn bind(self, exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        self.bind_kind(exchange, "topic", routing_key)
    }

    /// The same for another kind of exchange: `direct`, `fanout`, `headers` or a plugin's `x-…`.
    #[must_use]
    pub fn bind_kind(
        mut self,
        exchange: impl Into<String>,
        kind: impl Into<String>,
        routing_key: impl Into<String>,
    ) -> Self {
        self.bindings.push(Binding {
            exchange: exchange.into(),
            kind: kind.into(),
            routing_key: routing_key.into(),
        });
        self
    }

    /// Sets what kind of queue is declared.
    #[must_use]
    pub fn kind(mut self, kind: QueueKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the queue for what is given up on.
    #[must_use]
    pub fn dead_queue(mut self, queue: impl Into<String>) -> Self {
        self.dead_queue = queue.into();
        self
    }

    /// Declares nothing: queues, exchanges and bindings are there already. For users without the right to configure.
    #[must_use]
    pub fn declared_elsewhere(mut self) -> Self {
        self.declare = false;
        self
    }

    /// Lets several processes consume from the queue at the same time. Order per key is lost: two events of one key may
    /// be handled at the same time in two processes.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.single_active = false;
        self
    }

    /// Sets how many messages are held here at the most; 256 unless said otherwise. More than are handled at once, so that
    /// a key that waits does not hold up the others. 0 would mean no limit, and counts as 1.
    #[must_use]
    pub fn prefetch(mut self, messages: u16) -> Self {
        self.prefetch = messages.max(1);
        self
    }

    /// After how many deliveries the broker itself gives a message up, and puts it among the dead letters: for messages
    /// that end the process before it can say so. Quorum queues only. A delivery counts also where the message was only
    /// held and given back, so that a limit should be well above the number of restarts in a row.
    #[must_use]
    pub fn delivery_limit(mut self, deliveries: u32) -> Self {
        self.delivery_limit = Some(deliveries);
        self
    }

    /// Sets how often both sides say that they are still there; 20 seconds unless said otherwise.
    #[must_use]
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.broker.heartbeat = heartbeat;
        self
    }

    /// Sets how long connecting may take; 10 seconds unless said otherwise.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.broker.connect_timeout = timeout;
        self
    }

    /// Sets a private CA, or a certificate of our own. With `amqps://` URLs only.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.broker.tls = Some(tls);
        self
    }
}
