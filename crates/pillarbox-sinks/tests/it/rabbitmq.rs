//! The RabbitMQ sink against a real broker, behind a proxy that can be cut.

#![cfg(feature = "rabbitmq")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use lapin::options::{BasicConsumeOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use pillarbox::{Event, Outcome, Sink};
use pillarbox_sinks::headers::Table;
use pillarbox_sinks::rabbitmq::{Config, RabbitMq};
use pillarbox_sinks::{SinkConfig, Template};
use pillarbox_testkit::sink_suite::{Arrived, Attributes, Harness, delivery};
use pillarbox_testkit::{Proxy, Skipped};
use tokio::task::JoinSet;

use crate::environment::{build, fresh_name, order, private_ca, until_it_answers, variable};

/// An exchange with one queue that gets everything, and a consumer that reads it past the proxy.
struct RabbitMqHarness {
    exchange: String,
    proxy: Proxy,
    uri: AMQPUri,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    channel: Channel,
    _connection: Connection,
    _consumer: JoinSet<()>,
}

impl RabbitMqHarness {
    async fn fresh() -> Self {
        let url = variable("PILLARBOX_TEST_AMQP_URL");
        let uri: AMQPUri = url.parse().unwrap();
        let exchange = fresh_name("events");
        let connection = Connection::connect(&url, ConnectionProperties::default())
            .await
            .unwrap();
        let channel = connection.create_channel().await.unwrap();
        declare(&channel, &exchange, ExchangeKind::Topic, true).await;
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let mut consumer = JoinSet::new();
        consumer.spawn(consume(&channel, &exchange, "#", arrived.clone()).await);
        Self {
            proxy: Proxy::start(format!("{}:{}", uri.authority.host, uri.authority.port)).await,
            exchange,
            uri,
            arrived,
            channel,
            _connection: connection,
            _consumer: consumer,
        }
    }

    /// As ARAP says where its broker is.
    fn config(&self) -> Config {
        let address = self.proxy.address();
        Config {
            url: None,
            host: Some(address.ip().to_string()),
            port: Some(address.port()),
            user: Some(self.uri.authority.userinfo.username.clone()),
            password: Some(self.uri.authority.userinfo.password.clone().into()),
            vhost: Some(self.uri.vhost.clone()),
            ..Config::new("", self.exchange.as_str())
        }
    }

    fn rabbitmq(&self, config: &Config) -> RabbitMq {
        RabbitMq::new("queue", config).unwrap()
    }
}

async fn declare(channel: &Channel, exchange: &str, kind: ExchangeKind, durable: bool) {
    let options = ExchangeDeclareOptions {
        durable,
        ..ExchangeDeclareOptions::default()
    };
    channel
        .exchange_declare(exchange.into(), kind, options, FieldTable::default())
        .await
        .unwrap();
}

async fn consume(
    channel: &Channel,
    exchange: &str,
    pattern: &str,
    arrived: Arc<Mutex<Vec<Arrived>>>,
) -> impl Future<Output = ()> + use<> {
    let options = QueueDeclareOptions {
        exclusive: true,
        ..QueueDeclareOptions::default()
    };
    let queue = channel
        .queue_declare("".into(), options, FieldTable::default())
        .await
        .unwrap();
    let name = queue.name().clone();
    channel
        .queue_bind(
            name.clone(),
            exchange.into(),
            pattern.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        )
        .await
        .unwrap();
    let options = BasicConsumeOptions {
        no_ack: true,
        ..BasicConsumeOptions::default()
    };
    let mut messages = channel
        .basic_consume(name, "".into(), options, FieldTable::default())
        .await
        .unwrap();
    async move {
        while let Some(message) = messages.next().await {
            arrived.lock().unwrap().push(read(message.unwrap()));
        }
    }
}

fn read(message: lapin::message::Delivery) -> Arrived {
    let properties = message.properties;
    assert_eq!(*properties.delivery_mode(), Some(2), "messages are persistent");
    let table = properties.headers().clone().unwrap();
    let headers: BTreeMap<String, String> = table
        .inner()
        .iter()
        .map(|(name, value)| {
            let AMQPValue::LongString(text) = value else {
                panic!("{name} is {value:?}")
            };
            (name.to_string().to_lowercase(), text.to_string())
        })
        .collect();
    Arrived {
        id: properties
            .message_id()
            .as_ref()
            .unwrap()
            .as_str()
            .parse()
            .unwrap(),
        headers,
        payload: Bytes::from(message.data),
        content_type: properties.content_type().as_ref().unwrap().to_string(),
        content_encoding: properties.content_encoding().as_ref().map(ToString::to_string),
    }
}

