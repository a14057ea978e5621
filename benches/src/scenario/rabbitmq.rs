//! A backlog into RabbitMQ, with publisher confirms, compared with a bare relay.

use std::time::Instant;

use lapin::options::{ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::options::{QueueDeleteOptions, QueuePurgeOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use pillarbox_sinks::rabbitmq::Config;
use pillarbox_sinks::{SinkConfig, message};
use uuid::Uuid;

use super::{Context, progress, rate};
use crate::failure::Failure;
use crate::ours::Ours;
use crate::plain::Plain;
use crate::plain::rabbitmq::Relay;
use crate::report::{Measurement, Pairs};

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let url = context.amqp.ok_or_else(|| {
        Failure::new("no RabbitMQ broker (set PILLARBOX_TEST_AMQP_URL, or run scripts/bench)")
    })?;
    let queue = Queue::declare(url).await?;
    let pairs = alternate(context, url, &queue).await;
    queue.delete().await?;
    let found = Measurement::speeds(
        "rabbitmq",
        "a bare relay with lapin: claim 1,000, publish with pipelined confirms, ack",
        &pairs?,
        0.70,
    );
    Ok(vec![found.detail("rows", context.scale.relayed())])
}

async fn alternate(context: &Context<'_>, url: &str, queue: &Queue) -> Result<Pairs, Failure> {
    let rows = context.scale.relayed();
    let ours = Ours::new(context.database).await?;
    let mut plain = Plain::new(context.database).await?;
    let config = SinkConfig::RabbitMq(Config::new(url, queue.name.as_str()));
    let mut pairs = Pairs::default();
    for _ in 0..context.scale.pairs() {
        plain.backlog().refill(rows, "orders").await?;
        let relay = Relay::connect(url, &queue.name).await?;
        let began = Instant::now();
        relay.drain(&mut plain).await?;
        pairs.peer.push(rate(rows, began.elapsed()));
        relay.close().await?;
        plain.backlog().verify(rows).await?;
        queue.purge(rows).await?;
        progress("bare relay", pairs.peer[pairs.peer.len() - 1]);

        ours.backlog().refill(rows, "orders").await?;
        let sink = config.build("rabbitmq", &message::Config::default()).await?;
        let took = ours.drain(rows, sink, config.default_concurrency()).await?;
        pairs.ours.push(rate(rows, took));
        ours.backlog().verify(rows).await?;
        queue.purge(rows).await?;
        progress("pillarbox", pairs.ours[pairs.ours.len() - 1]);
    }
    Ok(pairs)
}

/// A durable queue, bound to everything from an exchange of the same name.
struct Queue {
    connection: Connection,
    channel: Channel,
    name: String,
}

impl Queue {
    async fn declare(url: &str) -> Result<Self, Failure> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        let name = format!("pillarbox-bench-{}", Uuid::new_v4().simple());
        let durable = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        let no_arguments = FieldTable::default;
        channel
            .exchange_declare(name.as_str().into(), ExchangeKind::Topic, durable, no_arguments())
            .await?;
        let durable = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        channel
            .queue_declare(name.as_str().into(), durable, no_arguments())
            .await?;
        let bind = QueueBindOptions::default();
        channel
            .queue_bind(
                name.as_str().into(),
                name.as_str().into(),
                "#".into(),
                bind,
                no_arguments(),
            )
            .await?;
        Ok(Self {
            connection,
            channel,
            name,
        })
    }

    /// Empties it. Fails unless every event was in it once.
    async fn purge(&self, rows: u32) -> Result<(), Failure> {
        let purged = self
            .channel
            .queue_purge(self.name.as_str().into(), QueuePurgeOptions::default())
            .await?;
        if purged == rows {
            return Ok(());
        }
        Err(Failure::new(format!(
            "the queue held {purged} messages for {rows} events"
        )))
    }

    async fn delete(self) -> Result<(), Failure> {
        self.channel
            .queue_delete(self.name.as_str().into(), QueueDeleteOptions::default())
            .await?;
        self.channel
            .exchange_delete(self.name.as_str().into(), ExchangeDeleteOptions::default())
            .await?;
        Ok(self.connection.close(200, "done".into()).await?)
    }
}
