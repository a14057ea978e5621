//! Sagas on real databases, in the transactions of every library: an order that is paid, packed and shipped.

mod asking;
mod backends;
mod going;
mod killed;
mod staying;

use std::time::Duration;

use backends::Backend;
use pillarbox::saga::message::{ACTION, ATTEMPT, STEP};
use pillarbox::saga::{
    Action, Answer, Attempt, Command, Definition, Handled, Message, Saga, SagaError, Started, Step,
};
use pillarbox::{Event, RetryPolicy};
use pillarbox_store::sagas::{SagaLine, SagaRecord};
use pillarbox_testkit::OPERATOR;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What the saga knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    number: u64,
    payment: Option<u64>,
}

#[derive(Deserialize)]
struct Paid {
    payment: u64,
}

fn order() -> Order {
    Order {
        number: 42,
        payment: None,
    }
}

fn command(
    topic: &'static str,
    event_type: &'static str,
) -> impl Fn(&Order) -> Event + Send + Sync + 'static {
    move |order| {
        Event::new("shop", topic)
            .event_type(event_type)
            .ordering_key("order-42")
            .dedupe_key(format!("order-{}/{event_type}", order.number))
            .json(&json!({"order": order.number, "payment": order.payment}))
            .expect("it has a JSON form")
    }
}

fn payment() -> Step<Order> {
    Step::new("payment", command("payments", "Charge"))
        .compensation(command("payments", "Refund"))
        .take(|order: &mut Order, paid: Paid| order.payment = Some(paid.payment))
}

fn stock() -> Step<Order> {
    Step::new("stock", command("stock", "Reserve"))
        .compensation(command("stock", "Release"))
        .retry(RetryPolicy::steps(vec![Duration::from_secs(10)]).max_attempts(2))
        .timeout(Duration::from_secs(60))
}

fn shipping() -> Step<Order> {
    Step::new("shipping", command("shipping", "Ship"))
}

fn defined() -> Definition<Order> {
    Saga::define("order").address("shop", "order-saga")
}

fn whole() -> Definition<Order> {
    defined().step(payment()).step(stock()).step(shipping())
}

fn attempt(step: &str, action: Action, number: u32) -> Attempt {
    Attempt {
        step: step.to_owned(),
        action,
        number,
    }
}

/// A saga in a backend of its own, and the services that it talks to.
struct Shop<'a, P> {
    backend: &'a P,
    saga: Saga<Order>,
}

impl<'a, P: Backend> Shop<'a, P> {
    fn new(backend: &'a P) -> Self {
        Self::with(backend, whole())
    }

    fn with(backend: &'a P, definition: Definition<Order>) -> Self {
        let saga = definition.build(&backend.outbox()).expect("sound");
        Self { backend, saga }
    }

    /// One whose order 42 was started.
    async fn open(backend: &'a P) -> Self {
        let shop = Self::new(backend);
        assert_eq!(shop.start().await, Started::New);
        shop
    }

    async fn start(&self) -> Started {
        let mut tx = self.backend.begin().await;
        let started = self.saga.start(&mut tx, 42, &order()).await.expect("starts");
        self.backend.commit(tx).await;
        started
    }

    async fn events(&self) -> Vec<Event> {
        let mut tx = self.backend.begin().await;
        let events = self.backend.outbox().enqueued(&mut tx).await.expect("it reads");
        self.backend.rollback(tx).await;
        events
    }

    /// The commands to the services, in order: type and attempt.
    async fn commands(&self) -> Vec<String> {
        let events = self.events().await.into_iter();
        let commands = events.filter(|event| Command::read(&Message::from(event)).is_some());
        let said = |event: Event| {
            format!(
                "{} {}",
                event.event_type.clone().unwrap_or_default(),
                event.headers[ATTEMPT]
            )
        };
        commands.map(said).collect()
    }

    /// The latest event of this type.
    async fn latest(&self, event_type: &str) -> Event {
        let is_it = |event: &Event| event.event_type.as_deref() == Some(event_type);
        let found = self.events().await.into_iter().rfind(is_it);
        found.unwrap_or_else(|| panic!("no {event_type} was enqueued"))
    }

    /// The reply that a service gives to the latest command of this type.
    async fn reply(&self, event_type: &str, answer: Answer) -> Event {
        let event = self.latest(event_type).await;
        let command = Command::read(&Message::from(&event)).expect("a command");
        let reply = Event::new("services", "replies").json(&json!({"payment": 7}));
        command.reply(answer, reply.expect("JSON"))
    }

    async fn try_handle(&self, message: &Event) -> Result<Handled, SagaError> {
        let mut tx = self.backend.begin().await;
        let handled = self.saga.handle(&mut tx, &Message::from(message)).await;
        match handled {
            Ok(_) => self.backend.commit(tx).await,
            Err(_) => self.backend.rollback(tx).await,
        }
        handled
    }

    async fn handle(&self, message: &Event) -> Handled {
        self.try_handle(message).await.expect("it is taken")
    }

    async fn answer(&self, event_type: &str, answer: Answer) -> Handled {
        let reply = self.reply(event_type, answer).await;
        self.handle(&reply).await
    }

    async fn record(&self) -> SagaRecord {
        let record = self.backend.operate().saga(&OPERATOR, "order", "42").await;
        record.expect("it reads").expect("it is there")
    }

    async fn log(&self) -> Vec<SagaLine> {
        self.backend
            .operate()
            .saga_log(&OPERATOR, "order", "42")
            .await
            .expect("it reads")
    }

    /// The log, a few words a line.
    async fn story(&self) -> Vec<String> {
        let words = |line: SagaLine| match (line.action.as_deref(), line.step) {
            (Some("compensation"), Some(step)) => format!("{} undo {step}", line.what),
            (_, Some(step)) => format!("{} {step}", line.what),
            (_, None) => line.what,
        };
        self.log().await.into_iter().map(words).collect()
    }
}

/// Is the event about this attempt?
fn assert_about(event: &Event, about: &Attempt) {
    assert_eq!(event.headers[STEP], about.step);
    assert_eq!(event.headers[ACTION], about.action.as_str());
    assert_eq!(event.headers[ATTEMPT], about.number.to_string());
}

#[test]
fn the_futures_of_a_saga_can_move_between_threads() {
    fn is_send<T: Send>(_: T) {}
    let saga = whole().build(&pillarbox::Outbox::default()).expect("sound");
    let shown = |saga: Saga<Order>, mut tx: sqlx::PgTransaction<'static>| {
        is_send(async move {
            let message = Message::new([("saga-name", "order")], b"{}");
            (
                saga.start(&mut tx, 1, &order()).await,
                saga.handle(&mut tx, &message).await,
            )
        });
    };
    drop((saga, shown));
}