#[async_trait]
impl Harness for RabbitMqHarness {
    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.rabbitmq(&self.config()))
    }

    async fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }

    fn connection_host(&self) -> Option<String> {
        Some(self.proxy.address().to_string())
    }

    fn proxy(&self) -> Option<&Proxy> {
        Some(&self.proxy)
    }

    fn poison(&self) -> Result<Event, Skipped> {
        Ok(Event::new("shop", "x".repeat(256)))
    }

    async fn with_wrong_password(&self) -> Result<(Arc<dyn Sink>, String), Skipped> {
        let config = Config {
            password: Some("hunter2".into()),
            ..self.config()
        };
        Ok((Arc::new(self.rabbitmq(&config)), "hunter2".to_owned()))
    }

    async fn with_tls(&self, knows_the_ca: bool) -> Result<Arc<dyn Sink>, Skipped> {
        let config = Config {
            tls: knows_the_ca.then(private_ca),
            ..Config::new(variable("PILLARBOX_TEST_AMQPS_URL"), self.exchange.as_str())
        };
        Ok(Arc::new(self.rabbitmq(&config)))
    }

    async fn with_headers(&self, headers: &[(&str, &str)]) -> Result<Arc<dyn Sink>, Skipped> {
        let config = Config {
            headers: Table::new(headers.iter().copied()).unwrap(),
            ..self.config()
        };
        Ok(Arc::new(self.rabbitmq(&config)))
    }

    async fn with_keys(&self, keys: &str) -> Result<Arc<dyn Sink>, Skipped> {
        Ok(build(SinkConfig::RabbitMq(self.config()), keys).await)
    }

    fn attributes(&self) -> Option<Attributes> {
        Some(Attributes {
            prefix: "cloudevents_",
            percent_encoded: false,
        })
    }

    async fn clean_up(&self) {
        let deleted = self
            .channel
            .exchange_delete(self.exchange.as_str().into(), Default::default());
        deleted.await.unwrap();
    }
}

mod suite {
    pillarbox_testkit::sink_suite!(super::RabbitMqHarness::fresh);
}

#[tokio::test]
async fn the_exchange_is_declared_and_the_routing_key_follows_its_template() {
    let harness = RabbitMqHarness::fresh().await;
    let config = Config {
        exchange: fresh_name("arap.events"),
        routing_key: Template::parse("arap.{event_type}").unwrap(),
        ..harness.config()
    };
    let sink = harness.rabbitmq(&config);
    assert_eq!(sink.check().await, Ok(()));
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let _consumer = tokio::spawn(
        consume(
            &harness.channel,
            &config.exchange,
            "arap.OrderCreated",
            arrived.clone(),
        )
        .await,
    );
    let sent = delivery(order());
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    while arrived.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(arrived.lock().unwrap()[0].id, sent.event.id);
}

/// Routable and unroutable messages side by side: none may pass for another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_unroutable_are_returned() {
    let harness = RabbitMqHarness::fresh().await;
    let config = Config {
        exchange: fresh_name("narrow"),
        ..harness.config()
    };
    let sink: Arc<dyn Sink> = Arc::new(harness.rabbitmq(&config));
    assert_eq!(sink.check().await, Ok(()));
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let _consumer =
        tokio::spawn(consume(&harness.channel, &config.exchange, "orders", arrived.clone()).await);
    let mut tasks = JoinSet::new();
    for number in 0..1000 {
        let topic = if number % 3 == 0 { "unbound" } else { "orders" };
        let sink = sink.clone();
        tasks.spawn(async move {
            let delivery = delivery(Event::new("shop", topic));
            (topic, sink.deliver(&delivery).await)
        });
    }
    for (topic, outcome) in tasks.join_all().await {
        match topic {
            "orders" => assert_eq!(outcome, Outcome::Delivered),
            _ => {
                let Outcome::Retry { reason, .. } = outcome else {
                    panic!("{outcome:?}")
                };
                assert!(reason.contains("returned as unroutable: NO_ROUTE"), "{reason}");
                assert!(reason.contains("routing key `unbound`"), "{reason}");
            }
        }
    }
}

