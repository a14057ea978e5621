//! The settings of a queue to consume from.

use std::time::Duration;

use pillarbox_sinks::rabbitmq::Config as Broker;
use pillarbox_sinks::{Secret, Tls};

use super::prefetch::CALM;
use crate::in_flight::MAX_BYTES;

/// A RabbitMQ queue.
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
    pub(super) max_in_flight_bytes: usize,
    pub(super) calm: Duration,
    pub(super) delivery_limit: Option<u32>,
    pub(super) strict: bool,
}

/// The type of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueKind {
    /// Replicated, and the recommended one: it survives the loss of a node and counts deliveries.
    #[default]
    Quorum,
    /// On one node. For brokers older than 3.8 and for existing queues.
    Classic,
}

/// What routes messages into the queue.
#[derive(Debug, Clone)]
pub(super) struct Binding {
    pub(super) exchange: String,
    pub(super) kind: String,
    pub(super) routing_key: String,
}

impl Config {
    /// This queue of the broker at this URL (`amqp://user:password@host:5672/vhost`, or `amqps://` for TLS). The consumer
    /// declares it when it connects, together with `{queue}.dead` for dead letters.
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
            max_in_flight_bytes: MAX_BYTES,
            calm: CALM,
            delivery_limit: None,
            strict: false,
        }
    }

    /// Binds the queue to a topic exchange with this routing key (`*` matches one word, `#` any number). The exchange is
    /// declared like that of a `rabbitmq` destination, so either side may start first.
    #[must_use]
    pub fn bind(self, exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        self.bind_kind(exchange, "topic", routing_key)
    }

    /// The same for another type of exchange: `direct`, `fanout`, `headers` or a plugin's `x-…`.
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

    /// Sets the type of queue to declare.
    #[must_use]
    pub fn kind(mut self, kind: QueueKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the queue for dead letters.
    #[must_use]
    pub fn dead_queue(mut self, queue: impl Into<String>) -> Self {
        self.dead_queue = queue.into();
        self
    }

    /// Declares nothing: queues, exchanges and bindings exist. For users without the permission `configure`.
    #[must_use]
    pub fn declared_elsewhere(mut self) -> Self {
        self.declare = false;
        self
    }

    /// Allows several processes to consume from the queue at the same time. Order per key is lost: two events of one key may
    /// be handled at the same time in two processes.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.single_active = false;
        self
    }

    /// Sets the maximum number of messages in flight: 256 by default. Choose more than the concurrency, so that a waiting key
    /// does not delay the others. 0 would mean no limit to the broker, and counts as 1 here.
    #[must_use]
    pub fn prefetch(mut self, messages: u16) -> Self {
        self.prefetch = messages.max(1);
        self
    }

    /// Sets the maximum size of the messages in flight: 64 MiB by default. RabbitMQ itself counts messages and not bytes.
    /// When they exceed the limit, the consumer reconnects with half the prefetch, as often as needed. When they were small
    /// for ten minutes, it reconnects with twice the prefetch. Set [`prefetch`](Self::prefetch) to avoid that. A larger
    /// message is in flight alone.
    #[must_use]
    pub fn max_in_flight_bytes(mut self, bytes: usize) -> Self {
        self.max_in_flight_bytes = bytes;
        self
    }

    /// Sets how long the messages in flight have to be small before the prefetch grows again: ten minutes. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn grow_after(mut self, calm: Duration) -> Self {
        self.calm = calm;
        self
    }

    /// Sets after how many deliveries the broker itself dead-letters a message. It protects against messages that crash the
    /// process. Quorum queues only. A delivery counts even if the message was released unhandled, so the limit should be well
    /// above the number of restarts in a row.
    #[must_use]
    pub fn delivery_limit(mut self, deliveries: u32) -> Self {
        self.delivery_limit = Some(deliveries);
        self
    }

    /// Sets the heartbeat interval: 20 seconds by default.
    #[must_use]
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.broker.heartbeat = heartbeat;
        self
    }

    /// Sets the connect timeout: 10 seconds by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.broker.connect_timeout = timeout;
        self
    }

    /// Refuses to send the password unencrypted to another machine, instead of logging a warning.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Sets a private CA or a client certificate. For `amqps://` URLs only.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.broker.tls = Some(tls);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rabbitmq::RabbitMq;

    #[test]
    fn a_strict_consumer_sends_no_password_unencrypted() {
        let consumer = |url: &str| Config::new(url, "letters");
        assert!(RabbitMq::new(consumer("amqp://u:hunter2@mq")).is_ok());
        let error = RabbitMq::new(consumer("amqp://u:hunter2@mq").strict())
            .err()
            .unwrap();
        assert_eq!(error.key, "url");
        assert!(!error.problem.contains("hunter2"), "{error}");
        for url in ["amqps://u:hunter2@mq", "amqp://u:hunter2@localhost"] {
            assert!(RabbitMq::new(consumer(url).strict()).is_ok(), "{url}");
        }
    }
}
