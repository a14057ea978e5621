//! The promises hold whatever happens, in any order.
//!
//! Random events, outcomes, crashes, suspensions and faults of the store, with several workers, in virtual time. One
//! seed makes a run, and a failure prints it. `PILLARBOX_TEST_SEED` repeats that run alone.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use pillarbox::clock::TokioClock;
use pillarbox::{Clock, Delivery, Event, Outcome, Sink, StoreError};
use pillarbox_dispatch::{Destination, Dispatcher, OnDead, Policy, Route, Settings};
use pillarbox_store::operate::{Filter, Record};
use pillarbox_store::retention::{PruneRequest, Pruned};
use pillarbox_store::store::{
    Backlog, ClaimRequest, Found, Heartbeat, LaneRequest, Parked, Range, Routed, Routing, Settlement, Stub,
    SweepRequest, Swept,
};
use pillarbox_store::stores::memory::Memory;
use pillarbox_store::{Operate, Scope, Store};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::cases;
use pillarbox_testkit::fakes::{Fault, FlakyStore, JumpingClock};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::fixture::{EPOCH, ms, retries, s};

const SEEDS: u32 = 30;
const LIMIT: u32 = 6;
const LEASE: Duration = Duration::from_secs(12);
/// All events go here, and a dead row blocks its key until an operator skips it.
const STRICT: &str = "strict";
/// Orders go here too, and the others of a key continue after a dead row.
const EASY: &str = "easy";
const DESTINATIONS: [&str; 2] = [STRICT, EASY];

/// What may happen in a run.
#[derive(Debug, Clone, Copy)]
struct Conditions {
    workers: usize,
    faults: bool,
    /// Does each event name one destination, and does not every worker have all of them?
    split: bool,
}

