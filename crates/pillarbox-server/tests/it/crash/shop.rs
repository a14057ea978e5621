//! A shop whose orders have keys: which orders it committed, in which order, and where they go.
//!
//! The numbers of the orders are the truth about their order. The shop draws them while it holds the lock of the key, so
//! they follow the order of the commits. They do not come from the outbox.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::future::Future;
use std::time::Duration;

use pillarbox::Event;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use pillarbox_testkit::ledger::Committed;
use pillarbox_testkit::wait::until_within;

/// How many keys there are.
pub(super) const KEYS: usize = 64;
/// The destination that is a webhook. The other destination depends on the store.
pub(super) const HOOK: &str = "hook";
/// One in this many transactions is rolled back.
const ROLLED_BACK: usize = 5;
/// One in this many transactions has many orders of one key, so that a fault finds many rows of it in flight.
const BURSTS: usize = 40;
const BURST: usize = 40;

/// An order.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// Its place in the order of its key, drawn when it is written.
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

    /// One order in eight has no key.
    fn random() -> Self {
        let key = (fastrand::usize(..8) > 0).then(|| fastrand::usize(..KEYS));
        Self::of(key)
    }

    /// Most orders go to both destinations, some to one.
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

/// A database with the orders of a shop and an outbox.
pub(super) trait OrderDatabase: Clone + Send + Sync + 'static {
    /// One transaction with these orders and their events.
    fn write(&self, orders: &[Order], ending: Ending) -> impl Future<Output = Result<(), String>> + Send;
    /// Every committed order.
    fn orders(&self) -> impl Future<Output = Vec<Order>> + Send;
    /// Every row of the outbox.
    fn rows(&self) -> impl Future<Output = Vec<Row>> + Send;
    /// How many rows are neither delivered nor dead.
    fn unfinished(&self) -> impl Future<Output = i64> + Send;
    /// How many rows a worker has in flight.
    fn in_flight_of(&self, worker: Uuid) -> impl Future<Output = i64> + Send;
    /// Have all leases of a worker expired?
    fn leases_expired(&self, worker: Uuid) -> impl Future<Output = bool> + Send;
}

/// Commits this many random orders, one transaction each, and rolls back others between them.
pub(super) async fn commit(database: &impl OrderDatabase, orders: usize) {
    for n in 0..orders {
        database
            .write(&[Order::random()], Ending::Commit)
            .await
            .expect("commits");
        if n % ROLLED_BACK == 0 {
            let rolled_back = database.write(&[Order::random()], Ending::RollBack).await;
            rolled_back.expect("rolls back");
        }
    }
}

/// Commits one order for each key.
pub(super) async fn commit_each_key(database: &impl OrderDatabase) {
    let orders: Vec<Order> = (0..KEYS).map(|key| Order::new(Some(key), "orders")).collect();
    database.write(&orders, Ending::Commit).await.expect("commits");
}

/// Writers that place orders in the background.
pub(super) struct Load {
    writers: JoinSet<()>,
    stop: CancellationToken,
}

impl Load {
    /// Starts writers that compete for the same keys.
    pub(super) fn start(database: &impl OrderDatabase, writers: usize) -> Self {
        let stop = CancellationToken::new();
        let mut all = JoinSet::new();
        for _ in 0..writers {
            all.spawn(place_orders(database.clone(), stop.clone()));
        }
        Self { writers: all, stop }
    }

    /// Returns when the last transaction has ended.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.writers.join_next().await {
            ended.expect("the writers do not panic");
        }
    }
}

async fn place_orders(database: impl OrderDatabase, stop: CancellationToken) {
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
        database
            .write(&orders, ending)
            .await
            .expect("the database answers");
    }
}

fn burst() -> Vec<Order> {
    let key = fastrand::usize(..KEYS);
    (0..BURST).map(|_| Order::of(Some(key))).collect()
}

/// Waits until every row is delivered or dead.
pub(super) async fn until_done(database: &impl OrderDatabase, timeout: Duration) {
    until_within(timeout, "every row is delivered or dead", async || {
        database.unfinished().await == 0
    })
    .await;
}

/// Compares what both consumers received with what was committed. Nothing is lost or unexpected, every key is in order at
/// each destination, and every event has one delivered row for each of its destinations.
pub(super) async fn check_ledger(
    database: &impl OrderDatabase,
    other: (&str, &[Uuid]),
    hook: &[Uuid],
) -> Totals {
    let orders = database.orders().await;
    let rows = database.rows().await;
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
    Totals {
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
    assert_eq!(families.len(), orders.len(), "every order has one family");
    for order in orders {
        let family = families.get_mut(&order.id).expect("the order has an event");
        family.sort_unstable();
        let expected: Vec<&str> = order.goes_to(other).into_iter().collect();
        assert_eq!(*family, expected, "one row for each destination: {order:?}");
    }
}

/// The outbox has the rows of every key in the order of the commits.
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
            "{key}: the outbox and the shop disagree about the order: {numbers:?}"
        );
    }
}

/// The numbers of a test.
#[derive(Debug)]
pub(super) struct Totals {
    pub(super) events: usize,
    pub(super) rows: usize,
    /// At the other destination and at the webhook.
    pub(super) duplicates: [usize; 2],
    pub(super) attempts: i32,
}

impl Totals {
    pub(super) fn all_duplicates(&self) -> usize {
        self.duplicates.iter().sum()
    }
}

impl fmt::Display for Totals {
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
