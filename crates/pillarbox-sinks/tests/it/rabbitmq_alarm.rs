//! A real broker that blocks publishers, because it is short of memory.

#![cfg(feature = "rabbitmq")]

use std::sync::Arc;

use futures_util::future::join_all;
use pillarbox::{Delivery, Event, Outcome, Sink};
use pillarbox_sinks::rabbitmq::{Config, RabbitMq};
use pillarbox_testkit::sink_suite::delivery;
use pillarbox_testkit::wait::until;
use pillarbox_testkit::{CapturedLogs, Private};

use crate::environment::fresh_name;

/// A private broker, whose alarm the test sets and clears.
struct Broker {
    server: Private,
    /// The name of the destination.
    destination: String,
    sink: Arc<RabbitMq>,
}

impl Broker {
    async fn start() -> Self {
        let server = Private::start("rabbitmq");
        let destination = fresh_name("queue");
        let config = Config {
            mandatory: false,
            ..Config::new(server.url("PILLARBOX_TEST_AMQP_URL"), "events")
        };
        let sink = RabbitMq::new(&destination, &config).unwrap();
        assert_eq!(sink.check().await, Ok(()));
        Self {
            server,
            destination,
            sink: Arc::new(sink),
        }
    }

    fn eval(&self, code: &str) {
        self.server.ask(&["rabbitmqctl", "-q", "eval", code]);
    }

    fn set_alarm(&self) {
        self.eval("rabbit_alarm:set_alarm({{resource_limit, memory, node()}, []}).");
    }

    fn clear_alarm(&self) {
        self.eval("rabbit_alarm:clear_alarm({resource_limit, memory, node()}).");
    }

    /// Clears the alarm a second after it has blocked a connection.
    fn clear_alarm_soon(&self) {
        self.eval(
            "Is_blocked = fun(P) -> catch rabbit_reader:info(P, [state]) =:= [{state, blocked}] end, \
             Clear = fun Wait() -> \
               case lists:any(fun(P) -> Is_blocked(P) =:= true end, rabbit_networking:connections()) of \
                 true -> timer:sleep(1000), rabbit_alarm:clear_alarm({resource_limit, memory, node()}); \
                 false -> timer:sleep(10), Wait() \
               end \
             end, \
             spawn(Clear), ok.",
        );
    }

    /// Sends one event, which the broker answers by blocking the connection. Returns its attempt.
    async fn is_blocked(&self) -> tokio::task::JoinHandle<Outcome> {
        let sink = self.sink.clone();
        let first = tokio::spawn(async move { sink.deliver(&event()).await });
        until("the broker blocks the connection", || async {
            self.sink
                .check()
                .await
                .is_err_and(|error| error.contains("blocks publishers"))
        })
        .await;
        first
    }
}

fn event() -> Delivery {
    delivery(Event::new("shop", "orders"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_alarm_delays_messages_and_throttles_none() {
    let broker = Broker::start().await;
    broker.set_alarm();
    broker.clear_alarm_soon();
    let first = broker.is_blocked().await;
    let deliveries: Vec<Delivery> = (0..300).map(|_| event()).collect();
    let outcomes = join_all(deliveries.iter().map(|delivery| broker.sink.deliver(delivery))).await;
    for outcome in outcomes {
        assert_eq!(outcome, Outcome::Delivered);
    }
    assert_eq!(first.await.unwrap(), Outcome::Delivered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_alarm_throttles_what_was_not_sent_and_is_logged() {
    let logs = CapturedLogs::of_process();
    let broker = Broker::start().await;
    broker.set_alarm();
    let first = broker.is_blocked().await;
    // More than the windows hold.
    let deliveries: Vec<Delivery> = (0..2000).map(|_| event()).collect();
    let outcomes = join_all(deliveries.iter().map(|delivery| broker.sink.deliver(delivery))).await;
    for outcome in outcomes {
        let Outcome::Throttled { reason, .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(reason.contains("memory and disk alarms"), "{reason}");
    }
    broker.clear_alarm();
    assert_eq!(first.await.unwrap(), Outcome::Delivered);
    assert_eq!(broker.sink.deliver(&event()).await, Outcome::Delivered);
    until("the log says so", || async {
        let lines = logs.lines();
        let own: Vec<_> = lines
            .iter()
            .filter(|line| line.field("destination") == Some(&broker.destination))
            .collect();
        let has = |message: &str| own.iter().any(|line| line.message == message);
        let has_reason = || {
            own.iter()
                .any(|line| line.field("reason") == Some("low on memory"))
        };
        has("broker blocks publishers") && has_reason() && has("broker unblocked publishers")
    })
    .await;
}
