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
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};
use sqlx::{PgPool, PgTransaction};
use tokio::sync::Semaphore;

use crate::books::{Books, Entry, Keeper, entry};
use crate::environment::{fresh_name, until, variable};
use crate::running::{Held, Running};

const PARTITIONS: i32 = 4;
const PATIENCE: Duration = Duration::from_secs(30);

/// A topic with a few partitions, and a group that consumes it.
pub(crate) struct Broker {
    pub(crate) topic: String,
    pub(crate) group: String,
    brokers: String,
}

impl Broker {
    pub(crate) async fn fresh() -> Self {
        let broker = Self::existing(&fresh_name("entries"), &fresh_name("books"));
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

    /// The same for one that is killed: the group notices it soon. On a busy machine it may be taken for dead.
    pub(crate) fn mortal(&self) -> Config {
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
        let sink = SinkConfig::Kafka(config).build("books", &message).await.unwrap();
        // The first answer may take longer on a busy machine than a delivery waits for it.
        until("Kafka answers", || async { sink.check().await.is_ok() }).await;
        sink
    }

    /// The dead letters there are.
    pub(crate) async fn dead(&self) -> Vec<Record> {
        let dead = self.dead_topic();
        let topic = Topic::existing(&self.brokers, &dead);
        topic.read().await
    }

    /// How many records the group has not said to be done.
    pub(crate) async fn behind(&self) -> i64 {
        let client: BaseConsumer = self.client().set("group.id", &self.group).create().unwrap();
        let mut wanted = TopicPartitionList::new();
        for number in 0..PARTITIONS {
            wanted.add_partition(&self.topic, number);
        }
        let committed = client.committed_offsets(wanted, PATIENCE).unwrap();
        let mut behind = 0;
        for partition in committed.elements() {
            let (first, end) = client
                .fetch_watermarks(&self.topic, partition.partition(), PATIENCE)
                .unwrap();
            behind += match partition.offset() {
                Offset::Offset(done) => end - done,
                _ => end - first,
            };
        }
        behind
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
    let (books, broker) = (Books::open().await, Broker::fresh().await);
    let running = Running::start(books.consumer(), broker.config());
    for (number, format) in [Format::Plain, Format::CloudEvents, Format::CloudEventsStructured]
        .into_iter()
        .enumerate()
    {
        let sink = broker.sink(format).await;
        let event = entry("a", i64::try_from(number).unwrap());
        deliver(&*sink, &[event.clone(), event]).await;
    }
    until("all are handled", || async { books.len().await == 3 }).await;
    until("all are done", || async { broker.behind().await == 0 }).await;
    assert_eq!(books.account("a").await, [0, 1, 2]);
    let counts = running.stop().await;
    assert_eq!((counts.handled, counts.duplicates), (3, 3));

    let again = Running::start(books.consumer(), broker.config());
    broker.publish(&[entry("b", 1)]).await;
    until("the new one is handled", || async { books.len().await == 4 }).await;
    assert_eq!(again.stop().await.received, 1, "the rest was done");
    books.close().await;
    broker.clean_up().await;
}

/// Fails as it is told: account `z` is rejected, `r` is tried again.
struct Failing(Keeper);

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

fn failing(books: &Books) -> Consumer<PgPool> {
    Consumer::new("books", books.pool.clone())
        .inbox(books.inbox())
        .on("EntryMade", 1, Failing(books.keeper()))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_up_on_is_among_the_dead_letters_as_it_came() {
    let (books, broker) = (Books::open().await, Broker::fresh().await);
    let consumer = failing(&books).retry(RetryPolicy::steps(Vec::new()).max_attempts(3));
    let running = Running::start(consumer, broker.config());
    let event = entry("z", 1).header("x-own", "kept");
    broker.publish(&[event.clone(), entry("r", 1)]).await;
    until("all are done", || async { broker.behind().await == 0 }).await;
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
    assert_eq!(rejected.headers["pillarbox-dead-consumer"], "books");
    assert_eq!(rejected.headers["pillarbox-dead-attempts"], "1");
    assert_eq!(retried.headers["pillarbox-dead-attempts"], "3");
    books.close().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_not_done_comes_again_and_nobody_waits_for_it() {
    let (books, broker) = (Books::open().await, Broker::fresh().await);
    let consumer = failing(&books).retry(RetryPolicy::steps(vec![Duration::from_secs(600)]));
    let running = Running::start(consumer, broker.config());
    let mut events = vec![entry("r", 0)];
    events.extend((1..=50).map(|number| entry(&format!("{}", number % 9), number)));
    broker.publish(&events).await;
    until("the others are handled", || async { books.len().await == 50 }).await;
    let counts = running.stop().await;
    assert_eq!((counts.handled, counts.released), (50, 1));
    assert!(broker.behind().await >= 1, "what is not done is not committed");

    let again = Running::start(books.consumer(), broker.config());
    until("it came again", || async { books.account("r").await == [0] }).await;
    until("all are done", || async { broker.behind().await == 0 }).await;
    assert_eq!(again.stop().await.handled, 1, "and nothing was done twice");
    assert_eq!(books.len().await, 51);
    books.close().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_go_from_member_to_member_in_order_and_nothing_is_done_twice() {
    let (books, broker) = (Books::open().await, Broker::fresh().await);
    const EACH: i64 = 60;
    let accounts: Vec<String> = (0..20).map(|account| format!("{account}")).collect();
    let events: Vec<Event> = (0..EACH)
        .flat_map(|number| accounts.iter().map(move |account| entry(account, number)))
        .collect();
    let all = i64::try_from(events.len()).unwrap();
    broker.publish(&events).await;
    let first = Running::start(books.consumer(), broker.config());
    until("the first one is at it", || async { books.len().await > 50 }).await;
    let second = Running::start(books.consumer(), broker.config());
    let third = Running::start(books.consumer(), broker.config());
    until("some more is done", || async { books.len().await > 300 }).await;
    let mut handled = first.stop().await.handled;
    until("all are handled", || async { books.len().await >= all }).await;
    until("all are done", || async { broker.behind().await == 0 }).await;
    handled += second.stop().await.handled + third.stop().await.handled;
    assert_eq!(handled, u64::try_from(all).unwrap());
    for (account, numbers) in books.accounts().await {
        assert_eq!(numbers, (0..EACH).collect::<Vec<_>>(), "{account}");
    }
    books.close().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_without_room_stays_in_its_group_and_goes_on() {
    let (books, broker) = (Books::open().await, Broker::fresh().await);
    let gate = Arc::new(Semaphore::new(0));
    let (consumer, inside) = Held::consumer(&books, &gate);
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
    // Longer than a member may be silent: what is waited for is that nothing happens.
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(counters.snapshot().received, 5, "no more than there is room for");
    gate.add_permits(200);
    until("all are handled", || async { books.len().await == 200 }).await;
    until("all are done", || async { broker.behind().await == 0 }).await;
    let counts = running.stop().await;
    assert_eq!((counts.handled, counts.duplicates, counts.released), (200, 0, 0));
    assert_eq!(books.account("a").await, (0..200).collect::<Vec<_>>());
    books.close().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_went_while_there_was_no_room_is_consumed_when_it_comes_back() {
    let (books, broker) = (Books::open().await, Broker::fresh().await);
    const EVENTS: i64 = 200;
    let events: Vec<Event> = (0..EVENTS)
        .map(|number| entry(&number.to_string(), number))
        .collect();
    broker.publish(&events).await;
    let gate = Arc::new(Semaphore::new(0));
    let start = || {
        let (consumer, _) = Held::consumer(&books, &gate);
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
    gate.add_permits(usize::try_from(EVENTS).unwrap());
    second.stop().await;
    until("all are handled", || async { books.len().await == EVENTS }).await;
    until("all are done", || async { broker.behind().await == 0 }).await;
    first.stop().await;
    books.close().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_is_dropped_leaves_its_group() {
    let (books, broker) = (Books::open().await, Broker::fresh().await);
    let dropped = Running::start(books.consumer(), broker.config());
    broker.publish(&[entry("a", 1)]).await;
    until("it has its partitions", || async { books.len().await == 1 }).await;
    drop(dropped);
    let running = Running::start(books.consumer(), broker.config());
    let events: Vec<Event> = (0..40).map(|account| entry(&account.to_string(), 2)).collect();
    broker.publish(&events).await;
    until("the next one has them all", || async { books.len().await == 41 }).await;
    running.stop().await;
    books.close().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_somebody_else_is_known_by_its_place() {
    let (books, broker) = (Books::open().await, Broker::fresh().await);
    let keeper = books.keeper();
    let consumer = Consumer::new("books", books.pool.clone())
        .inbox(books.inbox())
        .otherwise(Foreign(keeper));
    let running = Running::start(consumer, broker.config());
    let producer: FutureProducer = broker.client().create().unwrap();
    for _ in 0..2 {
        let record = FutureRecord::to(&broker.topic)
            .key("a")
            .payload(r#"{"account": "a", "number": 1}"#);
        producer.send(record, PATIENCE).await.unwrap();
    }
    until("both are handled", || async { books.len().await == 2 }).await;
    running.stop().await;
    books.close().await;
    broker.clean_up().await;
}

/// Decodes what comes by itself.
struct Foreign(Keeper);

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
async fn a_user_and_a_password_are_shown_to_the_brokers() {
    use pillarbox_sinks::kafka::{Mechanism, Sasl};
    let (books, broker) = (Books::open().await, Broker::fresh().await);
    let sasl = Sasl {
        mechanism: Mechanism::Plain,
        user: "pillarbox".to_owned(),
        password: "secret".into(),
    };
    let brokers = variable("PILLARBOX_TEST_KAFKA_SASL_BROKERS");
    let config = Config::new(brokers, broker.group.as_str())
        .topic(broker.topic.as_str())
        .sasl(sasl);
    let running = Running::start(books.consumer(), config);
    broker.publish(&[entry("a", 1)]).await;
    until("it is handled", || async { books.len().await == 1 }).await;
    running.stop().await;
    books.close().await;
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_larger_than_most_is_buried_too() {
    let books = Books::open().await;
    let broker = Broker::existing(&fresh_name("entries"), &fresh_name("books"));
    let large = [("max.message.bytes", "2000000")];
    let topic = Topic::create(&broker.brokers, &broker.topic, &large).await;
    let graves = Topic::create(&broker.brokers, &broker.dead_topic(), &large).await;
    let mut client = broker.client();
    let producer: FutureProducer = client.set("message.max.bytes", "2000000").create().unwrap();
    let body = "x".repeat(1_500_000);
    let record: FutureRecord<'_, str, str> = FutureRecord::to(&broker.topic).payload(&body);
    producer.send(record, PATIENCE).await.unwrap();
    let consumer = books.consumer().unknown(Unknown::Reject);
    let counters = consumer.counters();
    let running = Running::start(consumer, broker.config());
    until("it is buried", || async { counters.snapshot().dead == 1 }).await;
    running.stop().await;
    let dead = graves.read().await;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].payload, body.as_bytes());
    topic.delete().await;
    graves.delete().await;
    books.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_matches_the_topic_for_dead_letters_does_not_consume_it() {
    let books = Books::open().await;
    let name = fresh_name("books");
    let broker = Broker::existing(&format!("{name}.entries"), &name);
    broker.create(&broker.topic, PARTITIONS).await;
    broker.create(&broker.dead_topic(), 1).await;
    let buried = Broker::existing(&broker.dead_topic(), &name);
    buried.publish(&[entry("z", 1)]).await;
    let config = Config::new(broker.brokers.as_str(), name.as_str()).topic(format!("^{name}.*"));
    let running = Running::start(failing(&books), config);
    broker.publish(&[entry("z", 2), entry("a", 3)]).await;
    until("all are done", || async { broker.behind().await == 0 }).await;
    let counts = running.stop().await;
    assert_eq!((counts.received, counts.handled, counts.dead), (2, 1, 1));
    let reasons = broker.dead().await;
    assert_eq!(reasons.len(), 2, "the one that was there, and one more");
    books.close().await;
    broker.clean_up().await;
}