/// An event at a destination.
type Visit = (&'static str, Uuid);

/// Every send and every claim.
#[derive(Default)]
struct Ledger {
    confirmed: HashMap<Visit, usize>,
    sent: HashMap<Visit, usize>,
    /// The committed events of a key, in order.
    keys: HashMap<String, Vec<Uuid>>,
    /// Visits that later events need not wait for: confirmed, or dead and skipped.
    over: HashSet<Visit>,
    /// Row to (worker, when the lease expires).
    leases: HashMap<Uuid, (Uuid, Duration)>,
    broken: Vec<String>,
    faults: usize,
}

#[derive(Clone)]
struct Watch {
    ledger: Arc<Mutex<Ledger>>,
    clock: Arc<dyn Clock>,
}

impl Watch {
    fn with<T>(&self, look: impl FnOnce(&mut Ledger) -> T) -> T {
        look(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Records claims and settlements behind the faults: what the database did.
struct WatchedStore {
    under: Memory,
    watch: Watch,
    rng: Mutex<Rng>,
}

#[async_trait]
impl Store for WatchedStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
        self.pause().await;
        let rows = self.under.claim(request).await?;
        let now = self.watch.clock.boot();
        self.watch.with(|ledger| {
            for row in &rows {
                let taken = ledger
                    .leases
                    .insert(row.id, (request.worker, now + request.lease));
                if let Some((owner, until)) = taken
                    && until >= now
                {
                    ledger
                        .broken
                        .push(format!("{} was claimed under the lease of {owner}", row.id));
                }
                if row.attempts > LIMIT {
                    ledger
                        .broken
                        .push(format!("{} has {} attempts", row.id, row.attempts));
                }
            }
        });
        self.pause().await;
        Ok(rows)
    }

    async fn find(
        &self,
        scope: &Scope,
        served: Option<&[String]>,
        after: Option<&Backlog>,
        limit: usize,
    ) -> Result<Found, StoreError> {
        self.pause().await;
        let found = self.under.find(scope, served, after, limit).await;
        self.pause().await;
        found
    }

    async fn route(&self, worker: Uuid, routings: &[Routing]) -> Result<Routed, StoreError> {
        self.pause().await;
        let routed = self.under.route(worker, routings).await?;
        self.watch.with(|ledger| {
            for routing in routings
                .iter()
                .filter(|routing| !routed.lost.contains(&routing.id))
            {
                let Some(lease) = ledger.leases.get(&routing.id).copied() else {
                    continue;
                };
                for member in &routing.members {
                    if routed.waiting.contains(&member.id) {
                        ledger.leases.remove(&member.id);
                    } else {
                        ledger.leases.insert(member.id, lease);
                    }
                }
            }
        });
        self.pause().await;
        Ok(routed)
    }

    async fn settle(&self, worker: Uuid, settlements: &[Settlement]) -> Result<Vec<Uuid>, StoreError> {
        self.pause().await;
        let lost = self.under.settle(worker, settlements).await?;
        // A row can be in a batch twice, with an old claim and with the valid one.
        let count = |ids: &mut dyn Iterator<Item = Uuid>, id| ids.filter(|other| *other == id).count();
        self.watch.with(|ledger| {
            for Settlement { id, .. } in settlements {
                let tried = count(&mut settlements.iter().map(|settlement| settlement.id), *id);
                if count(&mut lost.iter().copied(), *id) < tried {
                    ledger.leases.remove(id);
                }
            }
        });
        Ok(lost)
    }

    async fn renew(
        &self,
        worker: Uuid,
        held: &[(Uuid, Uuid)],
        lease: Duration,
    ) -> Result<Vec<Uuid>, StoreError> {
        let lost = self.under.renew(worker, held, lease).await?;
        let until = self.watch.clock.boot() + lease;
        self.watch.with(|ledger| {
            for (row, _) in held.iter().filter(|(row, _)| !lost.contains(row)) {
                ledger.leases.insert(*row, (worker, until));
            }
        });
        Ok(lost)
    }

    async fn sweep(&self, request: &SweepRequest) -> Result<Swept, StoreError> {
        self.pause().await;
        self.under.sweep(request).await
    }

    async fn lease_lanes(&self, request: &LaneRequest) -> Result<Vec<Range>, StoreError> {
        self.pause().await;
        let ranges = self.under.lease_lanes(request).await;
        self.pause().await;
        ranges
    }

    async fn prune_lanes(&self) -> Result<usize, StoreError> {
        self.under.prune_lanes().await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, StoreError> {
        self.under.prune(request).await
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        self.under.heartbeat(heartbeat).await
    }

    async fn deregister(&self, worker: Uuid) -> Result<(), StoreError> {
        self.under.deregister(worker).await
    }

    async fn disable(&self, worker: Uuid, destination: &str, reason: &str) -> Result<(), StoreError> {
        self.under.disable(worker, destination, reason).await
    }

    async fn parked(
        &self,
        what: Parked,
        scope: &Scope,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Stub>, StoreError> {
        self.under.parked(what, scope, after, limit).await
    }

    async fn unpark(&self, what: Parked, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        self.under.unpark(what, ids).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.under.check().await
    }
}

impl WatchedStore {
    /// Lets the other workers run between any two statements.
    async fn pause(&self) {
        let wait = self.rng.lock().unwrap_or_else(PoisonError::into_inner).u64(..4);
        match wait {
            0 => {}
            1 => tokio::task::yield_now().await,
            wait => tokio::time::sleep(ms(wait)).await,
        }
    }
}

/// Which workers cannot reach which destinations.
type Cuts = Arc<Mutex<HashSet<(usize, &'static str)>>>;

/// A destination with random outcomes.
struct RandomSink {
    name: &'static str,
    worker: usize,
    cuts: Cuts,
    outbox: Memory,
    watch: Watch,
    rng: Mutex<Rng>,
    has_faults: bool,
}

impl RandomSink {
    fn roll(&self, below: u32) -> u32 {
        self.rng
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .u32(..below)
    }

    fn is_cut(&self) -> bool {
        let cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.contains(&(self.worker, self.name))
    }

    fn outcome(&self) -> Outcome {
        if self.is_cut() {
            return Outcome::unavailable("no route to host");
        }
        if !self.has_faults {
            return Outcome::Delivered;
        }
        match self.roll(20) {
            0..=2 => Outcome::retry("server error"),
            3 => Outcome::reject("never"),
            4 => Outcome::Throttled {
                reason: "too many requests".into(),
                after: Some(s(2)),
            },
            5 => Outcome::unavailable("connection refused"),
            6 => Outcome::connection_lost("connection closed"),
            _ => Outcome::Delivered,
        }
    }
}

impl RandomSink {
    /// Checks that first deliveries of a key follow its order: every earlier event has arrived here, or is dead and no
    /// longer blocks the key.
    async fn check_order(&self, delivery: &Delivery) {
        let id = delivery.event.id;
        let Some(key) = &delivery.event.ordering_key else {
            return;
        };
        let open: Vec<Uuid> = self.watch.with(|ledger| {
            if ledger.sent.contains_key(&(self.name, id)) {
                return Vec::new();
            }
            let before = ledger.keys[key].iter().take_while(|other| **other != id);
            before
                .filter(|other| !ledger.over.contains(&(self.name, **other)))
                .copied()
                .collect()
        });
        for other in open {
            let filter = Filter {
                event: Some(other),
                ..Filter::default()
            };
            let family = self.outbox.list(&OPERATOR, &filter).await.expect("memory store");
            let skipped = family.iter().any(|row| {
                row.status == "dead" && row.unordered && row.destination.as_deref() == Some(self.name)
            });
            self.watch.with(|ledger| {
                if skipped {
                    ledger.over.insert((self.name, other));
                } else {
                    let rows: Vec<String> = family.iter().map(describe).collect();
                    ledger.broken.push(format!(
                        "{}: {key}: {id} (row {}, attempt {}) went before {other}: {rows:#?}",
                        self.name, delivery.id, delivery.attempts
                    ));
                }
            });
        }
    }
}

/// Describes a row in one line.
fn describe(row: &Record) -> String {
    format!(
        "{} at {:?}: {}, {} attempts, unordered {}, leased by {:?} until {:?}, updated {}, {:?}",
        row.seq,
        row.destination,
        row.status,
        row.attempts,
        row.unordered,
        row.locked_by,
        row.locked_until,
        row.updated_at,
        row.last_error
    )
}

#[async_trait]
impl Sink for RandomSink {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let id = delivery.event.id;
        self.check_order(delivery).await;
        self.watch
            .with(|ledger| *ledger.sent.entry((self.name, id)).or_default() += 1);
        let wait = match self.roll(50) {
            // Longer than the timeout: the attempt is dropped.
            0 if self.has_faults => s(30),
            n => ms(u64::from(n) * 2),
        };
        tokio::time::sleep(wait).await;
        let outcome = self.outcome();
        if outcome == Outcome::Delivered {
            self.watch.with(|ledger| {
                *ledger.confirmed.entry((self.name, id)).or_default() += 1;
                ledger.over.insert((self.name, id));
            });
        }
        outcome
    }

    /// Half of the events, by chance.
    fn can_batch(&self, delivery: &Delivery) -> bool {
        delivery.event.id.as_u128().is_multiple_of(2)
    }

    async fn check(&self) -> Result<(), String> {
        match self.is_cut() || (self.has_faults && self.roll(3) == 0) {
            true => Err("connection refused".into()),
            false => Ok(()),
        }
    }
}

/// One run, made from a seed.
struct Run {
    conditions: Conditions,
    rng: Rng,
    clock: JumpingClock,
    outbox: Memory,
    store: FlakyStore,
    watch: Watch,
    committed: Vec<(Uuid, &'static str)>,
    rolled_back: HashSet<Uuid>,
    cuts: Cuts,
    /// How many workers were started.
    started: usize,
}

impl Run {
    fn new(seed: u64, conditions: Conditions) -> Self {
        let clock = JumpingClock::new(Arc::new(TokioClock::starting_at(EPOCH)));
        let watch = Watch {
            ledger: Arc::default(),
            clock: Arc::new(clock.clone()),
        };
        let outbox = Memory::new(Arc::new(clock.clone()));
        let watched = WatchedStore {
            under: outbox.clone(),
            watch: watch.clone(),
            rng: Mutex::new(Rng::with_seed(seed ^ 0xDA3D1E)),
        };
        let dice = Mutex::new(Rng::with_seed(seed ^ 0xF00D));
        let counted = watch.clone();
        let store = FlakyStore::new(Arc::new(watched), move |_| {
            let roll = dice.lock().unwrap_or_else(PoisonError::into_inner).u32(..40);
            let fault = match roll {
                0 => Fault::Before,
                1 => Fault::After,
                2 => Fault::Slow(ms(700)),
                _ => Fault::None,
            };
            let fault = if conditions.faults { fault } else { Fault::None };
            counted.with(|ledger| ledger.faults += usize::from(fault != Fault::None));
            fault
        });
        Self {
            conditions,
            rng: Rng::with_seed(seed),
            clock,
            outbox,
            store,
            watch,
            committed: Vec::new(),
            rolled_back: HashSet::new(),
            cuts: Cuts::default(),
            started: 0,
        }
    }

    fn dispatcher(&mut self) -> Dispatcher {
        let settings = Settings {
            lease: LEASE,
            timeout: s(5),
            batch: 20,
            max_in_flight: 50,
            sweep_interval: s(5),
            grace: s(3),
            max_attempts: LIMIT,
            ..Settings::default()
        };
        let mut builder = Dispatcher::builder(Arc::new(self.store.clone()))
            .settings(settings)
            .clock(Arc::new(self.clock.clone()));
        if !self.conditions.split {
            builder = builder.route(Route::to(STRICT)).route(Route {
                topic: "orders".into(),
                ..Route::to(EASY)
            });
        }
        let names: &[&str] = match (self.conditions.split, self.started % 3) {
            (true, 0) => &[STRICT],
            (true, 1) => &[EASY],
            (true, _) | (false, _) => &DESTINATIONS,
        };
        self.started += 1;
        names
            .iter()
            .fold(builder, |builder, name| {
                builder.destination(self.destination(name))
            })
            .build()
            .expect("valid settings")
    }

    /// Cuts a worker off from a destination, or connects it again.
    fn cut(&mut self) {
        let worker = self
            .started
            .saturating_sub(self.rng.usize(..self.conditions.workers));
        let cut = (worker, DESTINATIONS[self.rng.usize(..2)]);
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        if !cuts.remove(&cut) {
            cuts.insert(cut);
        }
    }

    /// In the end a worker that reaches everything must deliver what the others cannot.
    fn last_workers(&mut self, workers: &mut Vec<Worker>) {
        workers.push(Worker::start(self.dispatcher()));
        while self.conditions.split && !self.started.is_multiple_of(3) {
            workers.push(Worker::start(self.dispatcher()));
        }
    }

    fn destination(&mut self, name: &'static str) -> Destination {
        let sink = RandomSink {
            name,
            worker: self.started,
            cuts: Arc::clone(&self.cuts),
            outbox: self.outbox.clone(),
            watch: self.watch.clone(),
            rng: Mutex::new(self.rng.fork()),
            has_faults: self.conditions.faults,
        };
        let on_dead = match name == STRICT {
            true => OnDead::Block,
            false => OnDead::Continue,
        };
        let policy = Policy::default()
            .retry(retries(LIMIT))
            .timeout(s(5))
            .on_dead(on_dead);
        Destination::new(name, sink).policy(policy).concurrency(8)
    }

    /// Commits or rolls back a transaction with a few events.
    fn transact(&mut self) {
        let mut transaction = self.outbox.begin();
        let mut ids = Vec::new();
        for _ in 0..self.rng.usize(1..12) {
            let topic = if self.rng.bool() { "orders" } else { "carts" };
            let mut event = Event::new("shop", topic);
            if self.conditions.split {
                event = event.destination(if topic == "orders" { EASY } else { STRICT });
            }
            if self.rng.u32(..3) > 0 {
                event = event.ordering_key(format!("key-{}", self.rng.u32(..4)));
            }
            ids.push((event.id, event.ordering_key.clone(), topic));
            transaction.enqueue(event).expect("valid");
        }
        if self.rng.u32(..5) == 0 {
            self.rolled_back.extend(ids.iter().map(|(id, ..)| *id));
            return;
        }
        transaction.commit();
        self.watch.with(|ledger| {
            for (id, key, topic) in ids {
                self.committed.push((id, topic));
                if topic == "carts" {
                    ledger.over.insert((EASY, id));
                } else if self.conditions.split {
                    ledger.over.insert((STRICT, id));
                }
                if let Some(key) = key {
                    ledger.keys.entry(key).or_default().push(id);
                }
            }
        });
    }

    /// Transactions, time, crashes, suspensions and restarts; then no more faults until all rows have ended.
    async fn run(&mut self) {
        let mut workers = Vec::new();
        for _ in 0..60 {
            while workers.len() < self.conditions.workers {
                workers.push(Worker::start(self.dispatcher()));
            }
            self.transact();
            tokio::time::sleep(ms(self.rng.u64(1..800))).await;
            if !self.conditions.faults {
                continue;
            }
            match self.rng.u32(..20) {
                0 | 1 => {
                    self.watch.with(|ledger| ledger.faults += 1);
                    workers.swap_remove(0).kill().await;
                }
                2 => workers.swap_remove(0).stop().await,
                3 => {
                    self.watch.with(|ledger| ledger.faults += 1);
                    self.clock.jump(s(self.rng.u64(1..30)));
                }
                4..=6 => {
                    self.watch.with(|ledger| ledger.faults += 1);
                    self.cut();
                }
                _ => {}
            }
        }
        self.last_workers(&mut workers);
        self.settle_down().await;
        for worker in workers {
            worker.stop().await;
        }
    }

    /// Waits until every row has ended. Skips dead rows that block a key, as an operator would.
    async fn settle_down(&self) {
        let began = tokio::time::Instant::now();
        loop {
            let stats = self
                .outbox
                .stats(&OPERATOR, &Scope::All)
                .await
                .expect("memory store");
            if stats.pending + stats.processing == 0 {
                return;
            }
            assert!(
                began.elapsed() < s(3600),
                "rows have not ended at {}: {stats:?} {:#?} {:#?} {:#?} cut: {:?}",
                self.clock.wall(),
                self.outbox.blocked(&OPERATOR, &Scope::All, 10).await,
                self.unfinished().await,
                self.outbox.workers(&OPERATOR).await,
                self.cuts
            );
            tokio::time::sleep(ms(250)).await;
            let blocked = self
                .outbox
                .blocked(&OPERATOR, &Scope::All, 100)
                .await
                .expect("memory store");
            let dead: Vec<Uuid> = blocked
                .iter()
                .filter(|key| key.status == "dead")
                .map(|key| key.head)
                .collect();
            self.outbox.skip(&OPERATOR, &dead).await.expect("memory store");
        }
    }

    /// A few rows that have not ended.
    async fn unfinished(&self) -> Vec<String> {
        let filter = Filter {
            limit: usize::MAX,
            ..Filter::default()
        };
        let rows = self.outbox.list(&OPERATOR, &filter).await.expect("memory store");
        let unfinished = rows
            .iter()
            .filter(|row| ["pending", "processing"].contains(&row.status.as_str()));
        unfinished.take(10).map(describe).collect()
    }

    async fn verify(&self) {
        let mut duplicates = 0;
        for (id, topic) in &self.committed {
            let filter = Filter {
                event: Some(*id),
                ..Filter::default()
            };
            let family = self.outbox.list(&OPERATOR, &filter).await.expect("memory store");
            assert!(!family.is_empty(), "no row is lost");
            let several = *topic == "orders" && !self.conditions.split;
            let all: usize = if several { 2 } else { 1 };
            let destinations: HashSet<&str> = family
                .iter()
                .filter_map(|row| row.destination.as_deref())
                .collect();
            // A row may be dead before it was routed.
            let unrouted = family.len() == 1 && family[0].destination.is_none();
            assert!(
                unrouted || (family.len() == all && destinations.len() == all),
                "one row for each destination: {family:#?}"
            );
            for row in &family {
                duplicates += self.verify_row(*id, row);
            }
        }
        self.watch.with(|ledger| {
            assert!(ledger.broken.is_empty(), "{:#?}", ledger.broken);
            let rolled_back = ledger
                .sent
                .keys()
                .filter(|(_, id)| self.rolled_back.contains(id))
                .count();
            assert_eq!(rolled_back, 0, "events that rolled back were sent");
            // At most the rows in flight at each fault. Without faults, none.
            assert!(
                duplicates <= ledger.faults * 16 * self.conditions.workers,
                "{duplicates} duplicates"
            );
            if !self.conditions.faults {
                assert_eq!(ledger.sent.values().max(), Some(&1));
            }
        });
    }

    /// Checks how a row ended. Returns how many duplicates arrived.
    fn verify_row(&self, event: Uuid, row: &Record) -> usize {
        let to = DESTINATIONS
            .into_iter()
            .find(|name| row.destination.as_deref() == Some(*name));
        let confirmed = self.watch.with(|ledger| {
            to.and_then(|to| ledger.confirmed.get(&(to, event)).copied())
                .unwrap_or(0)
        });
        match row.status.as_str() {
            "delivered" => assert!(confirmed >= 1, "{event} was never confirmed: {row:#?}"),
            "dead" => assert!(
                row.last_error.as_ref().is_some_and(|error| !error.is_empty()),
                "{event} has no reason"
            ),
            other => panic!("{event} is {other}"),
        }
        assert!(u32::try_from(row.attempts).expect("not negative") <= LIMIT);
        confirmed.saturating_sub(1)
    }
}

struct Worker {
    task: tokio::task::JoinHandle<pillarbox_dispatch::Snapshot>,
    shutdown: CancellationToken,
}

impl Worker {
    fn start(dispatcher: Dispatcher) -> Self {
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(dispatcher.run(shutdown.clone()));
        Self { task, shutdown }
    }

    async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.is_err_and(|error| error.is_cancelled()));
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.expect("no panic");
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("PILLARBOX_TEST_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => {
            let first = Rng::new().u64(..1 << 40);
            (first..first + u64::from(cases(SEEDS))).collect()
        }
    }
}

/// Runs a seed in virtual time, and prints it.
fn run(seed: u64, conditions: Conditions) -> Run {
    println!("seed {seed}, {conditions:?}");
    // The random numbers of the engine follow from the seed too.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut run = Run::new(seed, conditions);
        run.run().await;
        run.verify().await;
        run
    })
}

/// Every event is delivered in the order of its key, or dead with a reason.
fn all_events_end(workers: usize) {
    let ours = |seed: &u64| seed % 3 + 1 == u64::try_from(workers).expect("small");
    for seed in seeds().into_iter().filter(ours) {
        run(
            seed,
            Conditions {
                workers,
                faults: true,
                split: false,
            },
        );
    }
}

// Several tests, so that they run in parallel: together they are the longest of this crate.

#[test]
fn with_one_worker_every_event_is_delivered_in_key_order_or_dead_with_a_reason() {
    all_events_end(1);
}

#[test]
fn with_two_workers_every_event_is_delivered_in_key_order_or_dead_with_a_reason() {
    all_events_end(2);
}

#[test]
fn with_three_workers_every_event_is_delivered_in_key_order_or_dead_with_a_reason() {
    all_events_end(3);
}

#[test]
fn without_faults_nothing_is_sent_twice_by_any_number_of_workers() {
    for seed in seeds().into_iter().take(10) {
        run(
            seed,
            Conditions {
                workers: 3,
                faults: false,
                split: false,
            },
        );
    }
}

#[test]
fn workers_with_different_destinations_deliver_every_event_in_key_order() {
    for seed in seeds().into_iter().take(10) {
        let workers = 2 + usize::try_from(seed % 3).expect("small");
        run(
            seed,
            Conditions {
                workers,
                faults: true,
                split: true,
            },
        );
    }
}
