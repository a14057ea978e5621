//! The Kafka sink against a real broker. Answers that a healthy broker does not give come from the mock
//! cluster in librdkafka.

#![cfg(feature = "kafka")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use pillarbox::{Event, Outcome, Sink};
use pillarbox_sinks::headers::Table;
use pillarbox_sinks::kafka::{Compression, Config, Kafka, Mechanism, Sasl};
use pillarbox_sinks::{Secret, SinkConfig, Template, Tls};
use pillarbox_testkit::sink_suite::{Arrived, Attributes, Harness, delivery, event_id};
use pillarbox_testkit::{Proxy, Skipped};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::{Headers, Message};
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::task::JoinSet;

use crate::environment::{build, fresh_name, order, until_it_answers, variable};

/// What a topic of these tests takes: room for a megabyte with its headers.
const MAX_MESSAGE: u32 = 2 * 1024 * 1024;

/// A topic with one partition, and a consumer that reads it past the proxy.
struct KafkaHarness {
    topic: String,
    /// Only in front of the address that a sink asks first: it goes on to what the broker says itself.
    proxy: Proxy,
    /// Does the proxy refuse connections?
    away: AtomicBool,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    _consumer: JoinSet<()>,
}

impl KafkaHarness {
    async fn fresh() -> Self {
        let brokers = variable("PILLARBOX_TEST_KAFKA_BROKERS");
        let topic = fresh_name("orders");
        create_topic(&brokers, &topic, MAX_MESSAGE).await;
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let mut consumer = JoinSet::new();
        consumer.spawn(consume(reader(&brokers, &topic), arrived.clone()));
        Self {
            topic,
            proxy: Proxy::start(brokers).await,
            away: AtomicBool::new(false),
            arrived,
            _consumer: consumer,
        }
    }

    fn config(&self, brokers: String) -> Config {
        Config {
            topic: Template::parse(&self.topic).unwrap(),
            max_message_bytes: MAX_MESSAGE,
            ..Config::new(brokers)
        }
    }

    /// A sink as it is after the brokers have answered once: a machine that is busy takes longer for that than a
    /// delivery waits.
    async fn met(&self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        if !self.away.load(Ordering::Relaxed) {
            until_it_answers(sink.as_ref()).await;
        }
        sink
    }

    async fn through_the_proxy(&self, change: impl FnOnce(Config) -> Config) -> Arc<dyn Sink> {
        let config = change(self.config(self.proxy.address().to_string()));
        self.met(Arc::new(Kafka::new("stream", &config).unwrap())).await
    }

    fn ids(&self) -> BTreeSet<uuid::Uuid> {
        self.arrived.lock().unwrap().iter().map(|one| one.id).collect()
    }

    async fn until_arrived(&self, id: uuid::Uuid) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while !self.ids().contains(&id) {
            assert!(tokio::time::Instant::now() < deadline, "{id} did not arrive");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(crate) async fn create_topic(brokers: &str, topic: &str, max_message: u32) {
    let admin: AdminClient<DefaultClientContext> = client(brokers).create().unwrap();
    let limit = max_message.to_string();
    let new = NewTopic::new(topic, 1, TopicReplication::Fixed(1)).set("max.message.bytes", &limit);
    let results = admin.create_topics([&new], &AdminOptions::new()).await.unwrap();
    results.into_iter().next().unwrap().unwrap();
}

fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config
}

fn reader(brokers: &str, topic: &str) -> StreamConsumer {
    let mut config = client(brokers);
    config
        .set("group.id", topic)
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "50");
    let consumer: StreamConsumer = config.create().unwrap();
    let mut partitions = TopicPartitionList::new();
    partitions
        .add_partition_offset(topic, 0, Offset::Beginning)
        .unwrap();
    consumer.assign(&partitions).unwrap();
    consumer
}

async fn consume(consumer: StreamConsumer, arrived: Arc<Mutex<Vec<Arrived>>>) {
    loop {
        // A broker that is away for a while is not the end of the story.
        if let Ok(message) = consumer.recv().await {
            let one = read(&message);
            arrived.lock().unwrap().push(one);
        }
    }
}

fn read(message: &impl Message) -> Arrived {
    let headers: BTreeMap<String, String> = message
        .headers()
        .unwrap()
        .iter()
        .map(|header| {
            (
                header.key.to_lowercase(),
                String::from_utf8(header.value.unwrap().to_vec()).unwrap(),
            )
        })
        .collect();
    Arrived {
        id: event_id(&headers, message.payload().unwrap()),
        payload: Bytes::copy_from_slice(message.payload().unwrap()),
        content_type: headers["content-type"].clone(),
        content_encoding: headers.get("content-encoding").cloned(),
        headers,
    }
}

