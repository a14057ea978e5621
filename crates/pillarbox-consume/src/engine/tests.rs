//! The engine with a broker and a database in memory, and with a clock that the test advances.

#![allow(clippy::disallowed_methods, reason = "tests spawn and wait as they like")]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use pillarbox::inbox::Inbox;
use pillarbox::versions::Upcasters;
use pillarbox::{Event, Outbox, RetryPolicy, StoreError, SystemClock};
use pillarbox_sinks::message::{Incoming, Protocol, read};
use pillarbox_store::stores::memory::{Memory, Transaction};
use pillarbox_testkit::Recorder;
use pillarbox_testkit::captured_logs::keep_enabled;
use serde::Deserialize;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

mod hung;

use super::*;
use crate::consumer::Consumer;
use crate::counters::Counters;
use crate::counters::Snapshot;
use crate::dead_letter::DeadLetter;
use crate::handler::Handler;
use crate::handler_error::HandlerError;
use crate::received::Received;
use crate::settings::{Newer, Unknown};
use crate::subscription::Receipt;
use crate::subscription::sealed::Listen;

/// What the broker in memory has seen.
#[derive(Default)]
struct Seen {
    acknowledged: Mutex<Vec<usize>>,
    dead: Mutex<Vec<(usize, DeadLetter)>>,
    /// How many more dead letters are rejected.
    refusals: AtomicUsize,
    /// Are all messages lost to another process?
    lost: AtomicBool,
    /// Notified whenever one of the above changes.
    changed: tokio::sync::Notify,
}

/// A broker in memory: delivers what is sent to it.
struct Broker {
    seen: Arc<Seen>,
    messages: tokio::sync::mpsc::UnboundedReceiver<(usize, Event)>,
}

struct TestReceipt {
    number: usize,
    seen: Arc<Seen>,
}

#[async_trait]
impl Listen for Broker {
    async fn listen(mut self: Box<Self>, _: &str, sender: MessageSender, end: CancellationToken) {
        sender.connected(true);
        loop {
            tokio::select! {
                () = end.cancelled() => return,
                Some((number, event)) = self.messages.recv() => sender.send(message(number, &event, &self.seen)),
            }
        }
    }
}

fn message(number: usize, event: &Event, seen: &Arc<Seen>) -> Message {
    let mut headers = vec![
        ("pillarbox-id".to_owned(), event.id.to_string()),
        ("pillarbox-namespace".to_owned(), event.namespace.clone()),
        ("pillarbox-topic".to_owned(), event.topic.clone()),
        ("pillarbox-version".to_owned(), event.event_version.to_string()),
    ];
    let optional = [
        ("pillarbox-type", &event.event_type),
        ("pillarbox-key", &event.ordering_key),
        ("pillarbox-dedupe-key", &event.dedupe_key),
    ];
    for (name, value) in optional {
        headers.extend(value.clone().map(|value| (name.to_owned(), value)));
    }
    headers.extend(event.headers.clone());
    let incoming = Incoming {
        headers,
        content_encoding: event.content_encoding.clone(),
        content_type: None,
        body: event.payload.as_bytes().clone(),
    };
    let event = read(Protocol::Kafka, incoming).unwrap();
    let event = Received::from_read(event, None, "").unwrap();
    Message {
        ordering_key: OrderingKey::of(&event),
        event: Ok(event),
        receipt: Box::new(TestReceipt {
            number,
            seen: seen.clone(),
        }),
    }
}

#[async_trait]
impl Receipt for TestReceipt {
    fn begin(&self) -> bool {
        !self.seen.lost.load(Ordering::SeqCst)
    }

    async fn lost(&self) {
        loop {
            let changed = self.seen.changed.notified();
            if !self.begin() {
                return;
            }
            changed.await;
        }
    }

    async fn acknowledge(&self) {
        self.seen.acknowledged.lock().unwrap().push(self.number);
        self.seen.changed.notify_waiters();
    }

