//! A durable queue: the ledger of the messages that the broker accepted.
//!
//! The test reads it once, at the end, when no daemon publishes. A consumer that runs during an outage would lose its
//! connection and receive messages twice that were sent once.

use std::time::Duration;

use futures_util::StreamExt;
use lapin::options::{
    BasicConsumeOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use serde_json::Value;
use uuid::Uuid;

/// One message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) id: Uuid,
    pub(crate) routing_key: String,
    pub(crate) payload: Value,
}

/// A durable queue bound to an exchange. Both have the same name.
pub(crate) struct Queue {
    url: String,
    pub(crate) name: String,
}

impl Queue {
    /// Binds it to every routing key.
    pub(crate) async fn declare(url: &str, name: &str) -> Self {
        Self::bound(url, name, "#").await
    }

    /// Binds it to these routing keys only.
    pub(crate) async fn bound(url: &str, name: &str, routing_key: &str) -> Self {
        let queue = Self {
            url: url.to_owned(),
            name: name.to_owned(),
        };
        let (connection, channel) = queue.open().await;
        let exchange = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        let none = FieldTable::default;
        channel
            .exchange_declare(name.into(), ExchangeKind::Topic, exchange, none())
            .await
            .expect("an exchange");
        channel
            .queue_declare(name.into(), QueueDeclareOptions::durable(), none())
            .await
            .expect("a queue");
        connection.close(200, "done".into()).await.expect("closes");
        queue.bind(routing_key).await;
        queue
    }

    /// Binds it to more routing keys.
    pub(crate) async fn bind(&self, routing_key: &str) {
        let (connection, channel) = self.open().await;
        let name = self.name.as_str();
        channel
            .queue_bind(
                name.into(),
                name.into(),
                routing_key.into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            )
            .await
            .expect("a binding");
        connection.close(200, "done".into()).await.expect("closes");
    }

    /// How many messages are in the queue.
    pub(crate) async fn len(&self) -> u32 {
        let (connection, channel) = self.open().await;
        let count = self.count(&channel).await;
        connection.close(200, "done".into()).await.expect("closes");
        count
    }

    /// Reads and removes all messages.
    pub(crate) async fn read(&self) -> Vec<Message> {
        let (connection, channel) = self.open().await;
        let options = BasicConsumeOptions {
            no_ack: true,
            ..BasicConsumeOptions::default()
        };
        let mut messages = Vec::new();
        let mut left = self.count(&channel).await;
        let name = self.name.as_str();
        let mut consumer = channel
            .basic_consume(name.into(), "ledger".into(), options, FieldTable::default())
            .await
            .expect("a consumer");
        while left > 0 {
            let next = tokio::time::timeout(Duration::from_secs(60), consumer.next()).await;
            let delivery = next.expect("the queue has more messages");
            let delivery = delivery
                .expect("the consumer is not cancelled")
                .expect("a message");
            messages.push(read(&delivery));
            left -= 1;
            if left == 0 {
                left = self.count(&channel).await;
            }
        }
        connection.close(200, "done".into()).await.expect("closes");
        messages
    }

    pub(crate) async fn delete(&self) {
        let (connection, channel) = self.open().await;
        let name = self.name.as_str();
        channel
            .queue_delete(name.into(), QueueDeleteOptions::default())
            .await
            .expect("the queue exists");
        channel
            .exchange_delete(name.into(), ExchangeDeleteOptions::default())
            .await
            .expect("the exchange exists");
        connection.close(200, "done".into()).await.expect("closes");
    }

    async fn count(&self, channel: &Channel) -> u32 {
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let name = self.name.as_str();
        let queue = channel.queue_declare(name.into(), passive, FieldTable::default());
        queue.await.expect("the queue exists").message_count()
    }

    async fn open(&self) -> (Connection, Channel) {
        let connection = Connection::connect(&self.url, ConnectionProperties::default())
            .await
            .expect("RabbitMQ answers; run the tests by scripts/test");
        let channel = connection.create_channel().await.expect("a channel");
        (connection, channel)
    }
}

fn read(delivery: &lapin::message::Delivery) -> Message {
    let id = delivery
        .properties
        .message_id()
        .as_ref()
        .expect("every message has an id");
    Message {
        id: id.as_str().parse().expect("the id is the event's"),
        routing_key: delivery.routing_key.to_string(),
        payload: serde_json::from_slice(&delivery.data).expect("the payload is JSON"),
    }
}
