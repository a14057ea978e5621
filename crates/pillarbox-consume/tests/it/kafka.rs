//! Consumers of a real Kafka.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use pillarbox::{Delivery, Event, Outcome, RetryPolicy, Sink};
use pillarbox_consume::kafka::Config;
use pillarbox_consume::{Consumer, Handler, HandlerError, Received, Unknown};
use pillarbox_sinks::SinkConfig;
use pillarbox_sinks::Template;
use pillarbox_sinks::kafka::Config as SinkOfKafka;
use pillarbox_sinks::message::{self, Format};
use pillarbox_testkit::kafka::{Record, Topic};
use pillarbox_testkit::sink_suite::delivery;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::types::RDKafkaErrorCode::{CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator};
use rdkafka::{Offset, TopicPartitionList};
use sqlx::{PgPool, PgTransaction};
use tokio::sync::Semaphore;

use crate::ledger::{Entry, Ledger, WriteEntry, entry};
use crate::running::{HoldInHandler, Running};
use pillarbox_testkit::environment::{unique_name, variable};
use pillarbox_testkit::wait::until;

const PARTITIONS: i32 = 4;
const TIMEOUT: Duration = Duration::from_secs(30);

/// A topic with a few partitions, and a group that consumes it.
pub(crate) struct Broker {
    pub(crate) topic: String,
    pub(crate) group: String,
    brokers: String,
}

impl Broker {
    pub(crate) async fn fresh() -> Self {
        let broker = Self::existing(&unique_name("entries"), &unique_name("ledger"));
        broker.create(&broker.topic, PARTITIONS).await;
        broker
    }

    pub(crate) fn existing(topic: &str, group: &str) -> Self {
        Self {
            topic: topic.to_owned(),
            group: group.to_owned(),
            brokers: variable("PILLARBOX_TEST_KAFKA_BROKERS"),
        }
    }

    pub(crate) fn config(&self) -> Config {
        Config::new(self.brokers.as_str(), self.group.as_str()).topic(self.topic.as_str())
    }

    /// The same for a consumer that is killed: the group removes it soon. On a busy machine it may remove a live one.
    pub(crate) fn killable(&self) -> Config {
        self.config().option("session.timeout.ms", "6000")
    }

    pub(crate) fn dead_topic(&self) -> String {
        format!("{}.dead", self.group)
    }

    async fn create(&self, topic: &str, partitions: i32) {
        let topic = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        let made = self.admin().create_topics([&topic], &AdminOptions::new()).await;
        made.expect("Kafka answers; run the tests by scripts/test")
            .remove(0)
            .unwrap();
    }

    /// Publishes as the dispatcher does, in order.
    pub(crate) async fn publish(&self, events: &[Event]) {
        deliver(&*self.sink(Format::Plain).await, events).await;
    }

    async fn sink(&self, format: Format) -> Arc<dyn Sink> {
        let config = SinkOfKafka {
            topic: Template::parse(&self.topic).unwrap(),
            ..SinkOfKafka::new(self.brokers.as_str())
        };
        let message = message::Config {
            format,
            ..message::Config::default()
        };
        let sink = SinkConfig::Kafka(config).build("ledger", &message).await.unwrap();
        // The first answer may take longer on a busy machine than a delivery waits for it.
        until("Kafka answers", || async { sink.check().await.is_ok() }).await;
        sink
    }

    /// All dead letters.
    pub(crate) async fn dead(&self) -> Vec<Record> {
        let dead = self.dead_topic();
        let topic = Topic::existing(&self.brokers, &dead);
        topic.read().await
    }

    /// How many records the group has not committed. A new group has no coordinator for a moment: it has committed nothing.
    pub(crate) async fn consumer_lag(&self) -> i64 {
        let client: BaseConsumer = self.client().set("group.id", &self.group).create().unwrap();
        let mut wanted = TopicPartitionList::new();
        for number in 0..PARTITIONS {
            wanted.add_partition(&self.topic, number);
        }
        let committed = match client.committed_offsets(wanted.clone(), TIMEOUT) {
            Err(KafkaError::MetadataFetch(
                NotCoordinator | CoordinatorLoadInProgress | CoordinatorNotAvailable,
            )) => wanted,
            committed => committed.unwrap(),
        };
        let mut lag = 0;
        for partition in committed.elements() {
            let (first, end) = client
                .fetch_watermarks(&self.topic, partition.partition(), TIMEOUT)
                .unwrap();
            lag += match partition.offset() {
                Offset::Offset(done) => end - done,
                _ => end - first,
            };
        }
        lag
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().unwrap()
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config
    }

