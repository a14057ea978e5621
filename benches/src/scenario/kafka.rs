//! A backlog into Kafka, with delivery reports, compared with a bare relay.

use super::Context;
use crate::failure::Failure;
use crate::report::Measurement;

#[cfg(feature = "kafka")]
pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let brokers = context.kafka.ok_or_else(|| {
        Failure::new("no Kafka broker (set PILLARBOX_TEST_KAFKA_BROKERS, or run scripts/bench)")
    })?;
    let pairs = alternating::run(context, brokers).await?;
    let found = Measurement::speeds(
        "kafka",
        "a bare relay with rdkafka: claim 1,000, send, await delivery reports, ack",
        &pairs,
        1.10,
    );
    Ok(vec![found.detail("rows", context.scale.relayed())])
}

#[cfg(not(feature = "kafka"))]
pub(super) async fn measure(_: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    Err(Failure::new(
        "this program has no Kafka (build it with `--features kafka`)",
    ))
}

#[cfg(feature = "kafka")]
mod alternating {
    use std::time::{Duration, Instant};

    use pillarbox_sinks::kafka::Config;
    use pillarbox_sinks::{SinkConfig, message};
    use rdkafka::ClientConfig;
    use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
    use rdkafka::client::DefaultClientContext;
    use rdkafka::consumer::{BaseConsumer, Consumer};
    use uuid::Uuid;

    use crate::failure::Failure;
    use crate::ours::Ours;
    use crate::plain::Plain;
    use crate::plain::kafka::Relay;
    use crate::report::Pairs;
    use crate::scenario::{Context, progress, rate};

    const PARTITIONS: i32 = 3;
    const TIMEOUT: Duration = Duration::from_secs(30);

    pub(super) async fn run(context: &Context<'_>, brokers: &str) -> Result<Pairs, Failure> {
        let rows = context.scale.relayed();
        let ours = Ours::new(context.database).await?;
        let mut plain = Plain::new(context.database).await?;
        let topics = Topics::new(brokers)?;
        let config = SinkConfig::Kafka(Config::new(brokers));
        let mut pairs = Pairs::default();
        for _ in 0..context.scale.pairs() {
            let topic = topics.create().await?;
            plain.backlog().refill(rows, &topic).await?;
            let relay = Relay::new(brokers)?;
            let began = Instant::now();
            relay.drain(&mut plain).await?;
            pairs.peer.push(rate(rows, began.elapsed()));
            plain.backlog().verify(rows).await?;
            topics.verify_and_delete(&topic, rows).await?;
            progress("bare relay", pairs.peer[pairs.peer.len() - 1]);

            let topic = topics.create().await?;
            ours.backlog().refill(rows, &topic).await?;
            let sink = config.build("kafka", &message::Config::default()).await?;
            let took = ours.drain(rows, sink, config.default_concurrency()).await?;
            pairs.ours.push(rate(rows, took));
            ours.backlog().verify(rows).await?;
            topics.verify_and_delete(&topic, rows).await?;
            progress("pillarbox", pairs.ours[pairs.ours.len() - 1]);
        }
        Ok(pairs)
    }

    /// Creates a topic for every run, so that no run sees records of another.
    struct Topics {
        admin: AdminClient<DefaultClientContext>,
        reader: BaseConsumer,
    }

    impl Topics {
        fn new(brokers: &str) -> Result<Self, Failure> {
            let mut config = ClientConfig::new();
            config.set("bootstrap.servers", brokers);
            Ok(Self {
                admin: config.create()?,
                reader: config.create()?,
            })
        }

        async fn create(&self) -> Result<String, Failure> {
            let name = format!("pillarbox-bench-{}", Uuid::new_v4().simple());
            let topic = NewTopic::new(&name, PARTITIONS, TopicReplication::Fixed(1));
            let options = AdminOptions::new().operation_timeout(Some(TIMEOUT));
            for created in self.admin.create_topics([&topic], &options).await? {
                created.map_err(|(topic, code)| Failure::new(format!("{topic} was not created: {code}")))?;
            }
            Ok(name)
        }

        /// Fails unless every event arrived once.
        async fn verify_and_delete(&self, topic: &str, rows: u32) -> Result<(), Failure> {
            let mut held = 0;
            for partition in 0..PARTITIONS {
                let (low, high) = self.reader.fetch_watermarks(topic, partition, TIMEOUT)?;
                held += high - low;
            }
            self.admin.delete_topics(&[topic], &AdminOptions::new()).await?;
            if held == i64::from(rows) {
                return Ok(());
            }
            Err(Failure::new(format!(
                "the topic held {held} records for {rows} events"
            )))
        }
    }
}