    async fn publish_dead_letter(&self, letter: &DeadLetter) -> Result<(), String> {
        let refuse = |left: usize| left.checked_sub(1);
        let refused = self
            .seen
            .refusals
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuse);
        if refused.is_ok() {
            return Err("no queue".to_owned());
        }
        self.seen.dead.lock().unwrap().push((self.number, letter.clone()));
        self.seen.changed.notify_waiters();
        Ok(())
    }
}

/// A running consumer and its broker.
struct Running {
    seen: Arc<Seen>,
    sender: UnboundedSender<(usize, Event)>,
    sent: usize,
    stop: CancellationToken,
    counters: Arc<Counters>,
    consumer: JoinSet<Snapshot>,
}

impl Running {
    fn start<D: Database>(consumer: Consumer<D>) -> Self {
        keep_enabled();
        let (sender, messages) = mpsc::unbounded_channel();
        let seen = Arc::new(Seen::default());
        let broker = Broker {
            seen: seen.clone(),
            messages,
        };
        let stop = CancellationToken::new();
        let counters = consumer.counters();
        let mut running = JoinSet::new();
        let shutdown = stop.clone();
        running.spawn(async move { consumer.run(broker, shutdown).await.unwrap() });
        Self {
            seen,
            sender,
            sent: 0,
            stop,
            counters,
            consumer: running,
        }
    }

    /// Delivers an event; returns the number of the delivery.
    fn deliver(&mut self, event: &Event) -> usize {
        self.sent += 1;
        self.sender.send((self.sent, event.clone())).unwrap();
        self.sent
    }

    fn acknowledged(&self) -> Vec<usize> {
        self.seen.acknowledged.lock().unwrap().clone()
    }

    fn dead(&self) -> Vec<(usize, DeadLetter)> {
        self.seen.dead.lock().unwrap().clone()
    }

    /// Waits until this many deliveries are acknowledged.
    async fn until_acknowledged(&self, deliveries: usize) {
        loop {
            let changed = self.seen.changed.notified();
            if self.acknowledged().len() >= deliveries {
                return;
            }
            changed.await;
        }
    }

    async fn stop(mut self) -> Snapshot {
        self.stop.cancel();
        self.consumer.join_next().await.unwrap().unwrap()
    }
}

#[derive(Debug, Deserialize, Clone)]
struct Order {
    order: u32,
}

fn order(number: u32) -> Event {
    Event::new("shop", "orders")
        .event_type("OrderCreated")
        .json(&serde_json::json!({ "order": number }))
        .unwrap()
}

/// The calls of a handler: order and attempt.
type Calls = Arc<Mutex<Vec<(u32, u32)>>>;

/// A handler that runs a script and records its calls.
struct Scripted<F> {
    seen: Calls,
    script: F,
}

impl<F, Fut> Handler<Transaction, Order> for Scripted<F>
where
    F: Fn(u32, u32) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), HandlerError>> + Send,
{
    async fn handle(&self, _: &mut Transaction, event: Received<Order>) -> Result<(), HandlerError> {
        self.seen.lock().unwrap().push((event.body.order, event.attempt));
        (self.script)(event.body.order, event.attempt).await
    }
}

/// A consumer with a scripted handler, and the handler's calls.
fn scripted<F, Fut>(script: F) -> (Consumer<Memory>, Calls)
where
    F: Fn(u32, u32) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    let seen = Calls::default();
    let handler = Scripted {
        seen: seen.clone(),
        script,
    };
    let consumer = Consumer::new("letters", Memory::default())
        .on("OrderCreated", 1, handler)
        .retry(RetryPolicy::steps(vec![Duration::from_secs(60)]).max_attempts(3));
    (consumer, seen)
}

