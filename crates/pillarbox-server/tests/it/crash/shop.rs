//! A shop whose orders have keys: what it committed, in which order, and where it should have arrived.
//!
//! Its own numbers are the truth. They are drawn while the key is locked, so that they follow the order of the
//! commits; nothing of ours is asked for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::future::Future;
use std::time::Duration;

use pillarbox::Event;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::ledger::Committed;
use super::patience::eventually;

/// How many keys there are.
pub(super) const KEYS: usize = 64;
/// The destination that is a webhook. The other one differs from store to store.
pub(super) const HOOK: &str = "hook";
/// One in so many transactions is rolled back.
const ROLLED_BACK: usize = 5;
/// One in so many is a burst of one key, so that a fault meets a run with many rows of it in flight.
const BURSTS: usize = 40;
const BURST: usize = 40;

/// An order.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// Its place in the order of its key. Drawn when it is written.
    pub(super) number: i64,
    pub(super) id: Uuid,
    pub(super) key: Option<String>,
    pub(super) topic: String,
}

impl Order {
    pub(super) fn new(key: Option<usize>, topic: &str) -> Self {
        Self {
            number: 0,
            id: Uuid::now_v7(),
            key: key.map(|key| format!("customer-{key}")),
            topic: topic.to_owned(),
        }
    }

    /// One in eight has no key.
    fn random() -> Self {
        let key = (fastrand::usize(..8) > 0).then(|| fastrand::usize(..KEYS));
        Self::of(key)
    }

    /// Most go to both places, some to one.
    fn of(key: Option<usize>) -> Self {
        let topic = match fastrand::usize(..6) {
            0 => "parcels",
            1 => "carts",
            _ => "orders",
        };
        Self::new(key, topic)
    }

    pub(super) fn event(&self) -> Event {
        let event = Event::new("shop", self.topic.as_str())
            .id(self.id)
            .json(&json!({ "order": self.id }))
            .expect("a value is JSON");
        match &self.key {
            Some(key) => event.ordering_key(key),
            None => event,
        }
    }

    /// As [`routes`] has it.
    fn goes_to<'a>(&self, other: &'a str) -> BTreeSet<&'a str> {
        match self.topic.as_str() {
            "parcels" => BTreeSet::from([other]),
            "carts" => BTreeSet::from([HOOK]),
            _ => BTreeSet::from([other, HOOK]),
        }
    }
}

/// Routes that fan out, and routes that do not.
pub(super) fn routes(other: &str) -> String {
    format!(
        "[[route]]\ntopic = \"orders\"\nto = [\"{other}\", \"{HOOK}\"]\n\
         [[route]]\ntopic = \"parcels\"\nto = \"{other}\"\n\
         [[route]]\ntopic = \"carts\"\nto = \"{HOOK}\"\n"
    )
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Commit,
    RollBack,
}

/// A row of the outbox.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) event: Uuid,
    pub(super) seq: i64,
    pub(super) destination: Option<String>,
    pub(super) status: String,
    pub(super) attempts: i32,
}

/// Where a shop keeps its orders: a database with an outbox in it.
pub(super) trait Books: Clone + Send + Sync + 'static {
    /// One transaction with these orders and their events.
    fn write(&self, orders: &[Order], ending: Ending) -> impl Future<Output = Result<(), String>> + Send;
    /// Every order that was committed.
    fn orders(&self) -> impl Future<Output = Vec<Order>> + Send;
    /// Every row of the outbox.
    fn rows(&self) -> impl Future<Output = Vec<Row>> + Send;
    /// How many rows are neither delivered nor dead.
    fn unfinished(&self) -> impl Future<Output = i64> + Send;
    /// How many rows a worker has in its hands.
    fn held_by(&self, worker: Uuid) -> impl Future<Output = i64> + Send;
    /// Have all leases of a worker run out?
    fn is_overdue(&self, worker: Uuid) -> impl Future<Output = bool> + Send;
}

/// Commits this many random orders, one transaction each, and rolls some back between them.
pub(super) async fn commit(books: &impl Books, orders: usize) {
    for n in 0..orders {
        books
            .write(&[Order::random()], Ending::Commit)
            .await
            .expect("commits");
        if n % ROLLED_BACK == 0 {
            let rolled_back = books.write(&[Order::random()], Ending::RollBack).await;
            rolled_back.expect("rolls back");
        }
    }
}

/// Commits one order for each key.
pub(super) async fn commit_each_key(books: &impl Books) {
    let orders: Vec<Order> = (0..KEYS).map(|key| Order::new(Some(key), "orders")).collect();
    books.write(&orders, Ending::Commit).await.expect("commits");
}

