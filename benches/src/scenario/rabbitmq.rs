//! A backlog into RabbitMQ, with publisher confirms, compared with a bare relay. A classic and a quorum queue.

use std::time::Instant;

use lapin::options::{ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::options::{QueueDeleteOptions, QueuePurgeOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use pillarbox_sinks::rabbitmq::Config;
use pillarbox_sinks::{SinkConfig, message};
use uuid::Uuid;

use super::{Context, progress, rate};
use crate::cost::{Cost, Meter};
use crate::failure::Failure;
use crate::ours::Ours;
use crate::plain::Plain;
use crate::plain::rabbitmq::Relay;
use crate::processor;
use crate::report::{Measurement, Pairs, median};

/// The types of queues, each with the name of its measurement.
const QUEUES: [(&str, &str); 2] = [("rabbitmq", "classic"), ("rabbitmq-quorum", "quorum")];

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let url = context.amqp.ok_or_else(|| {
        Failure::new("no RabbitMQ broker (set PILLARBOX_TEST_AMQP_URL, or run scripts/bench)")
    })?;
    let mut found = Vec::new();
    for (name, kind) in QUEUES {
        let queue = Queue::declare(url, kind).await?;
        let runs = alternate(context, url, &queue).await;
        queue.delete().await?;
        found.push(runs?.measurement(name).detail("rows", context.scale.relayed()));
    }
    Ok(found)
}

/// The speeds of alternating runs, and the costs of ours.
#[derive(Default)]
struct Runs {
    pairs: Pairs,
    publish_only: Vec<f64>,
    costs: Vec<Cost>,
    /// Processor time of the broker in microseconds per event. Empty if it runs on another machine.
    broker: Vec<f64>,
}

impl Runs {
    fn measurement(&self, name: &'static str) -> Measurement {
        let against = "a bare relay with lapin: claim 1,000, publish with pipelined confirms, ack";
        let mut found = Measurement::speeds(name, against, &self.pairs, 0.70)
            .detail("publish_only", median(&self.publish_only).round());
        found.details.extend(Cost::details(&self.costs));
        match self.broker.is_empty() {
            true => found,
            false => found.detail("broker_cpu_us", (median(&self.broker) * 10.0).round() / 10.0),
        }
    }
}

async fn alternate(context: &Context<'_>, url: &str, queue: &Queue) -> Result<Runs, Failure> {
    let rows = context.scale.relayed();
    let port = url.parse::<AMQPUri>().map_err(Failure::Message)?.authority.port;
    let ours = Ours::new(context.database).await?;
    let mut plain = Plain::new(context.database).await?;
    let config = SinkConfig::RabbitMq(Config::new(url, queue.name.as_str()));
    let mut runs = Runs::default();
    for _ in 0..context.scale.pairs() {
        let relay = Relay::connect(url, &queue.name).await?;
        let began = Instant::now();
        relay.publish_only(rows).await?;
        let speed = rate(rows, began.elapsed());
        runs.publish_only.push(speed);
        queue.purge(rows).await?;
        progress("publish only", speed);

        plain.backlog().refill(rows, "orders").await?;
        let began = Instant::now();
        relay.drain(&mut plain).await?;
        let speed = rate(rows, began.elapsed());
        runs.pairs.peer.push(speed);
        relay.close().await?;
        plain.backlog().verify(rows).await?;
        queue.purge(rows).await?;
        progress("bare relay", speed);

        ours.backlog().refill(rows, "orders").await?;
        let sink = config.build("rabbitmq", &message::Config::default()).await?;
        let (meter, broker) = (Meter::start(context.database).await?, processor::of_port(port));
        let took = ours.drain(rows, sink, config.default_concurrency()).await?;
        runs.costs.push(meter.stop(rows, context.database).await?);
        let used = processor::of_port(port)
            .zip(broker)
            .map(|(after, before)| after - before);
        runs.broker.extend(used.map(|used| used / f64::from(rows)));
        runs.pairs.ours.push(rate(rows, took));
        ours.backlog().verify(rows).await?;
        queue.purge(rows).await?;
        progress("pillarbox", rate(rows, took));
    }
    Ok(runs)
}

/// A durable queue, bound to everything from an exchange of the same name.
struct Queue {
    connection: Connection,
    channel: Channel,
    name: String,
}

impl Queue {
    async fn declare(url: &str, kind: &str) -> Result<Self, Failure> {
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
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        channel
            .queue_declare(name.as_str().into(), durable, arguments)
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

    /// Empties it, so that the broker's memory stays low: its alarm would block publishers. Fails unless every event was in it once.
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