#[tokio::test]
async fn without_mandatory_an_unroutable_message_counts_as_delivered() {
    let harness = RabbitMqHarness::fresh().await;
    let config = Config {
        exchange: fresh_name("empty"),
        mandatory: false,
        ..harness.config()
    };
    assert_eq!(
        harness.rabbitmq(&config).deliver(&delivery(order())).await,
        Outcome::Delivered
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_over_the_brokers_limit_is_rejected_and_harms_no_neighbour() {
    let harness = RabbitMqHarness::fresh().await;
    let sink = harness.sink().await;
    let huge = Event::new("shop", "orders").bytes(vec![0; 20 * 1024 * 1024 + 1], "application/octet-stream");
    let mut tasks = JoinSet::new();
    for event in std::iter::once(huge.clone()).chain((0..50).map(|_| order())) {
        let sink = sink.clone();
        tasks.spawn(async move { (event.id, sink.deliver(&delivery(event)).await) });
    }
    for (id, outcome) in tasks.join_all().await {
        if id == huge.id {
            let Outcome::Reject { reason } = outcome else {
                panic!("{outcome:?}")
            };
            assert!(reason.contains("PRECONDITION_FAILED"), "{reason}");
        } else {
            assert_eq!(outcome, Outcome::Delivered);
        }
    }
}

#[tokio::test]
async fn headers_that_fit_no_frame_are_rejected() {
    let harness = RabbitMqHarness::fresh().await;
    let mut event = order();
    for number in 0..140 {
        event = event.header(format!("h{number}"), "x".repeat(1000));
    }
    let sink = harness.sink().await;
    let outcome = sink.deliver(&delivery(event)).await;
    let Outcome::Reject { reason } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(reason.contains("131072 in a frame"), "{reason}");
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
}

#[tokio::test]
async fn an_exchange_of_another_kind_says_what_to_do() {
    let harness = RabbitMqHarness::fresh().await;
    let exchange = fresh_name("fanout");
    declare(&harness.channel, &exchange, ExchangeKind::Fanout, true).await;
    let config = Config {
        exchange: exchange.clone(),
        ..harness.config()
    };
    let sink = harness.rabbitmq(&config);
    let said = sink.check().await.unwrap_err();
    assert!(
        said.contains(&exchange) && said.contains("`declare = false`"),
        "{said}"
    );
    assert_eq!(sink.deliver(&delivery(order())).await.name(), "unavailable");
    let config = Config {
        declare: false,
        mandatory: false,
        ..config
    };
    let sink = harness.rabbitmq(&config);
    assert_eq!(sink.check().await, Ok(()));
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
}

#[tokio::test]
async fn an_exchange_that_is_not_there_says_so_and_can_be_mended() {
    let harness = RabbitMqHarness::fresh().await;
    let config = Config {
        exchange: fresh_name("later"),
        declare: false,
        mandatory: false,
        ..harness.config()
    };
    let sink = harness.rabbitmq(&config);
    let said = sink.check().await.unwrap_err();
    assert!(
        said.contains("NOT_FOUND") && said.contains("`declare = true`"),
        "{said}"
    );
    let outcome = sink.deliver(&delivery(order())).await;
    let Outcome::Retry { reason, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(reason.contains("NOT_FOUND"), "{reason}");
    declare(&harness.channel, &config.exchange, ExchangeKind::Topic, true).await;
    assert_eq!(sink.check().await, Ok(()));
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
}

#[tokio::test]
async fn a_user_without_permission_is_an_error() {
    let harness = RabbitMqHarness::fresh().await;
    let config = Config {
        user: Some("limited".to_owned()),
        password: Some("limited".into()),
        vhost: Some("other".to_owned()), // where it may enter and do nothing
        ..harness.config()
    };
    let said = harness.rabbitmq(&config).check().await.unwrap_err();
    assert!(
        said.contains("ACCESS_REFUSED") && said.contains("`declare = false`"),
        "{said}"
    );
    let config = Config {
        declare: false,
        exchange: "amq.topic".to_owned(),
        ..config
    };
    let outcome = harness.rabbitmq(&config).deliver(&delivery(order())).await;
    let Outcome::Retry { reason, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(reason.contains("ACCESS_REFUSED"), "{reason}");
}

#[tokio::test]
async fn a_virtual_host_that_is_not_there_is_named() {
    let harness = RabbitMqHarness::fresh().await;
    let config = Config {
        vhost: Some("no-such-vhost".to_owned()),
        ..harness.config()
    };
    let said = harness.rabbitmq(&config).check().await.unwrap_err();
    assert!(said.contains("virtual host `no-such-vhost`"), "{said}");
}

#[tokio::test]
async fn a_broker_that_says_nothing_does_not_hold_up_a_check() {
    let harness = RabbitMqHarness::fresh().await;
    let config = Config {
        connect_timeout: std::time::Duration::from_millis(500),
        ..harness.config()
    };
    let sink = harness.rabbitmq(&config);
    until_it_answers(&sink).await;
    harness.proxy.black_hole();
    let said = sink.check().await.unwrap_err();
    assert!(said.contains("did not answer within 500ms"), "{said}");
    harness.proxy.restore().await;
    until_it_answers(&sink).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_deliveries_share_one_connection() {
    let harness = RabbitMqHarness::fresh().await;
    let sink = harness.sink().await;
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let sink = sink.clone();
        tasks.spawn(async move { sink.deliver(&delivery(order())).await });
    }
    for outcome in tasks.join_all().await {
        assert_eq!(outcome, Outcome::Delivered);
    }
    assert_eq!(harness.proxy.accepted(), 1);
}