#[async_trait]
impl Harness for KafkaHarness {
    async fn sink(&self) -> Arc<dyn Sink> {
        self.through_the_proxy(|config| config).await
    }

    async fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }

    fn connection_host(&self) -> Option<String> {
        Some(self.proxy.address().to_string())
    }

    async fn go_away(&self) -> Result<(), Skipped> {
        self.away.store(true, Ordering::Relaxed);
        self.proxy.refuse().await;
        Ok(())
    }

    async fn come_back(&self) {
        self.proxy.restore().await;
        self.away.store(false, Ordering::Relaxed);
    }

    async fn fall_silent(&self) -> Result<(), Skipped> {
        Err(Skipped(
            "a Kafka client connects to what the broker advertises, past the proxy",
        ))
    }

    async fn cut(&self) {}

    fn poison(&self) -> Result<Event, Skipped> {
        let limit = usize::try_from(MAX_MESSAGE).unwrap();
        Ok(Event::new("shop", "orders").bytes(vec![0; limit], "application/octet-stream"))
    }

    async fn with_wrong_password(&self) -> Result<(Arc<dyn Sink>, String), Skipped> {
        let config = Config {
            sasl: Some(sasl(Mechanism::Plain, "hunter2")),
            ..self.config(variable("PILLARBOX_TEST_KAFKA_SASL_BROKERS"))
        };
        Ok((
            Arc::new(Kafka::new("stream", &config).unwrap()),
            "hunter2".to_owned(),
        ))
    }

    async fn with_tls(&self, knows_the_ca: bool) -> Result<Arc<dyn Sink>, Skipped> {
        let ca_file = knows_the_ca.then(|| variable("PILLARBOX_TEST_CA_FILE").into());
        let config = Config {
            tls: Some(Tls {
                ca_file,
                ..Tls::default()
            }),
            ..self.config(variable("PILLARBOX_TEST_KAFKA_SSL_BROKERS"))
        };
        let sink: Arc<dyn Sink> = Arc::new(Kafka::new("stream", &config).unwrap());
        match knows_the_ca {
            true => Ok(self.met(sink).await),
            false => Ok(sink),
        }
    }

    async fn with_headers(&self, headers: &[(&str, &str)]) -> Result<Arc<dyn Sink>, Skipped> {
        let headers = Table::new(headers.iter().copied()).unwrap();
        Ok(self
            .through_the_proxy(|config| Config { headers, ..config })
            .await)
    }

    async fn with_keys(&self, keys: &str) -> Result<Arc<dyn Sink>, Skipped> {
        let config = SinkConfig::Kafka(self.config(self.proxy.address().to_string()));
        Ok(self.met(build(config, keys).await).await)
    }

    fn attributes(&self) -> Option<Attributes> {
        Some(Attributes {
            prefix: "ce_",
            percent_encoded: false,
        })
    }
}

mod suite {
    pillarbox_testkit::sink_suite!(super::KafkaHarness::fresh);
}

fn sasl(mechanism: Mechanism, password: &str) -> Sasl {
    Sasl {
        mechanism,
        user: "pillarbox".to_owned(),
        password: password.into(),
    }
}

#[tokio::test]
async fn a_right_password_is_let_in_by_plain_and_by_scram() {
    let harness = KafkaHarness::fresh().await;
    for mechanism in [Mechanism::Plain, Mechanism::ScramSha256] {
        let config = Config {
            sasl: Some(sasl(mechanism, "secret")),
            ..harness.config(variable("PILLARBOX_TEST_KAFKA_SASL_BROKERS"))
        };
        let sink = Kafka::new("stream", &config).unwrap();
        until_it_answers(&sink).await;
        let sent = delivery(order());
        assert_eq!(sink.deliver(&sent).await, Outcome::Delivered, "{mechanism:?}");
        harness.until_arrived(sent.event.id).await;
    }
}

#[tokio::test]
async fn every_compression_can_be_read_again() {
    let harness = KafkaHarness::fresh().await;
    for compression in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let config = Config {
            compression,
            ..harness.config(variable("PILLARBOX_TEST_KAFKA_BROKERS"))
        };
        let sink = Kafka::new("stream", &config).unwrap();
        until_it_answers(&sink).await;
        let sent = delivery(order().bytes(vec![b'x'; 10_000], "text/plain"));
        assert_eq!(sink.deliver(&sent).await, Outcome::Delivered, "{compression:?}");
        harness.until_arrived(sent.event.id).await;
    }
}

