//! A queue of a real broker that withholds its confirmations, beside healthy ones.

#![cfg(feature = "rabbitmq")]

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lapin::options::{QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties};
use pillarbox::{Delivery, Event, Outcome, Outcomes, Sink};
use pillarbox_sinks::rabbitmq::{Config, RabbitMq};
use pillarbox_testkit::Private;
use pillarbox_testkit::sink_suite::delivery;
use pillarbox_testkit::wait::until;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, timeout};

/// As the dispatcher's timeout of an attempt.
const ATTEMPT: Duration = Duration::from_secs(3);

/// A private broker, whose queues the test may suspend.
struct Broker {
    server: Private,
    channel: Channel,
    _connection: Connection,
}

impl Broker {
    async fn start() -> Self {
        let server = Private::start("rabbitmq");
        let url = server.url("PILLARBOX_TEST_AMQP_URL");
        let connection = Connection::connect(&url, ConnectionProperties::default())
            .await
            .unwrap();
        let channel = connection.create_channel().await.unwrap();
        Self {
            server,
            channel,
            _connection: connection,
        }
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        let url = self.server.url("PILLARBOX_TEST_AMQP_URL");
        let sink = RabbitMq::new("queue", &Config::new(url, "events")).unwrap();
        assert_eq!(sink.check().await, Ok(()));
        Arc::new(sink)
    }