    pub(crate) async fn clean_up(self) {
        let dead = self.dead_topic();
        let topics = [self.topic.as_str(), &dead];
        let gone = self.admin().delete_topics(&topics, &AdminOptions::new()).await;
        for topic in gone.unwrap() {
            topic.expect("the consumer has created the one for dead letters");
        }
    }
}

/// Sends events as the dispatcher does: in order, a few hundred at once.
async fn deliver(sink: &dyn Sink, events: &[Event]) {
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

#[tokio::test(flavor = "multi_thread")]
async fn events_are_handled_once_in_every_format_and_the_group_remembers() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let running = Running::start(ledger.consumer(), broker.config());
    for (number, format) in [Format::Plain, Format::CloudEvents, Format::CloudEventsStructured]
        .into_iter()
        .enumerate()
    {
        let sink = broker.sink(format).await;
        let event = entry("a", i64::try_from(number).unwrap());
        deliver(&*sink, &[event.clone(), event]).await;
    }
    until("all are handled", || async { ledger.len().await == 3 }).await;
    until("all are done", || async { broker.consumer_lag().await == 0 }).await;
    assert_eq!(ledger.account("a").await, [0, 1, 2]);
    let counts = running.stop().await;
    assert_eq!((counts.handled, counts.duplicates), (3, 3));

    let again = Running::start(ledger.consumer(), broker.config());
    broker.publish(&[entry("b", 1)]).await;
    until("the new one is handled", || async { ledger.len().await == 4 }).await;
    assert_eq!(again.stop().await.received, 1, "the rest was done");
    ledger.drop().await;
    broker.clean_up().await;
}

/// Rejects account `z` and retries account `r`.
struct Failing(WriteEntry);

impl Handler<PgTransaction<'static>, Entry> for Failing {
    async fn handle(
        &self,
        transaction: &mut PgTransaction<'static>,
        event: Received<Entry>,
    ) -> Result<(), HandlerError> {
        match event.body.account.as_str() {
            "z" => Err(HandlerError::reject("it is z")),
            "r" => Err(HandlerError::retry("not yet")),
            _ => self.0.handle(transaction, event).await,
        }
    }
}

