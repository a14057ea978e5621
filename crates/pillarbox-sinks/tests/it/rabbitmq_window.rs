//! Messages that wait together on the channels and connections of a real broker.

#![cfg(feature = "rabbitmq")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::future::{join, join_all};
use lapin::options::{BasicConsumeOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};
use pillarbox::{Delivery, Event, Outcome, Outcomes, Sink};
use pillarbox_sinks::rabbitmq::{Config, RabbitMq};
use pillarbox_testkit::Proxy;
use pillarbox_testkit::proxy::Faults;
use pillarbox_testkit::sink_suite::delivery;
use pillarbox_testkit::wait::until;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::environment::{fresh_name, variable};

/// A sink behind a proxy that cuts a connection on which the client sends `cut-here`, and a queue for the topic `orders`.
struct Bench {
    sink: RabbitMq,
    proxy: Proxy,
    arrived: Arc<Mutex<Vec<Uuid>>>,
    _connection: Connection,
    _consumer: JoinSet<()>,
}

const CUT_HERE: &str = "cut-here";

impl Bench {
    async fn start(connections: usize) -> Self {
        let url = variable("PILLARBOX_TEST_AMQP_URL");
        let uri: AMQPUri = url.parse().unwrap();
        let faults = Faults {
            cut_on: Some(CUT_HERE.into()),
            ..Faults::default()
        };
        let target = format!("{}:{}", uri.authority.host, uri.authority.port);
        let proxy = Proxy::start_with(target, faults).await;
        let exchange = fresh_name("window");
        let config = Config {
            connections,
            ..Config::new(proxy.url(&url), exchange.as_str())
        };
        let sink = RabbitMq::new("queue", &config).unwrap();
        assert_eq!(sink.check().await, Ok(()));
        let connection = Connection::connect(&url, ConnectionProperties::default())
            .await
            .unwrap();
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let mut consumer = JoinSet::new();
        consumer.spawn(consume(&connection, &exchange, arrived.clone()).await);
        Self {
            sink,
            proxy,
            arrived,
            _connection: connection,
            _consumer: consumer,
        }
    }

    async fn deliver(&self, deliveries: &[Delivery]) -> Vec<Outcome> {
        join_all(deliveries.iter().map(|delivery| self.sink.deliver(delivery))).await
    }
}

async fn consume(
    connection: &Connection,
    exchange: &str,
    arrived: Arc<Mutex<Vec<Uuid>>>,
) -> impl Future<Output = ()> + use<> {
    let channel = connection.create_channel().await.unwrap();
    let exclusive = QueueDeclareOptions {
        exclusive: true,
        ..QueueDeclareOptions::default()
    };
    let queue = channel
        .queue_declare("".into(), exclusive, FieldTable::default())
        .await
        .unwrap();
    let (name, bind) = (queue.name().clone(), QueueBindOptions::default());
    let bound = channel.queue_bind(
        name.clone(),
        exchange.into(),
        "orders".into(),
        bind,
        FieldTable::default(),
    );
    bound.await.unwrap();
    let no_ack = BasicConsumeOptions {
        no_ack: true,
        ..BasicConsumeOptions::default()
    };
    let mut messages = channel
        .basic_consume(name, "".into(), no_ack, FieldTable::default())
        .await
        .unwrap();
    async move {
        let _channel = channel;
        while let Some(message) = messages.next().await {
            let id = message
                .unwrap()
                .properties
                .message_id()
                .as_ref()
                .unwrap()
                .to_string();
            arrived.lock().unwrap().push(id.parse().unwrap());
        }
    }
}

fn of_lane(lane: u16, topic: &str) -> Delivery {
    Delivery {
        lane: Some(lane),
        ..delivery(Event::new("shop", topic))
    }
}

/// Of one lane, so on one channel. Each position is tried because the client attaches a return to any message that the same
/// acknowledgement confirms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_return_in_the_middle_of_a_window_fails_only_the_returned_message() {
    let bench = Bench::start(1).await;
    for unroutable in [0, 1, 99, 198, 199] {
        let topic = |number| if number == unroutable { "unbound" } else { "orders" };
        let deliveries: Vec<Delivery> = (0..200).map(|number| of_lane(1, topic(number))).collect();
        let outcomes = bench.deliver(&deliveries).await;
        for (number, outcome) in outcomes.into_iter().enumerate() {
            match number == unroutable {
                false => assert_eq!(outcome, Outcome::Delivered, "{number} of {unroutable}"),
                true => assert_eq!(outcome.name(), "retry", "{outcome:?}"),
            }
        }
    }
    // The window slides again.
    let deliveries: Vec<Delivery> = (0..600).map(|_| of_lane(1, "orders")).collect();
    let outcomes = bench.deliver(&deliveries).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Delivered));
}