    /// A queue that gets the messages with its name as routing key.
    async fn queue(&self, name: &str, kind: &str) {
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        self.channel
            .queue_declare(name.into(), options, arguments)
            .await
            .unwrap();
        let bound = self.channel.queue_bind(
            name.into(),
            "events".into(),
            name.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        bound.await.unwrap();
    }

    /// `suspend` or `resume`.
    fn set(&self, queue: &str, what: &str) {
        let code = format!(
            "{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"{queue}\">>)), \
             ok = sys:{what}(amqqueue:get_pid(Q))."
        );
        self.server.ask(&["rabbitmqctl", "-q", "eval", &code]);
    }

    async fn len(&self, queue: &str) -> u32 {
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let declared = self
            .channel
            .queue_declare(queue.into(), options, FieldTable::default());
        declared.await.unwrap().message_count()
    }
}

/// Attempts that end as those of the dispatcher do: with an outcome, or without after their time.
struct Attempts(JoinSet<(&'static str, Option<Outcome>)>);

impl Attempts {
    fn start(sink: &Arc<dyn Sink>, topics: impl IntoIterator<Item = &'static str>) -> Self {
        let mut attempts = JoinSet::new();
        for (number, topic) in topics.into_iter().enumerate() {
            let sink = sink.clone();
            attempts.spawn(async move {
                let mut delivery = delivery(Event::new("shop", topic));
                // Every second event has a key, whose lane decides the channel.
                delivery.lane = (number % 2 == 0).then_some(u16::try_from(number / 2 % 4096).unwrap());
                (topic, timeout(ATTEMPT, sink.deliver(&delivery)).await.ok())
            });
        }
        Self(attempts)
    }

    /// The outcomes of the attempts for this topic, after all have ended.
    async fn end(self) -> Vec<(&'static str, Option<Outcome>)> {
        self.0.join_all().await
    }
}

fn of_one_lane(topic: &str) -> Delivery {
    Delivery {
        lane: Some(1),
        ..delivery(Event::new("shop", topic))
    }
}

fn topics(topic: &'static str, count: usize) -> impl Iterator<Item = &'static str> {
    std::iter::repeat_n(topic, count)
}

fn all(outcomes: &[(&'static str, Option<Outcome>)], topic: &str, expected: Option<&Outcome>) {
    for (_, outcome) in outcomes.iter().filter(|(name, _)| *name == topic) {
        assert_eq!(outcome.as_ref(), expected, "{topic}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_classic_queue_that_does_not_confirm_delays_no_other() {
    let broker = Broker::start().await;
    let sink = broker.sink().await;
    broker.queue("good", "classic").await;
    broker.queue("bad", "classic").await;
    broker.set("bad", "suspend");

    // The stuck messages first: they are in the windows that the others wait behind.
    let started = Instant::now();
    let bad = Attempts::start(&sink, topics("bad", 20));
    let good = Attempts::start(&sink, topics("good", 1000)).end().await;
    all(&good, "good", Some(&Outcome::Delivered));
    assert!(started.elapsed() < ATTEMPT, "took {:?}", started.elapsed());
    all(&bad.end().await, "bad", None);

    // In the same windows, with unroutable ones beside them, after the first attempts were dropped.
    for _ in 0..3 {
        let mixed = (0..900).map(|number| match number % 9 {
            0 => "bad",
            1 => "unbound",
            _ => "good",
        });
        let outcomes = Attempts::start(&sink, mixed).end().await;
        all(&outcomes, "good", Some(&Outcome::Delivered));
        all(&outcomes, "bad", None);
        for (_, outcome) in outcomes.iter().filter(|(topic, _)| *topic == "unbound") {
            assert!(
                matches!(outcome, Some(Outcome::Retry { .. }) | None),
                "{outcome:?}"
            );
        }
    }
    assert_eq!(sink.check().await, Ok(()));

    broker.set("bad", "resume");
    let bad = Attempts::start(&sink, topics("bad", 20)).end().await;
    all(&bad, "bad", Some(&Outcome::Delivered));
    until("every message is there, the dropped attempts too", || async {
        broker.len("bad").await >= 20 + 3 * 100 + 20
    })
    .await;
    assert_eq!(broker.len("good").await, 1000 + 3 * 700);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_message_delays_no_other_of_its_batch() {
    let broker = Broker::start().await;
    let sink = broker.sink().await;
    broker.queue("good", "classic").await;
    broker.queue("bad", "classic").await;
    broker.set("bad", "suspend");
    let deliveries: Vec<Delivery> = (0..1000)
        .map(|number| delivery(Event::new("shop", if number == 500 { "bad" } else { "good" })))
        .collect();
    let batch: Vec<&Delivery> = deliveries.iter().collect();
    let outcomes = Outcomes::default();
    let mut reported = Vec::new();
    let mut call = sink.deliver_all(&batch, &outcomes);
    let others = poll_fn(|context| {
        assert!(
            call.as_mut().poll(context).is_pending(),
            "the stuck one has no outcome"
        );
        reported.extend(outcomes.take());
        match reported.len() {
            999 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    });
    assert_eq!(timeout(ATTEMPT, others).await, Ok(()));
    assert!(
        reported
            .iter()
            .all(|(index, outcome)| *index != 500 && *outcome == Outcome::Delivered)
    );
    broker.set("bad", "resume");
    call.await;
    assert_eq!(outcomes.take(), [(500, Outcome::Delivered)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_confirmed_before_an_earlier_one_of_its_channel() {
    let broker = Broker::start().await;
    let sink = broker.sink().await;
    broker.queue("good", "classic").await;
    broker.queue("bad", "classic").await;
    broker.set("bad", "suspend");
    let (first, good) = (of_one_lane("bad"), of_one_lane("good"));
    let mut waiting = sink.deliver(&first);
    assert!((&mut waiting).now_or_never().is_none());
    for _ in 0..600 {
        assert_eq!(
            timeout(ATTEMPT, sink.deliver(&good)).await,
            Ok(Outcome::Delivered)
        );
    }
    assert!((&mut waiting).now_or_never().is_none());
    broker.set("bad", "resume");
    assert_eq!(waiting.await, Outcome::Delivered);
}

/// More messages than a window holds, and than the broker's credit for one channel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_full_of_stuck_messages_makes_room_for_others() {
    let broker = Broker::start().await;
    let sink = broker.sink().await;
    broker.queue("good", "classic").await;
    broker.queue("bad", "classic").await;
    broker.set("bad", "suspend");
    let (stuck, good) = (vec![of_one_lane("bad"); 700], of_one_lane("good"));
    let mut waiting = Vec::new();
    for delivery in &stuck {
        let mut attempt = sink.deliver(delivery);
        assert!((&mut attempt).now_or_never().is_none());
        waiting.push(attempt);
        yield_now().await; // tokio lets a task that never yields send no more than 128
    }
    assert_eq!(
        timeout(ATTEMPT, sink.deliver(&good)).await,
        Ok(Outcome::Delivered)
    );
    broker.set("bad", "resume");
    let outcomes = join_all(waiting).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Delivered));
    assert_eq!(broker.len("bad").await, 700);
}

/// Each turn fills a window with as many late messages as it may hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_late_windows_of_a_channel_delay_no_other_and_the_next_one_does() {
    let broker = Broker::start().await;
    let sink = broker.sink().await;
    broker.queue("good", "classic").await;
    broker.queue("bad", "classic").await;
    broker.set("bad", "suspend");
    let (stuck, good) = (vec![of_one_lane("bad"); 100 * 64], of_one_lane("good"));
    let mut waiting = Vec::new();
    let mut held_up = None;
    for (turn, late) in stuck.chunks(64).enumerate() {
        for delivery in late {
            let mut attempt = sink.deliver(delivery);
            assert!((&mut attempt).now_or_never().is_none());
            waiting.push(attempt);
        }
        // Late are those that were sent 250 ms before a message that is confirmed.
        let sent = Instant::now();
        let mut behind = Ok(Outcome::Delivered);
        while behind == Ok(Outcome::Delivered) && sent.elapsed() < Duration::from_millis(400) {
            behind = timeout(ATTEMPT, sink.deliver(&good)).await;
        }
        if behind.is_err() {
            held_up = Some(turn);
            break;
        }
        assert_eq!(behind, Ok(Outcome::Delivered), "behind {} windows", turn + 1);
    }
    assert!(
        held_up.is_some_and(|turn| turn >= 64),
        "held up in turn {held_up:?}"
    );
    broker.set("bad", "resume");
    let outcomes = join_all(waiting).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Delivered));
    assert_eq!(sink.deliver(&good).await, Outcome::Delivered);
}

/// As without a majority of its nodes. RabbitMQ registers a channel with a quorum queue before its first message there, and
/// does nothing else on the channel until that is done. So messages that share the channel are uncertain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_queue_that_does_not_confirm_costs_others_one_attempt_at_most() {
    let broker = Broker::start().await;
    let url = broker.server.url("PILLARBOX_TEST_AMQP_URL");
    let config = Config {
        connect_timeout: Duration::from_secs(1),
        ..Config::new(url, "events")
    };
    let sink: Arc<dyn Sink> = Arc::new(RabbitMq::new("queue", &config).unwrap());
    assert_eq!(sink.check().await, Ok(()));
    broker.queue("good", "classic").await;
    broker.queue("bad", "quorum").await;
    broker.set("bad", "suspend");
    let bad = Attempts::start(&sink, topics("bad", 20));
    let good = Attempts::start(&sink, topics("good", 1000)).end().await;
    drop(bad.end().await);
    let delivered = |(_, outcome): &(&str, Option<Outcome>)| *outcome == Some(Outcome::Delivered);
    let again = good.iter().filter(|it| !delivered(it)).count();
    // The dispatcher sends what is uncertain apart from the others.
    let again = Attempts::start(&sink, topics("good", again)).end().await;
    all(&again, "good", Some(&Outcome::Delivered));
    broker.set("bad", "resume");
    until("the queue confirms again", || async {
        let bad = Attempts::start(&sink, topics("bad", 20)).end().await;
        bad.iter().all(delivered)
    })
    .await;
}

/// More stuck messages than the broker's credit: it stops reading from the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_broker_does_not_read_is_replaced() {
    let broker = Broker::start().await;
    let url = broker.server.url("PILLARBOX_TEST_AMQP_URL");
    let config = Config {
        connect_timeout: Duration::from_secs(2),
        ..Config::new(url, "events")
    };
    let sink: Arc<dyn Sink> = Arc::new(RabbitMq::new("queue", &config).unwrap());
    assert_eq!(sink.check().await, Ok(()));
    broker.queue("good", "classic").await;
    broker.queue("bad", "quorum").await;
    broker.set("bad", "suspend");
    drop(Attempts::start(&sink, topics("bad", 2000)).end().await);
    until("healthy queues are served again", || async {
        let good = Attempts::start(&sink, topics("good", 100)).end().await;
        good.iter()
            .all(|(_, outcome)| *outcome == Some(Outcome::Delivered))
    })
    .await;
}