fn failing(ledger: &Ledger) -> Consumer<PgPool> {
    Consumer::new("ledger", ledger.pool.clone())
        .inbox(ledger.inbox())
        .on("EntryMade", 1, Failing(ledger.write_entry()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_the_unchanged_record() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let consumer = failing(&ledger).retry(RetryPolicy::steps(Vec::new()).max_attempts(3));
    let running = Running::start(consumer, broker.config());
    let event = entry("z", 1).header("x-own", "kept");
    broker.publish(&[event.clone(), entry("r", 1)]).await;
    until("all are done", || async { broker.consumer_lag().await == 0 }).await;
    assert_eq!(running.stop().await.dead, 2);
    let mut dead = broker.dead().await;
    dead.sort_by_key(|letter| letter.key.clone());
    let [retried, rejected] = &dead[..] else {
        panic!("{dead:?}")
    };
    assert_eq!(rejected.headers["pillarbox-id"], event.id.to_string());
    assert_eq!(rejected.headers["x-own"], "kept");
    assert_eq!(rejected.payload, &event.payload.as_bytes()[..]);
    assert_eq!(rejected.key.as_deref(), Some("z"));
    assert_eq!(rejected.headers["pillarbox-dead-reason"], "it is z");
    assert_eq!(rejected.headers["pillarbox-dead-consumer"], "ledger");
    assert_eq!(rejected.headers["pillarbox-dead-attempts"], "1");
    assert_eq!(retried.headers["pillarbox-dead-attempts"], "3");
    ledger.drop().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_not_done_is_redelivered_and_delays_no_other() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let consumer = failing(&ledger).retry(RetryPolicy::steps(vec![Duration::from_secs(600)]));
    let running = Running::start(consumer, broker.config());
    let mut events = vec![entry("r", 0)];
    events.extend((1..=50).map(|number| entry(&format!("{}", number % 9), number)));
    broker.publish(&events).await;
    until("the others are handled", || async { ledger.len().await == 50 }).await;
    let counts = running.stop().await;
    assert_eq!((counts.handled, counts.released), (50, 1));
    assert!(
        broker.consumer_lag().await >= 1,
        "what is not done is not committed"
    );

    let again = Running::start(ledger.consumer(), broker.config());
    until("it is redelivered", || async { ledger.account("r").await == [0] }).await;
    until("all are done", || async { broker.consumer_lag().await == 0 }).await;
    assert_eq!(again.stop().await.handled, 1, "nothing was done twice");
    assert_eq!(ledger.len().await, 51);
    ledger.drop().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebalance_keeps_the_order_and_repeats_nothing() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    const EACH: i64 = 60;
    let accounts: Vec<String> = (0..20).map(|account| format!("{account}")).collect();
    let events: Vec<Event> = (0..EACH)
        .flat_map(|number| accounts.iter().map(move |account| entry(account, number)))
        .collect();
    let all = i64::try_from(events.len()).unwrap();
    broker.publish(&events).await;
    let first = Running::start(ledger.consumer(), broker.config());
    until("the first one is at it", || async { ledger.len().await > 50 }).await;
    let second = Running::start(ledger.consumer(), broker.config());
    let third = Running::start(ledger.consumer(), broker.config());
    until("some more is done", || async { ledger.len().await > 300 }).await;
    let mut handled = first.stop().await.handled;
    until("all are handled", || async { ledger.len().await >= all }).await;
    until("all are done", || async { broker.consumer_lag().await == 0 }).await;
    handled += second.stop().await.handled + third.stop().await.handled;
    assert_eq!(handled, u64::try_from(all).unwrap());
    for (account, numbers) in ledger.accounts().await {
        assert_eq!(numbers, (0..EACH).collect::<Vec<_>>(), "{account}");
    }
    ledger.drop().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_without_room_stays_in_its_group_and_continues() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let permits = Arc::new(Semaphore::new(0));
    let (consumer, inside) = HoldInHandler::consumer(&ledger, &permits);
    let counters = consumer.counters();
    let config = broker
        .config()
        .max_in_flight(5)
        .option("session.timeout.ms", "12000")
        .option("max.poll.interval.ms", "12500");
    let running = Running::start(consumer, config);
    let events: Vec<Event> = (0..200).map(|number| entry("a", number)).collect();
    broker.publish(&events).await;
    until("a handler is at work", || async {
        inside.load(Ordering::SeqCst) == 1
    })
    .await;
    // Longer than a member may be silent. The test is that nothing happens.
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(counters.snapshot().received, 5, "no more than there is room for");
    permits.add_permits(200);
    until("all are handled", || async { ledger.len().await == 200 }).await;
    until("all are done", || async { broker.consumer_lag().await == 0 }).await;
    let counts = running.stop().await;
    assert_eq!((counts.handled, counts.duplicates, counts.released), (200, 0, 0));
    assert_eq!(ledger.account("a").await, (0..200).collect::<Vec<_>>());
    ledger.drop().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_was_revoked_without_room_is_consumed_when_it_is_assigned_again() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    const EVENTS: i64 = 200;
    let events: Vec<Event> = (0..EVENTS)
        .map(|number| entry(&number.to_string(), number))
        .collect();
    broker.publish(&events).await;
    let permits = Arc::new(Semaphore::new(0));
    let start = || {
        let (consumer, _) = HoldInHandler::consumer(&ledger, &permits);
        let counters = consumer.counters();
        let config = broker
            .config()
            .max_in_flight(1)
            .hand_over(Duration::from_millis(10));
        (Running::start(consumer, config), counters)
    };
    let (first, counters) = start();
    until("the first one has all it has room for", || async {
        counters.snapshot().received == 1
    })
    .await;
    // Longer than it waits for room before it pauses its partitions.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (second, counters) = start();
    until("the second one has some partitions", || async {
        counters.snapshot().received == 1
    })
    .await;
    second.stop.cancel();
    permits.add_permits(usize::try_from(EVENTS).unwrap());
    second.stop().await;
    until("all are handled", || async { ledger.len().await == EVENTS }).await;
    until("all are done", || async { broker.consumer_lag().await == 0 }).await;
    first.stop().await;
    ledger.drop().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_is_dropped_leaves_its_group() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let dropped = Running::start(ledger.consumer(), broker.config());
    broker.publish(&[entry("a", 1)]).await;
    until("it has its partitions", || async { ledger.len().await == 1 }).await;
    drop(dropped);
    let running = Running::start(ledger.consumer(), broker.config());
    let events: Vec<Event> = (0..40).map(|account| entry(&account.to_string(), 2)).collect();
    broker.publish(&events).await;
    until("the next one has them all", || async { ledger.len().await == 41 }).await;
    running.stop().await;
    ledger.drop().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_another_producer_is_identified_by_its_offset() {
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let write_entry = ledger.write_entry();
    let consumer = Consumer::new("ledger", ledger.pool.clone())
        .inbox(ledger.inbox())
        .otherwise(Foreign(write_entry));
    let running = Running::start(consumer, broker.config());
    let producer: FutureProducer = broker.client().create().unwrap();
    for _ in 0..2 {
        let record = FutureRecord::to(&broker.topic)
            .key("a")
            .payload(r#"{"account": "a", "number": 1}"#);
        producer.send(record, TIMEOUT).await.unwrap();
    }
    until("both are handled", || async { ledger.len().await == 2 }).await;
    running.stop().await;
    ledger.drop().await;
    broker.clean_up().await;
}

/// Decodes the body itself.
struct Foreign(WriteEntry);

impl Handler<PgTransaction<'static>, bytes::Bytes> for Foreign {
    async fn handle(
        &self,
        transaction: &mut PgTransaction<'static>,
        event: Received<bytes::Bytes>,
    ) -> Result<(), HandlerError> {
        assert_eq!(event.event_type, None);
        let entry = serde_json::from_slice(&event.body)?;
        self.0.handle(transaction, event.with_body(entry)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_and_a_password_are_sent_to_the_brokers() {
    use pillarbox_sinks::kafka::{Mechanism, Sasl};
    let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
    let sasl = Sasl {
        mechanism: Mechanism::Plain,
        user: "pillarbox".to_owned(),
        password: "secret".into(),
    };
    let brokers = variable("PILLARBOX_TEST_KAFKA_SASL_BROKERS");
    let config = Config::new(brokers, broker.group.as_str())
        .topic(broker.topic.as_str())
        .sasl(sasl);
    let running = Running::start(ledger.consumer(), config);
    broker.publish(&[entry("a", 1)]).await;
    until("it is handled", || async { ledger.len().await == 1 }).await;
    running.stop().await;
    ledger.drop().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_record_becomes_a_dead_letter_too() {
    let ledger = Ledger::create().await;
    let broker = Broker::existing(&unique_name("entries"), &unique_name("ledger"));
    let large = [("max.message.bytes", "2000000")];
    let topic = Topic::create(&broker.brokers, &broker.topic, &large).await;
    let dead_letters = Topic::create(&broker.brokers, &broker.dead_topic(), &large).await;
    let mut client = broker.client();
    let producer: FutureProducer = client.set("message.max.bytes", "2000000").create().unwrap();
    let body = "x".repeat(1_500_000);
    let record: FutureRecord<'_, str, str> = FutureRecord::to(&broker.topic).payload(&body);
    producer.send(record, TIMEOUT).await.unwrap();
    let consumer = ledger.consumer().unknown(Unknown::Reject);
    let counters = consumer.counters();
    let running = Running::start(consumer, broker.config());
    until("it is a dead letter", || async { counters.snapshot().dead == 1 }).await;
    running.stop().await;
    let dead = dead_letters.read().await;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].payload, body.as_bytes());
    topic.delete().await;
    dead_letters.delete().await;
    ledger.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_matches_the_topic_for_dead_letters_does_not_consume_it() {
    let ledger = Ledger::create().await;
    let name = unique_name("ledger");
    let broker = Broker::existing(&format!("{name}.entries"), &name);
    broker.create(&broker.topic, PARTITIONS).await;
    broker.create(&broker.dead_topic(), 1).await;
    let dead_topic = Broker::existing(&broker.dead_topic(), &name);
    dead_topic.publish(&[entry("z", 1)]).await;
    let config = Config::new(broker.brokers.as_str(), name.as_str()).topic(format!("^{name}.*"));
    let running = Running::start(failing(&ledger), config);
    broker.publish(&[entry("z", 2), entry("a", 3)]).await;
    until("all are done", || async { broker.consumer_lag().await == 0 }).await;
    let counts = running.stop().await;
    assert_eq!((counts.received, counts.handled, counts.dead), (2, 1, 1));
    let reasons = broker.dead().await;
    assert_eq!(reasons.len(), 2, "the first one, and one more");
    ledger.drop().await;
    broker.clean_up().await;
}