/// Orders being placed in the background.
pub(super) struct Load {
    writers: JoinSet<()>,
    stop: CancellationToken,
}

impl Load {
    /// Several writers that race for the same keys.
    pub(super) fn start(books: &impl Books, writers: usize) -> Self {
        let stop = CancellationToken::new();
        let mut all = JoinSet::new();
        for _ in 0..writers {
            all.spawn(place_orders(books.clone(), stop.clone()));
        }
        Self { writers: all, stop }
    }

    /// Returns when the last transaction has ended.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.writers.join_next().await {
            ended.expect("the shop does not panic");
        }
    }
}

async fn place_orders(books: impl Books, stop: CancellationToken) {
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    while !stop.is_cancelled() {
        tick.tick().await;
        let orders = if fastrand::usize(..BURSTS) == 0 {
            burst()
        } else {
            (0..fastrand::usize(1..=6)).map(|_| Order::random()).collect()
        };
        let ending = match fastrand::usize(..ROLLED_BACK) {
            0 => Ending::RollBack,
            _ => Ending::Commit,
        };
        books.write(&orders, ending).await.expect("the database answers");
    }
}

fn burst() -> Vec<Order> {
    let key = fastrand::usize(..KEYS);
    (0..BURST).map(|_| Order::of(Some(key))).collect()
}

/// Waits until every row is delivered or dead.
pub(super) async fn done(books: &impl Books, patience: Duration) {
    let look = || async { (books.unfinished().await == 0).then_some(()) };
    eventually("every row is delivered or dead", patience, look).await;
}

/// Holds what both consumers got against what was committed: nothing is lost, nothing is a ghost, every key is in
/// order at each place, and every event has one row, delivered, for every place that it goes to.
pub(super) async fn reckon(books: &impl Books, other: (&str, &[Uuid]), hook: &[Uuid]) -> Reckoning {
    let orders = books.orders().await;
    let rows = books.rows().await;
    check_families(&orders, &rows, other.0);
    check_numbers(&orders, &rows);
    let duplicates = |name: &str, ledger: &[Uuid]| {
        let mut committed = Committed::default();
        for order in orders
            .iter()
            .filter(|order| order.goes_to(other.0).contains(name))
        {
            committed.add(order.id, order.key.as_deref(), order.number);
        }
        committed
            .check(ledger)
            .unwrap_or_else(|findings| panic!("{} findings at {name}: {findings:?}", findings.len()))
    };
    Reckoning {
        events: orders.len(),
        rows: rows.len(),
        duplicates: [duplicates(other.0, other.1), duplicates(HOOK, hook)],
        attempts: rows.iter().map(|row| row.attempts).max().unwrap_or_default(),
    }
}

fn check_families(orders: &[Order], rows: &[Row], other: &str) {
    let mut families: HashMap<Uuid, Vec<&str>> = HashMap::new();
    for row in rows {
        assert_eq!(row.status, "delivered", "{row:?}");
        let destination = row.destination.as_deref().expect("routed");
        families.entry(row.event).or_default().push(destination);
    }
    assert_eq!(families.len(), orders.len(), "one family for every order");
    for order in orders {
        let family = families.get_mut(&order.id).expect("the order has its event");
        family.sort_unstable();
        let expected: Vec<&str> = order.goes_to(other).into_iter().collect();
        assert_eq!(*family, expected, "one row for every place: {order:?}");
    }
}

/// The outbox has every key in the order in which the shop committed it.
fn check_numbers(orders: &[Order], rows: &[Row]) {
    let seqs: HashMap<Uuid, i64> = rows.iter().map(|row| (row.event, row.seq)).collect();
    let mut keys: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
    for order in orders {
        if let Some(key) = &order.key {
            keys.entry(key).or_default().push((order.number, seqs[&order.id]));
        }
    }
    for (key, numbers) in &mut keys {
        numbers.sort_unstable();
        assert!(
            numbers.is_sorted_by_key(|(_, seq)| seq),
            "{key}: the outbox has another order than the shop: {numbers:?}"
        );
    }
}

/// What came of it, in numbers.
#[derive(Debug)]
pub(super) struct Reckoning {
    pub(super) events: usize,
    pub(super) rows: usize,
    /// At the other place, and at the webhook.
    pub(super) duplicates: [usize; 2],
    pub(super) attempts: i32,
}

impl Reckoning {
    pub(super) fn all_duplicates(&self) -> usize {
        self.duplicates.iter().sum()
    }
}

impl fmt::Display for Reckoning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            events,
            rows,
            duplicates: [other, hook],
            attempts,
        } = self;
        write!(
            f,
            "{events} events, {rows} rows, {other} + {hook} duplicates, at most {attempts} attempts"
        )
    }
}