async fn fine(_: u32, _: u32) -> Result<(), HandlerError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_second_delivery_has_no_effect_and_is_acknowledged() {
    let (consumer, seen) = scripted(fine);
    let mut running = Running::start(consumer);
    let event = order(1);
    running.deliver(&event);
    running.until_acknowledged(1).await;
    running.deliver(&event);
    running.until_acknowledged(2).await;
    assert_eq!(*seen.lock().unwrap(), [(1, 1)]);
    let counts = running.stop().await;
    assert_eq!((counts.received, counts.handled, counts.duplicates), (2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_enqueues_commits_with_the_mark_and_belongs_to_the_trace() {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    async fn enqueue(transaction: &mut Transaction, event: Received<Order>) -> Result<(), HandlerError> {
        let next = Event::new("letters", "sent").json(&event.body.order)?;
        Outbox::default().enqueue(transaction, &next).await?;
        if event.attempt == 1 {
            return Err(HandlerError::retry("once more"));
        }
        Ok(())
    }
    let database = Memory::default();
    let consumer = Consumer::new("letters", database.clone()).on("OrderCreated", 1, enqueue);
    let mut running = Running::start(consumer);
    running.deliver(&order(7).header("traceparent", PARENT));
    running.until_acknowledged(1).await;
    running.stop().await;
    let events = Outbox::default().enqueued(&mut database.begin()).await.unwrap();
    assert_eq!(events.len(), 1, "what the first attempt enqueued was rolled back");
    assert_eq!(events[0].headers["traceparent"], PARENT);
}

#[tokio::test(start_paused = true)]
async fn a_failing_event_delays_its_key_and_no_other() {
    let (consumer, seen) = scripted(|order, attempt| async move {
        match (order, attempt) {
            (1, 1) => Err(HandlerError::retry("not yet")),
            _ => Ok(()),
        }
    });
    let mut running = Running::start(consumer.concurrency(1));
    let started = Instant::now();
    running.deliver(&order(1).ordering_key("a"));
    running.deliver(&order(2).ordering_key("a"));
    running.deliver(&order(3).ordering_key("b"));
    running.deliver(&order(4));
    running.until_acknowledged(2).await;
    assert!(started.elapsed() < Duration::from_secs(1), "others do not wait");
    running.until_acknowledged(4).await;
    assert!(started.elapsed() >= Duration::from_secs(60), "the key did");
    assert_eq!(running.acknowledged()[2..], [1, 2]);
    let asked = seen.lock().unwrap().clone();
    assert_eq!(asked[asked.len() - 2..], [(1, 2), (2, 1)]);
    assert_eq!(running.stop().await.retried, 1);
}

#[tokio::test(start_paused = true)]
async fn equal_keys_of_two_namespaces_do_not_wait_for_each_other() {
    let (consumer, _) = scripted(|order, _| async move {
        if order == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let mut running = Running::start(consumer.grace(Duration::from_secs(1)));
    running.deliver(&order(1).ordering_key("a"));
    let mut other = order(2).ordering_key("a");
    other.namespace = "another".to_owned();
    running.deliver(&other);
    running.until_acknowledged(1).await;
    assert_eq!(running.acknowledged(), [2]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn exhausted_attempts_end_in_a_dead_letter_and_the_key_goes_on() {
    let (consumer, seen) = scripted(|order, _| async move {
        match order {
            1 => Err(HandlerError::retry("no stock\0")),
            _ => Ok(()),
        }
    });
    let mut running = Running::start(consumer);
    running.deliver(&order(1).ordering_key("a"));
    running.deliver(&order(2).ordering_key("a"));
    running.until_acknowledged(2).await;
    assert_eq!(*seen.lock().unwrap(), [(1, 1), (1, 2), (1, 3), (2, 1)]);
    let [(1, letter)] = &running.dead()[..] else {
        panic!("{:?}", running.dead())
    };
    assert_eq!((letter.attempts, letter.consumer.as_str()), (3, "letters"));
    assert_eq!(letter.headers()[0].1, "no stock\u{FFFD}");
    let counts = running.stop().await;
    assert_eq!((counts.dead, counts.retried, counts.handled), (1, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_event_is_dead_at_once_and_can_be_handled_when_sent_again() {
    let refused = Arc::new(AtomicBool::new(true));
    let refuse = refused.clone();
    let (consumer, _) = scripted(move |_, _| {
        let refuse = refuse.load(Ordering::SeqCst);
        async move {
            match refuse {
                true => Err(HandlerError::reject("no such order")),
                false => Ok(()),
            }
        }
    });
    let mut running = Running::start(consumer);
    let event = order(1);
    running.deliver(&event);
    running.until_acknowledged(1).await;
    assert_eq!(running.dead().len(), 1);
    refused.store(false, Ordering::SeqCst);
    running.deliver(&event);
    running.until_acknowledged(2).await;
    assert_eq!(running.stop().await.handled, 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_is_acknowledged_only_after_its_dead_letter_is_published() {
    let (consumer, _) = scripted(|_, _| async { Err(HandlerError::reject("no")) });
    let mut running = Running::start(consumer);
    running.seen.refusals.store(3, Ordering::SeqCst);
    running.deliver(&order(1));
    running.until_acknowledged(1).await;
    assert_eq!(running.dead().len(), 1);
    assert_eq!(running.seen.refusals.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_handler_is_a_failed_attempt_with_its_message() {
    let (consumer, seen) = scripted(|order, attempt| async move {
        assert!(attempt > 1 && order != 2, "order {order}: no paper");
        Ok(())
    });
    let mut running = Running::start(consumer);
    running.deliver(&order(1));
    running.deliver(&order(2));
    running.until_acknowledged(2).await;
    assert!(seen.lock().unwrap().contains(&(1, 2)));
    let dead = running.dead();
    assert_eq!(dead[0].1.reason, "handler panicked: order 2: no paper");
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_database_uses_no_attempts() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let (consumer, asked) = scripted(move |_, _| {
        let call = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match call {
                0..20 => Err(pillarbox::StoreError::Unavailable("no route".to_owned()).into()),
                _ => Ok(()),
            }
        }
    });
    let mut running = Running::start(consumer);
    running.deliver(&order(1));
    running.until_acknowledged(1).await;
    assert_eq!(asked.lock().unwrap().len(), 21);
    assert!(asked.lock().unwrap().iter().all(|(_, attempt)| *attempt == 1));
    let counts = running.stop().await;
    assert_eq!((counts.handled, counts.retried, counts.dead), (1, 0, 0));
}

/// Applications read about their metrics there.
const PAGE: &str = include_str!("../../../../docs/operations/metrics.md");

#[tokio::test(start_paused = true)]
async fn a_recorder_of_the_application_sees_what_became_of_each_message() {
    let recorder = Recorder::default();
    let is_down = Arc::new(AtomicBool::new(true));
    let (consumer, _) = metrics::with_local_recorder(&recorder, || {
        scripted(move |order, attempt| {
            let is_first = order == 4 && is_down.swap(false, Ordering::SeqCst);
            async move {
                match (order, attempt) {
                    (2, 1) => Err(HandlerError::retry("once more")),
                    (3, _) => Err(HandlerError::reject("no such order")),
                    _ if is_first => Err(StoreError::Unavailable("no route".to_owned()).into()),
                    _ => Ok(()),
                }
            }
        })
    });
    let up = "pillarbox_consumer_up{consumer=\"letters\"}";
    assert_eq!(recorder.values()[up], 0.0, "not connected yet");
    let mut running = Running::start(consumer);
    let first = order(1);
    for event in [&first, &first, &order(2), &order(3), &order(4)] {
        running.deliver(event);
    }
    running.deliver(&Event::new("shop", "orders").event_type("OrderLost"));
    running.until_acknowledged(6).await;
    let values = recorder.values();
    for (outcome, count) in [
        ("handled", 3.0),
        ("duplicate", 1.0),
        ("retry", 1.0),
        ("dead_letter", 1.0),
        ("ignored", 1.0),
        ("held", 0.0),
        ("unreadable", 0.0),
    ] {
        let name = format!("pillarbox_consumer_messages_total{{consumer=\"letters\",outcome=\"{outcome}\"}}");
        assert_eq!(values[&name], count, "{values:#?}");
    }
    assert_eq!(
        values[up], 1.0,
        "the broker is connected and the database answers"
    );
    assert_eq!(
        values["pillarbox_consumer_handle_seconds{consumer=\"letters\"}"],
        6.0
    );
    for name in values.keys().filter_map(|name| name.split('{').next()) {
        assert!(
            PAGE.contains(&format!("| `{name}` | ")),
            "{name} is not in docs/operations/metrics.md"
        );
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_type_without_a_handler_is_ignored_or_rejected_as_configured() {
    for (unknown, ignored, dead) in [(Unknown::Ignore, 1, 0), (Unknown::Reject, 0, 1)] {
        let (consumer, _) = scripted(fine);
        let mut running = Running::start(consumer.unknown(unknown));
        running.deliver(&Event::new("shop", "orders").event_type("OrderLost"));
        running.until_acknowledged(1).await;
        let counts = running.stop().await;
        assert_eq!((counts.ignored, counts.dead), (ignored, dead));
    }
}

#[tokio::test(start_paused = true)]
async fn other_types_go_to_the_otherwise_handler_unchanged() {
    async fn other(transaction: &mut Transaction, event: Received<Bytes>) -> Result<(), HandlerError> {
        let next = Event::new("letters", "seen").bytes(event.body, "text/plain");
        Outbox::default().enqueue(transaction, &next).await?;
        Ok(())
    }
    let database = Memory::default();
    let consumer = Consumer::new("letters", database.clone()).otherwise(other);
    let mut running = Running::start(consumer);
    running.deliver(&Event::new("shop", "orders").bytes(&b"no json"[..], "text/plain"));
    running.until_acknowledged(1).await;
    running.stop().await;
    let events = Outbox::default().enqueued(&mut database.begin()).await.unwrap();
    assert_eq!(&events[0].payload.as_bytes()[..], b"no json");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_decoded_is_dead_with_the_reason() {
    let (consumer, seen) = scripted(fine);
    let mut running = Running::start(consumer);
    let event = order(1).json(&serde_json::json!({"order": "one"})).unwrap();
    running.deliver(&event);
    running.until_acknowledged(1).await;
    assert!(seen.lock().unwrap().is_empty());
    let reason = running.dead()[0].1.reason.clone();
    assert!(
        reason.contains("body cannot be decoded: invalid type"),
        "{reason}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_newer_version_is_dead_or_waits_as_configured() {
    let newer = order(1).version(2);
    let (consumer, _) = scripted(fine);
    let mut running = Running::start(consumer);
    running.deliver(&newer);
    running.until_acknowledged(1).await;
    assert_eq!(running.dead().len(), 1);

    let (consumer, seen) = scripted(fine);
    let mut running = Running::start(consumer.newer(Newer::Hold));
    running.deliver(&newer.clone().ordering_key("a"));
    running.deliver(&order(2).ordering_key("a"));
    running.deliver(&order(3));
    running.until_acknowledged(1).await;
    tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    assert_eq!((running.acknowledged(), running.dead().len()), (vec![3], 0));
    assert_eq!(*seen.lock().unwrap(), [(3, 1)]);
    assert_eq!(running.stop().await.released, 2);
}

#[tokio::test(start_paused = true)]
async fn events_of_newer_versions_wait_up_to_a_number_and_stop_no_other() {
    let (consumer, seen) = scripted(fine);
    let consumer = consumer.newer(Newer::Hold).hold_at_most(2);
    let mut running = Running::start(consumer);
    for number in 1..=3 {
        running.deliver(&order(number).version(i32::MAX).ordering_key(number.to_string()));
    }
    running.deliver(&order(4).ordering_key("3"));
    running.until_acknowledged(2).await;
    tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    let dead = running.dead();
    assert_eq!(dead.len(), 1, "one had no place");
    assert!(
        dead[0]
            .1
            .reason
            .contains("2 events wait for an upgraded consumer"),
        "{dead:?}"
    );
    assert_eq!(*seen.lock().unwrap(), [(4, 1)]);
    assert_eq!(running.stop().await.released, 2);
}

#[tokio::test(start_paused = true)]
async fn a_reason_holds_nothing_of_the_body() {
    let (consumer, _) = scripted(fine);
    let mut running = Running::start(consumer);
    running.deliver(&order(0).json(&serde_json::json!({"order": "4111 1111"})).unwrap());
    running.until_acknowledged(1).await;
    let reason = &running.dead()[0].1.reason;
    assert_eq!(
        reason,
        "body cannot be decoded: invalid type, expected u32 at line 1 column 20"
    );
}

/// Version 2 renames `number` to `order`.
fn renamed() -> Upcasters {
    Upcasters::new().add("OrderCreated", 1, |mut body| {
        assert!(body.get("poison").is_none(), "no poison");
        body["order"] = body.get_mut("number").ok_or("it has no `number`")?.take();
        Ok(body)
    })
}

#[tokio::test(start_paused = true)]
async fn an_older_version_is_upcast_to_the_declared_one() {
    let seen = Calls::default();
    let handler = Scripted {
        seen: seen.clone(),
        script: fine,
    };
    let consumer = Consumer::new("letters", Memory::default())
        .upcasters(renamed())
        .retry(RetryPolicy::steps(Vec::new()).max_attempts(2))
        .on("OrderCreated", 2, handler);
    let mut running = Running::start(consumer);
    let old = |body: serde_json::Value| order(0).json(&body).unwrap();
    running.deliver(&old(serde_json::json!({"number": 7})).ordering_key("a"));
    running.deliver(&order(8).version(2).ordering_key("a"));
    running.until_acknowledged(2).await;
    assert_eq!(*seen.lock().unwrap(), [(7, 1), (8, 1)]);
    running.deliver(&old(serde_json::json!({})).ordering_key("a"));
    running.deliver(&old(serde_json::json!({"poison": true})).ordering_key("a"));
    running.deliver(&order(9).version(0).ordering_key("a"));
    running.until_acknowledged(5).await;
    let reasons: Vec<String> = running
        .dead()
        .into_iter()
        .map(|(_, letter)| letter.reason)
        .collect();
    assert!(reasons[0].contains("it has no `number`"), "{reasons:?}");
    assert!(reasons[1].contains("panicked: no poison"), "{reasons:?}");
    assert!(
        reasons[2].contains("no upcaster leads from version 0"),
        "{reasons:?}"
    );
}

#[cfg(feature = "zstd")]
#[tokio::test(start_paused = true)]
async fn a_compressed_body_is_decompressed_for_the_handler() {
    let event = order(5).json(&serde_json::json!({"order": 5, "note": "x".repeat(1000)}));
    let compressed = pillarbox::compress::compress(&event.unwrap(), 0).unwrap();
    let (consumer, seen) = scripted(fine);
    let mut running = Running::start(consumer);
    running.deliver(&compressed);
    running.until_acknowledged(1).await;
    assert_eq!(*seen.lock().unwrap(), [(5, 1)]);
    let mut broken = order(6);
    broken.content_encoding = Some("zstd".to_owned());
    running.deliver(&broken);
    running.until_acknowledged(2).await;
    assert!(running.dead()[0].1.reason.contains("not valid zstd"));
}

/// How many handlers run, and how many did at most.
#[cfg(feature = "zstd")]
#[derive(Clone, Default)]
struct Crowd(Arc<Mutex<(usize, usize)>>);

#[cfg(feature = "zstd")]
impl Handler<Transaction, bytes::Bytes> for Crowd {
    async fn handle(&self, _: &mut Transaction, _: Received<bytes::Bytes>) -> Result<(), HandlerError> {
        {
            let mut crowd = self.0.lock().unwrap();
            crowd.0 += 1;
            crowd.1 = crowd.1.max(crowd.0);
        }
        tokio::time::sleep(Duration::from_secs(1)).await; // the clock goes on when all wait
        self.0.lock().unwrap().0 -= 1;
        Ok(())
    }
}

#[cfg(feature = "zstd")]
#[tokio::test(start_paused = true)]
async fn decompressed_bodies_are_bounded_in_total() {
    const MIB: usize = 1024 * 1024;
    let compressed = |size: usize| {
        let event = Event::new("shop", "orders").bytes(vec![b'x'; size], "text/plain");
        pillarbox::compress::compress(&event, 0).unwrap()
    };
    let crowd = Crowd::default();
    let consumer = Consumer::new("letters", Memory::default()).otherwise(crowd.clone());
    let mut running = Running::start(consumer.max_decompressed(40 * MIB));
    for _ in 0..3 {
        running.deliver(&compressed(40 * MIB));
    }
    running.until_acknowledged(3).await;
    assert_eq!(crowd.0.lock().unwrap().1, 1, "two of them are more than 64 MiB");
    running.deliver(&compressed(40 * MIB + 1));
    running.until_acknowledged(4).await;
    assert!(running.dead()[0].1.reason.contains("larger than 41943040 bytes"));
}

#[tokio::test(start_paused = true)]
async fn a_dedupe_key_detects_a_duplicate_event() {
    let (consumer, seen) = scripted(fine);
    let mut running = Running::start(consumer.by_dedupe_key());
    for event in [
        order(1).dedupe_key("order-1"),
        order(1).dedupe_key("order-1"),
        order(2),
        order(2),
    ] {
        running.deliver(&event);
    }
    running.until_acknowledged(4).await;
    assert_eq!(seen.lock().unwrap().len(), 3);
    assert_eq!(running.stop().await.duplicates, 1);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_running_handlers_and_starts_none() {
    let (consumer, seen) = scripted(|_, _| async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(())
    });
    let mut running = Running::start(consumer.concurrency(2));
    for (number, key) in [(1, "a"), (2, "a"), (3, "b"), (4, "c")] {
        running.deliver(&order(number).ordering_key(key));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let seen_by_broker = running.seen.clone();
    let counts = running.stop().await;
    assert_eq!(*seen.lock().unwrap(), [(1, 1), (3, 1)]);
    assert_eq!(*seen_by_broker.acknowledged.lock().unwrap(), [1, 3]);
    assert_eq!((counts.handled, counts.released), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_no_longer_than_the_grace_period() {
    let (consumer, _) = scripted(|_, _| std::future::pending());
    let mut running = Running::start(consumer.grace(Duration::from_secs(7)));
    running.deliver(&order(1));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let seen = running.seen.clone();
    let started = Instant::now();
    running.stop().await;
    assert_eq!(started.elapsed().as_secs(), 7);
    assert!(seen.acknowledged.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_lost_to_another_process_is_not_handled() {
    let (consumer, seen) = scripted(|_, attempt| async move {
        match attempt {
            1 => Err(HandlerError::retry("not yet")),
            _ => Ok(()),
        }
    });
    let mut running = Running::start(consumer);
    running.deliver(&order(1).ordering_key("a"));
    running.deliver(&order(2).ordering_key("a"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.seen.lost.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(*seen.lock().unwrap(), [(1, 1)]);
    assert_eq!(running.stop().await.released, 2);
}

#[tokio::test(start_paused = true)]
async fn concurrency_is_bounded_and_keys_keep_their_order() {
    let at_work = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, high) = (at_work.clone(), most.clone());
    let (consumer, seen) = scripted(move |order, _| {
        let (now, high) = (now.clone(), high.clone());
        async move {
            high.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(u64::from(order * 7 % 13))).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let mut running = Running::start(consumer.concurrency(4));
    for number in 0..200 {
        running.deliver(&order(number).ordering_key(format!("key-{}", number % 10)));
    }
    running.until_acknowledged(200).await;
    assert_eq!(most.load(Ordering::SeqCst), 4);
    let mut by_key: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (number, _) in seen.lock().unwrap().iter() {
        by_key.entry(number % 10).or_default().push(*number);
    }
    for numbers in by_key.values() {
        assert!(numbers.is_sorted() && numbers.len() == 20, "{numbers:?}");
    }
}

mod at_the_start {
    use super::*;
    use crate::registry::StartError;

    async fn start(consumer: Consumer<Memory>) -> StartError {
        let (_sender, messages) = mpsc::unbounded_channel();
        let broker = Broker {
            seen: Arc::default(),
            messages,
        };
        let stop = CancellationToken::new();
        stop.cancel();
        consumer.run(broker, stop).await.expect_err("a mistake")
    }

    async fn handler(_: &mut Transaction, _: Received<Order>) -> Result<(), HandlerError> {
        Ok(())
    }

    async fn other(_: &mut Transaction, _: Received<Bytes>) -> Result<(), HandlerError> {
        Ok(())
    }

    fn consumer(name: &str) -> Consumer<Memory> {
        Consumer::new(name, Memory::default())
            .inbox(Inbox::default())
            .clock(Arc::new(SystemClock))
    }

    #[tokio::test]
    async fn mistakes_stop_the_start() {
        let twice = consumer("letters").on("a", 1, handler).on("a", 2, handler);
        assert_eq!(start(twice).await, StartError::TwoHandlers("a".to_owned()));
        let others = consumer("letters").otherwise(other).otherwise(other);
        assert_eq!(start(others).await, StartError::TwoOthers);
        assert_eq!(start(consumer("letters")).await, StartError::NoHandler);
        let gap = consumer("letters")
            .upcasters(renamed())
            .on("OrderCreated", 3, handler);
        assert!(matches!(start(gap).await, StartError::Upcasters(_)));
        assert_eq!(start(consumer(" ").on("a", 1, handler)).await, StartError::NoName);
    }
}

/// A database whose transactions fail to begin.
struct Faulty {
    memory: Memory,
    fault: Fault,
}

enum Fault {
    Rejects(AtomicUsize),
    IsSilent,
    /// At the second call: the first is that of the pruner.
    HangsAtSecond(AtomicUsize),
}

impl Database for Faulty {
    type Transaction = Transaction;

    async fn begin(&self, _: Duration) -> Result<Transaction, StoreError> {
        match &self.fault {
            Fault::IsSilent => std::future::pending().await,
            Fault::HangsAtSecond(calls) => match calls.fetch_add(1, Ordering::SeqCst) {
                1 => std::future::pending().await,
                _ => Ok(self.memory.begin()),
            },
            Fault::Rejects(times) => {
                let refuse = |left: usize| left.checked_sub(1);
                match times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuse) {
                    Ok(_) => Err(StoreError::Other("who are you?".to_owned())),
                    Err(_) => Ok(self.memory.begin()),
                }
            }
        }
    }

    async fn check(&self, _: &mut Transaction) -> Result<(), StoreError> {
        Ok(())
    }
}

fn faulty(fault: Fault) -> Consumer<Faulty> {
    let handler = Scripted {
        seen: Calls::default(),
        script: fine,
    };
    let database = Faulty {
        memory: Memory::default(),
        fault,
    };
    Consumer::new("letters", database)
        .on("OrderCreated", 1, handler)
        .retry(RetryPolicy::steps(Vec::new()).max_attempts(1))
}

#[tokio::test(start_paused = true)]
async fn a_database_error_before_the_handler_uses_no_attempt() {
    let mut running = Running::start(faulty(Fault::Rejects(AtomicUsize::new(30))));
    running.deliver(&order(1));
    running.until_acknowledged(1).await;
    assert_eq!(running.dead(), []);
    let counts = running.stop().await;
    assert_eq!((counts.handled, counts.retried, counts.store_errors), (1, 0, 30));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_silent_database_in_the_pruner() {
    let running = Running::start(faulty(Fault::IsSilent));
    let stopped = tokio::time::timeout(Duration::from_secs(3600), running.stop()).await;
    assert!(stopped.is_ok());
}
