//! Consumers of a real RabbitMQ, behind a proxy that can be cut.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use lapin::options::{BasicGetOptions, BasicPublishOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::AMQPUri;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use pillarbox::{Delivery, Event, Outcome, RetryPolicy, Sink};
use pillarbox_consume::rabbitmq::{Config, RabbitMq};
use pillarbox_consume::{Consumer, Handler, HandlerError, Received};
use pillarbox_sinks::SinkConfig;
use pillarbox_sinks::message::{self, Format};
use pillarbox_sinks::rabbitmq::Config as SinkOfRabbitMq;
use pillarbox_testkit::Proxy;
use pillarbox_testkit::sink_suite::delivery;
use sqlx::PgTransaction;
use tokio::sync::Semaphore;

use crate::ledger::{Entry, Ledger, entry};
use crate::running::{HoldInHandler, Running};
use pillarbox_testkit::environment::{unique_name, variable};
use pillarbox_testkit::wait::until;

/// An exchange, a queue on it, and a way to look into both.
pub(crate) struct Broker {
    url: String,
    pub(crate) exchange: String,
    pub(crate) queue: String,
    channel: Channel,
    connection: Connection,
}

impl Broker {
    pub(crate) async fn fresh() -> Self {
        Self::existing(&unique_name("events"), &unique_name("ledger")).await
    }

    pub(crate) async fn existing(exchange: &str, queue: &str) -> Self {
        Self::at(&variable("PILLARBOX_TEST_AMQP_URL"), exchange, queue).await
    }

    /// One at another server.
    pub(crate) async fn at(url: &str, exchange: &str, queue: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default())
            .await
            .unwrap();
        Self {
            url: url.to_owned(),
            exchange: exchange.to_owned(),
            queue: queue.to_owned(),
            channel: connection.create_channel().await.unwrap(),
            connection,
        }
    }

    pub(crate) fn config(&self) -> Config {
        self.config_at(&self.url)
    }

    pub(crate) fn config_at(&self, url: &str) -> Config {
        Config::new(url, self.queue.as_str()).bind(self.exchange.as_str(), "#")
    }

    /// A destination of Pillarbox that publishes to the exchange.
    pub(crate) async fn sink(&self, format: Format) -> Arc<dyn Sink> {
        let config = SinkConfig::RabbitMq(SinkOfRabbitMq::new(self.url.as_str(), self.exchange.as_str()));
        let message = message::Config {
            format,
            ..message::Config::default()
        };
        config.build("ledger", &message).await.unwrap()
    }

    /// Publishes as the dispatcher does, in order.
    pub(crate) async fn publish(&self, events: &[Event]) {
        let sink = self.sink(Format::Plain).await;
        deliver(&*sink, events).await;
    }

    /// Waits until the queue has a consumer: it is declared and bound, and nothing that is published is lost.
    pub(crate) async fn until_consumed(&self) {
        until("the queue has a consumer", || async {
            let queue = self.look(&self.queue).await;
            queue.is_some_and(|queue| queue.consumer_count() > 0)
        })
        .await;
    }

    /// How many messages wait in a queue, if there is one.
    pub(crate) async fn waiting(&self, queue: &str) -> Option<u32> {
        self.look(queue).await.map(|queue| queue.message_count())
    }

    async fn look(&self, queue: &str) -> Option<lapin::Queue> {
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        // A refusal costs the channel.
        let channel = self.connection.create_channel().await.unwrap();
        channel
            .queue_declare(queue.into(), options, FieldTable::default())
            .await
            .ok()
    }

    /// Takes a message from a queue.
    async fn get(&self, queue: &str) -> Option<lapin::message::Delivery> {
        let options = BasicGetOptions { no_ack: true };
        let got = self.channel.basic_get(queue.into(), options).await.unwrap();
        got.map(|message| message.delivery)
    }

    pub(crate) fn dead_queue(&self) -> String {
        format!("{}.dead", self.queue)
    }

    /// The reasons on the dead letters, which are taken away.
    pub(crate) async fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        while let Some(letter) = self.get(&self.dead_queue()).await {
            reasons.push(header(&letter, "pillarbox-dead-reason").unwrap());
        }
        reasons
    }

    pub(crate) async fn clean_up(self) {
        for queue in [self.queue.clone(), self.dead_queue()] {
            let options = QueueDeleteOptions::default();
            self.channel.queue_delete(queue.into(), options).await.unwrap();
        }
        let options = lapin::options::ExchangeDeleteOptions::default();
        let gone = self.channel.exchange_delete(self.exchange.into(), options).await;
        gone.unwrap();
    }
}

/// Sends events as the dispatcher does: in order, a few hundred at once.
pub(crate) async fn deliver(sink: &dyn Sink, events: &[Event]) {
    for chunk in events.chunks(500) {
        let deliveries: Vec<Delivery> = chunk
            .iter()
            .map(|event| Delivery {
                lane: Some(1), // all in one order
                ..delivery(event.clone())
            })
            .collect();
        let outcomes = join_all(deliveries.iter().map(|delivery| sink.deliver(delivery))).await;
        for outcome in outcomes {
            assert_eq!(outcome, Outcome::Delivered);
        }
    }
}