#[tokio::test]
async fn a_topic_that_does_not_exist_is_tried_again_and_named_by_check() {
    // The real broker of these tests makes topics as they are asked for.
    let cluster = MockCluster::new(1).unwrap();
    let unknown = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.topic_error("missing", unknown).unwrap();
    let config = Config {
        topic: Template::parse("missing").unwrap(),
        timeout: Duration::from_secs(6),
        ..Config::new(cluster.bootstrap_servers())
    };
    let sink = Kafka::new("stream", &config).unwrap();
    let said = sink.check().await.unwrap_err();
    assert!(said.contains("the topic `missing` cannot be used"), "{said}");
    let outcome = sink.deliver(&delivery(order())).await;
    let Outcome::Retry { reason, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(reason.contains("the topic does not exist"), "{reason}");
}

/// The broker answers for the batch, in which one record is bad.
#[tokio::test]
async fn a_record_over_the_topics_limit_is_rejected_only_when_it_was_alone() {
    let brokers = variable("PILLARBOX_TEST_KAFKA_BROKERS");
    let topic = fresh_name("narrow");
    create_topic(&brokers, &topic, 2000).await;
    let config = Config {
        topic: Template::parse(&topic).unwrap(),
        linger: Duration::from_millis(200),
        ..Config::new(brokers)
    };
    let sink = Kafka::new("stream", &config).unwrap();
    until_it_answers(&sink).await;
    let large = || delivery(order().bytes(vec![0; 5000], "application/octet-stream"));
    let company = [large(), delivery(order()), delivery(order())];
    // In one task: none waits for a processor until the first has gone alone.
    for outcome in join_all(company.iter().map(|each| sink.deliver(each))).await {
        assert_ne!(
            outcome.name(),
            "reject",
            "in a batch the bad record is unknown: {outcome:?}"
        );
    }
    // The client counts a record a moment longer than its report takes to arrive.
    let mut alone = sink.deliver(&large()).await;
    for _ in 0..20 {
        if alone.name() != "connection_lost" {
            break;
        }
        alone = sink.deliver(&large()).await;
    }
    assert_eq!(alone.name(), "reject", "{alone:?}");
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
}

#[tokio::test]
async fn an_illegal_topic_is_rejected() {
    let config = Config {
        topic: Template::parse("{aggregate_id}").unwrap(),
        ..Config::new(variable("PILLARBOX_TEST_KAFKA_BROKERS"))
    };
    let sink = Kafka::new("stream", &config).unwrap();
    let outcome = sink
        .deliver(&delivery(order().aggregate("order", "no topic")))
        .await;
    assert_eq!(outcome.name(), "reject", "{outcome:?}");
}

#[tokio::test]
async fn an_option_that_librdkafka_does_not_know_is_refused_without_its_value() {
    let mut config = Config::new("127.0.0.1:1");
    config
        .options
        .insert("no.such.option".to_owned(), Secret::inline("hunter2"));
    let error = Kafka::new("stream", &config).err().unwrap();
    assert!(
        error.problem.contains("`no.such.option`") && !error.problem.contains("hunter2"),
        "{error}"
    );
}

#[tokio::test]
async fn what_the_user_may_not_write_is_tried_again() {
    let cluster = MockCluster::new(1).unwrap();
    let topic = "guarded";
    cluster.create_topic(topic, 1, 1).unwrap();
    let config = Config {
        topic: Template::parse(topic).unwrap(),
        ..Config::new(cluster.bootstrap_servers())
    };
    let sink = Kafka::new("stream", &config).unwrap();
    until_it_answers(&sink).await;
    let denied = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED];
    cluster.request_errors(RDKafkaApiKey::Produce, &denied);
    let outcome = sink.deliver(&delivery(order())).await;
    let Outcome::Retry { reason, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(reason.contains("may not write"), "{reason}");
    until_delivered(&sink).await;
}

#[tokio::test]
async fn a_broker_that_goes_away_is_noticed_and_found_again() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let config = Config {
        timeout: Duration::from_secs(2),
        ..Config::new(cluster.bootstrap_servers())
    };
    let sink = Kafka::new("stream", &config).unwrap();
    until_delivered(&sink).await;
    cluster.broker_down(-1).unwrap();
    // The first may still be handed over; then the client knows.
    let first = sink.deliver(&delivery(order())).await;
    assert!(matches!(first.name(), "retry" | "unavailable"), "{first:?}");
    let second = sink.deliver(&delivery(order())).await;
    assert_eq!(second.name(), "unavailable", "{second:?}");
    assert!(sink.check().await.is_err());
    cluster.broker_up(-1).unwrap();
    until_delivered(&sink).await;
}

async fn until_delivered(sink: &Kafka) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let outcome = sink.deliver(&delivery(order())).await;
        if outcome == Outcome::Delivered {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "still {outcome:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