/// Returns and deliveries mixed irregularly over more messages than all windows hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_returned_is_never_delivered_and_the_rest_arrives_once() {
    let bench = Bench::start(1).await;
    let topic = |number: u16| match u32::from(number) * 7919 % 97 {
        0..6 => "unbound",
        _ => "orders",
    };
    let lane = |number: u16| number.is_multiple_of(2).then_some(number);
    let deliveries: Vec<Delivery> = (0..4000)
        .map(|number| Delivery {
            lane: lane(number),
            ..delivery(Event::new("shop", topic(number)))
        })
        .collect();
    let outcomes = bench.deliver(&deliveries).await;
    let mut routed: Vec<Uuid> = Vec::new();
    for (delivery, outcome) in deliveries.iter().zip(outcomes) {
        if delivery.event.topic == "orders" {
            assert_eq!(outcome, Outcome::Delivered);
            routed.push(delivery.event.id);
        } else {
            assert_eq!(outcome.name(), "retry", "{outcome:?}");
        }
    }
    until("all have arrived", || async {
        bench.arrived.lock().unwrap().len() >= routed.len()
    })
    .await;
    let mut arrived = bench.arrived.lock().unwrap().clone();
    arrived.sort_unstable();
    routed.sort_unstable();
    assert_eq!(arrived, routed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_connections_keep_the_order_of_each_lane() {
    let bench = Bench::start(3).await;
    assert_eq!(bench.proxy.accepted(), 3);
    let deliveries: Vec<Delivery> = (0..3000).map(|number| of_lane(number % 24, "orders")).collect();
    let outcomes = bench.deliver(&deliveries).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Delivered));
    until("all have arrived", || async {
        bench.arrived.lock().unwrap().len() == deliveries.len()
    })
    .await;
    let lanes: BTreeMap<Uuid, Option<u16>> = deliveries.iter().map(|it| (it.event.id, it.lane)).collect();
    let arrived = bench.arrived.lock().unwrap().clone();
    for lane in 0..24 {
        let of_this =
            |ids: Vec<Uuid>| -> Vec<Uuid> { ids.into_iter().filter(|id| lanes[id] == Some(lane)).collect() };
        let sent = of_this(deliveries.iter().map(|it| it.event.id).collect());
        assert_eq!(of_this(arrived.clone()), sent, "lane {lane}");
    }
    assert_eq!(bench.proxy.accepted(), 3);
}

/// As the dispatcher sends them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_reports_every_event_and_keeps_the_order_of_each_lane() {
    let bench = Bench::start(3).await;
    let topic = |number: u16| match number % 10 {
        3 => "unbound".to_owned(),
        7 => "x".repeat(256), // too long for AMQP
        _ => "orders".to_owned(),
    };
    let lane = |number: u16| (number % 4 != 1).then_some(number % 24);
    let deliveries: Vec<Delivery> = (0..1000)
        .map(|number| Delivery {
            lane: lane(number),
            ..delivery(Event::new("shop", topic(number)))
        })
        .collect();
    let all: Vec<&Delivery> = deliveries.iter().collect();
    assert!(all.iter().all(|delivery| bench.sink.can_batch(delivery)));
    let outcomes = Outcomes::default();
    // The second call begins before the first has answered.
    let (first, second) = all.split_at(500);
    let later = Outcomes::default();
    join(
        bench.sink.deliver_all(first, &outcomes),
        bench.sink.deliver_all(second, &later),
    )
    .await;
    let later = later
        .take()
        .into_iter()
        .map(|(index, outcome)| (index + 500, outcome));
    let names: BTreeMap<usize, &'static str> = outcomes
        .take()
        .into_iter()
        .chain(later)
        .map(|(index, outcome)| (index, outcome.name()))
        .collect();
    assert_eq!(names.len(), deliveries.len());
    for (index, name) in names {
        let expected = match index % 10 {
            3 => "retry",
            7 => "reject",
            _ => "delivered",
        };
        assert_eq!(name, expected, "{index}");
    }
    until("all have arrived", || async {
        bench.arrived.lock().unwrap().len() == 800
    })
    .await;
    let arrived = bench.arrived.lock().unwrap().clone();
    let places: BTreeMap<Uuid, usize> = arrived
        .iter()
        .enumerate()
        .map(|(place, id)| (*id, place))
        .collect();
    let mut last: BTreeMap<u16, usize> = BTreeMap::new();
    for delivery in &deliveries {
        let (Some(lane), Some(place)) = (delivery.lane, places.get(&delivery.event.id)) else {
            continue;
        };
        let before = last.insert(lane, *place);
        assert!(before.is_none_or(|before| before < *place), "lane {lane}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_costs_the_others_nothing_and_is_opened_again() {
    let bench = Bench::start(3).await;
    // Four lanes share a connection.
    let mut deliveries = vec![of_lane(0, CUT_HERE)];
    deliveries.extend((0..300).map(|number| of_lane(if number % 2 == 0 { 4 } else { 8 }, "orders")));
    let outcomes = bench.deliver(&deliveries).await;
    assert_eq!(outcomes[0].name(), "connection_lost", "{:?}", outcomes[0]);
    assert!(outcomes[1..].iter().all(|outcome| *outcome == Outcome::Delivered));
    assert_eq!(bench.proxy.cut_by_content(), 1);
    let deliveries: Vec<Delivery> = (0..300).map(|number| of_lane(number % 12, "orders")).collect();
    let outcomes = bench.deliver(&deliveries).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Delivered));
    assert_eq!(bench.proxy.accepted(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_without_a_key_share_the_connections() {
    let bench = Bench::start(2).await;
    bench.proxy.cut();
    // Both must be opened again, so both were used.
    until("both connections are used", || async {
        let deliveries: Vec<Delivery> = (0..100).map(|_| delivery(Event::new("shop", "orders"))).collect();
        bench.deliver(&deliveries).await;
        bench.proxy.accepted() == 4
    })
    .await;
    let deliveries: Vec<Delivery> = (0..100).map(|_| delivery(Event::new("shop", "orders"))).collect();
    let outcomes = bench.deliver(&deliveries).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Delivered));
}