fn header(message: &lapin::message::Delivery, name: &str) -> Option<String> {
    let headers = message.properties.headers().as_ref()?;
    match headers.inner().get(name)? {
        AMQPValue::LongString(text) => Some(text.to_string()),
        other => panic!("{other:?}"),
    }
}

impl Running {
    /// Waits until everything is declared, and stops.
    pub(crate) async fn declare(self, broker: &Broker) {
        broker.until_consumed().await;
        self.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_handled_once_in_every_format() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let running = Running::start(ledger.consumer(), broker.config());
    broker.until_consumed().await;
    for (number, format) in [Format::Plain, Format::CloudEvents, Format::CloudEventsStructured]
        .into_iter()
        .enumerate()
    {
        let sink = broker.sink(format).await;
        let event = entry("a", i64::try_from(number).unwrap());
        deliver(&*sink, &[event.clone(), event]).await;
    }
    until("all are handled", || async { ledger.len().await == 3 }).await;
    assert_eq!(ledger.account("a").await, [0, 1, 2]);
    let counts = running.stop().await;
    assert_eq!(
        (counts.handled, counts.received - counts.released),
        (3, 3 + counts.duplicates)
    );
    ledger.drop().await;
    broker.clean_up().await;
}

/// A proxy in front of the broker.
pub(crate) async fn behind_a_proxy() -> Proxy {
    let uri: AMQPUri = variable("PILLARBOX_TEST_AMQP_URL").parse().unwrap();
    Proxy::start(format!("{}:{}", uri.authority.host, uri.authority.port)).await
}

pub(crate) fn url_of(proxy: &Proxy) -> String {
    let uri: AMQPUri = variable("PILLARBOX_TEST_AMQP_URL").parse().unwrap();
    let user = uri.authority.userinfo;
    format!(
        "amqp://{}:{}@{}/%2f",
        user.username,
        user.password,
        proxy.address()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_made_again_and_nothing_is_lost_or_done_twice() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let proxy = behind_a_proxy().await;
    let running = Running::start(ledger.consumer(), broker.config_at(&url_of(&proxy)).prefetch(50));
    broker.until_consumed().await;
    let events: Vec<Event> = (0..600)
        .map(|number| entry(&format!("{}", number % 7), number))
        .collect();
    broker.publish(&events).await;
    for reached in [50, 200, 400] {
        until("some are handled", || async { ledger.len().await >= reached }).await;
        proxy.cut();
    }
    until("all are handled", || async { ledger.len().await >= 600 }).await;
    until("all are acknowledged", || async {
        broker.waiting(&broker.queue).await == Some(0)
    })
    .await;
    for (account, numbers) in ledger.accounts().await {
        let first: i64 = account.parse().unwrap();
        let expected: Vec<i64> = (0..600).filter(|number| number % 7 == first).collect();
        assert_eq!(numbers, expected, "in order and once");
    }
    assert!(proxy.accepted() >= 4, "connected again after every cut");
    running.stop().await;
    assert_eq!(broker.waiting(&broker.queue).await, Some(0), "nothing comes back");
    ledger.drop().await;
    broker.clean_up().await;
}

/// Fails by the account of the event.
struct Failing;

impl Handler<PgTransaction<'static>, Entry> for Failing {
    async fn handle(
        &self,
        _: &mut PgTransaction<'static>,
        event: Received<Entry>,
    ) -> Result<(), HandlerError> {
        match event.body.number {
            0 => Err(HandlerError::reject("it is zero")),
            _ => Err(HandlerError::retry("it is not zero")),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_up_on_is_among_the_dead_letters_as_it_came() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let consumer = Consumer::new("ledger", ledger.pool.clone())
        .inbox(ledger.inbox())
        .retry(RetryPolicy::steps(vec![Duration::from_millis(5)]).max_attempts(3))
        .on("EntryMade", 1, Failing);
    let running = Running::start(consumer, broker.config());
    broker.until_consumed().await;
    let events = [
        entry("a", 0).header("x-own", "kept"),
        entry("a", 1),
        entry("a", 2).version(7),
    ];
    broker.publish(&events).await;
    let dead = broker.dead_queue();
    until("all are dead", || async {
        broker.waiting(&dead).await == Some(3)
    })
    .await;
    assert_eq!(running.stop().await.dead, 3);
    assert_eq!(broker.waiting(&broker.queue).await, Some(0));

    let letter = broker.get(&dead).await.unwrap();
    let id = events[0].id.to_string();
    assert_eq!(header(&letter, "pillarbox-id"), Some(id.clone()));
    assert_eq!(letter.properties.message_id().as_ref().unwrap().as_str(), id);
    assert_eq!(&letter.data[..], &events[0].payload.as_bytes()[..]);
    assert_eq!(header(&letter, "x-own").as_deref(), Some("kept"));
    assert_eq!(
        header(&letter, "pillarbox-dead-reason").as_deref(),
        Some("it is zero")
    );
    assert_eq!(
        header(&letter, "pillarbox-dead-consumer").as_deref(),
        Some("ledger")
    );
    assert_eq!(header(&letter, "pillarbox-dead-attempts").as_deref(), Some("1"));
    assert!(header(&letter, "pillarbox-dead-at").unwrap().ends_with('Z'));
    let letter = broker.get(&dead).await.unwrap();
    assert_eq!(
        header(&letter, "pillarbox-dead-reason").as_deref(),
        Some("it is not zero")
    );
    assert_eq!(header(&letter, "pillarbox-dead-attempts").as_deref(), Some("3"));
    let letter = broker.get(&dead).await.unwrap();
    let reason = header(&letter, "pillarbox-dead-reason").unwrap();
    assert!(reason.contains('7') && reason.contains('1'), "{reason}");
    ledger.drop().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_another_producer_is_handled_if_it_has_an_id() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let running = Running::start(ledger.consumer(), broker.config());
    broker.until_consumed().await;
    let known = BasicProperties::default()
        .with_message_id(uuid::Uuid::new_v4().to_string().into())
        .with_type("EntryMade".into());
    for properties in [BasicProperties::default(), known.clone(), known] {
        let body = br#"{"account": "a", "number": 1}"#;
        let published = broker
            .channel
            .basic_publish(
                broker.exchange.as_str().into(),
                "elsewhere".into(),
                BasicPublishOptions::default(),
                body,
                properties,
            )
            .await;
        published.unwrap().await.unwrap();
    }
    until("one is handled", || async { ledger.len().await == 1 }).await;
    let dead = broker.dead_queue();
    until("one is dead", || async { broker.waiting(&dead).await == Some(1) }).await;
    let reasons = broker.reasons().await;
    assert!(reasons[0].contains("`pillarbox-id`"), "{reasons:?}");
    running.stop().await;
    assert_eq!(ledger.account("a").await, [1]);
    ledger.drop().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_gives_the_rest_back_in_order_and_the_next_process_goes_on() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let permits = Arc::new(Semaphore::new(0));
    let (consumer, inside) = HoldInHandler::consumer(&ledger, &permits);
    let first = Running::start(consumer, broker.config());
    broker.until_consumed().await;
    // The second one waits: the queue has a single active consumer.
    let second = Running::start(ledger.consumer(), broker.config());
    let events: Vec<Event> = (0..100).map(|number| entry("a", number)).collect();
    broker.publish(&events).await;
    until("the first is at work", || async {
        inside.load(Ordering::SeqCst) == 1
    })
    .await;
    assert_eq!(ledger.len().await, 0, "the second one gets nothing");
    first.stop.cancel();
    permits.add_permits(1);
    let counts = first.stop().await;
    assert_eq!((counts.handled, inside.load(Ordering::SeqCst)), (1, 1));
    until("the second one goes on", || async { ledger.len().await == 100 }).await;
    assert_eq!(ledger.account("a").await, (0..100).collect::<Vec<_>>());
    let counts = second.stop().await;
    assert_eq!(
        (counts.handled, counts.duplicates),
        (99, 0),
        "nothing was done twice"
    );
    ledger.drop().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_broker_gives_up_on_is_not_lost() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let config = broker.config().delivery_limit(1);
    let hanging = || {
        let (consumer, inside) = HoldInHandler::consumer(&ledger, &Arc::new(Semaphore::new(0)));
        (inside, consumer.grace(Duration::ZERO))
    };
    let mut published = false;
    for _ in 0..2 {
        let (inside, consumer) = hanging();
        let running = Running::start(consumer, config.clone());
        broker.until_consumed().await;
        if !std::mem::replace(&mut published, true) {
            broker.publish(&[entry("a", 1)]).await;
        }
        until("it is delivered", || async { inside.load(Ordering::SeqCst) == 1 }).await;
        running.stop().await;
    }
    let dead = broker.dead_queue();
    until("the broker gave it up", || async {
        broker.waiting(&dead).await == Some(1)
    })
    .await;
    ledger.drop().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_at_the_start_is_waited_for() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let proxy = behind_a_proxy().await;
    proxy.refuse().await;
    let running = Running::start(ledger.consumer(), broker.config_at(&url_of(&proxy)));
    proxy.restore().await;
    broker.until_consumed().await;
    broker.publish(&[entry("a", 1)]).await;
    until("it is handled", || async { ledger.len().await == 1 }).await;
    running.stop().await;
    ledger.drop().await;
    broker.clean_up().await;
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |config| RabbitMq::new(config).err().unwrap();
    let config = || Config::new("amqp://localhost", "letters");
    assert_eq!(refused(Config::new("amqp://localhost", "")).key, "queue");
    assert_eq!(
        refused(Config::new("amqp://localhost", "x".repeat(256))).key,
        "queue"
    );
    assert_eq!(refused(config().dead_queue("letters")).key, "dead_queue");
    assert_eq!(refused(Config::new("http://a:hunter2@b", "letters")).key, "url");
    assert_eq!(refused(config().heartbeat(Duration::ZERO)).key, "heartbeat");
}
