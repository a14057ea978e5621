//! Anything may happen, in any order; what is promised holds.
//!
//! Random events, outcomes, crashes, suspensions and faults of the store, with several workers, in
//! virtual time. A run is made from one seed, which a failure prints; `PILLARBOX_TEST_SEED` runs
//! that one alone.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use pillarbox::clock::TokioClock;
use pillarbox::store::{ClaimRequest, Settlement, Swept};
use pillarbox::stores::memory::Memory;
use pillarbox::{Clock, Delivery, Event, Outcome, Scope, Sink, Store, StoreError};
use pillarbox_dispatch::{Destination, Dispatcher, Settings};
use pillarbox_testkit::fakes::{Fault, FlakyStore, JumpingClock};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::world::{EPOCH, ms, retries, s};

const SEEDS: u64 = 60;
const LIMIT: u32 = 6;
const LEASE: Duration = Duration::from_secs(12);

/// What a run may suffer.
#[derive(Debug, Clone, Copy)]
struct Weather {
    workers: usize,
    faults: bool,
}

/// What the outside saw: every send, and every claim.
#[derive(Default)]
struct Ledger {
    confirmed: HashMap<Uuid, usize>,
    sent: HashMap<Uuid, usize>,
    order: Vec<(String, i64)>,
    /// Row to (worker, when the lease ends).
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

/// Watches claims and settles from behind the faults: what the database itself did.
struct WatchedStore {
    under: Memory,
    watch: Watch,
}

#[async_trait]
impl Store for WatchedStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
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
        Ok(rows)
    }

    async fn settle(&self, worker: Uuid, settlements: &[Settlement]) -> Result<Vec<Uuid>, StoreError> {
        let lost = self.under.settle(worker, settlements).await?;
        // A row can be in a batch twice, under an old claim and under the one that holds.
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

    async fn sweep(&self, scope: &Scope, max_attempts: u32, grace: Duration) -> Result<Swept, StoreError> {
        self.under.sweep(scope, max_attempts, grace).await
    }

    async fn is_due(&self, scope: &Scope) -> Result<bool, StoreError> {
        self.under.is_due(scope).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.under.check().await
    }
}

/// A destination in bad company.
struct MoodySink {
    watch: Watch,
    rng: Mutex<Rng>,
    is_moody: bool,
}

impl MoodySink {
    fn roll(&self, below: u32) -> u32 {
        self.rng
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .u32(..below)
    }

    fn mood(&self) -> Outcome {
        if !self.is_moody {
            return Outcome::Delivered;
        }
        match self.roll(20) {
            0..=2 => Outcome::retry("a bad day"),
            3 => Outcome::reject("never"),
            4 => Outcome::Throttled {
                reason: "slowly".into(),
                after: Some(s(2)),
            },
            5 => Outcome::unavailable("nobody there"),
            6 => Outcome::cut("hung up"),
            _ => Outcome::Delivered,
        }
    }
}

#[async_trait]
impl Sink for MoodySink {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let id = delivery.event.id;
        self.watch.with(|ledger| {
            *ledger.sent.entry(id).or_default() += 1;
            if let Some(key) = &delivery.event.ordering_key {
                ledger.order.push((key.clone(), delivery.seq));
            }
        });
        let wait = match self.roll(50) {
            // Longer than the timeout: the attempt is dropped.
            0 if self.is_moody => s(30),
            n => ms(u64::from(n) * 2),
        };
        tokio::time::sleep(wait).await;
        let outcome = self.mood();
        if outcome == Outcome::Delivered {
            self.watch
                .with(|ledger| *ledger.confirmed.entry(id).or_default() += 1);
        }
        outcome
    }

    async fn check(&self) -> Result<(), String> {
        match self.is_moody && self.roll(3) == 0 {
            true => Err("nobody there".into()),
            false => Ok(()),
        }
    }
}

/// One run: a world made of a seed.
struct Run {
    weather: Weather,
    rng: Rng,
    clock: JumpingClock,
    outbox: Memory,
    store: FlakyStore,
    watch: Watch,
    committed: Vec<Uuid>,
    rolled_back: HashSet<Uuid>,
}

impl Run {
    fn new(seed: u64, weather: Weather) -> Self {
        let clock = JumpingClock::new(Arc::new(TokioClock::starting_at(EPOCH)));
        let watch = Watch {
            ledger: Arc::default(),
            clock: Arc::new(clock.clone()),
        };
        let outbox = Memory::new(Arc::new(clock.clone()));
        let watched = WatchedStore {
            under: outbox.clone(),
            watch: watch.clone(),
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
            let fault = if weather.faults { fault } else { Fault::None };
            counted.with(|ledger| ledger.faults += usize::from(fault != Fault::None));
            fault
        });
        Self {
            weather,
            rng: Rng::with_seed(seed),
            clock,
            outbox,
            store,
            watch,
            committed: Vec::new(),
            rolled_back: HashSet::new(),
        }
    }

    fn dispatcher(&mut self) -> Dispatcher {
        let sink = MoodySink {
            watch: self.watch.clone(),
            rng: Mutex::new(self.rng.fork()),
            is_moody: self.weather.faults,
        };
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
        let destination = Destination {
            name: "there".into(),
            sink: Arc::new(sink),
            retry: retries(LIMIT),
            timeout: s(5),
            concurrency: 8,
        };
        Dispatcher::builder(Arc::new(self.store.clone()))
            .settings(settings)
            .destination(destination)
            .clock(Arc::new(self.clock.clone()))
            .build()
            .expect("settings that work")
    }

    /// A transaction with a few events, which may roll back.
    fn transact(&mut self) {
        let mut transaction = self.outbox.begin();
        let mut ids = Vec::new();
        for _ in 0..self.rng.usize(1..12) {
            let mut event = Event::new("shop", "orders");
            if self.rng.bool() {
                event = event.ordering_key(format!("key-{}", self.rng.u32(..4)));
            }
            ids.push(event.id);
            transaction.enqueue(event).expect("valid");
        }
        if self.rng.u32(..5) == 0 {
            self.rolled_back.extend(ids);
        } else {
            transaction.commit();
            self.committed.extend(ids);
        }
    }

    /// Life: transactions, time, crashes, suspensions, orderly restarts; then calm until all is done.
    async fn live(&mut self) {
        let mut workers = Vec::new();
        for _ in 0..60 {
            while workers.len() < self.weather.workers {
                workers.push(Worker::start(self.dispatcher()));
            }
            self.transact();
            tokio::time::sleep(ms(self.rng.u64(1..800))).await;
            if !self.weather.faults {
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
                _ => {}
            }
        }
        while workers.is_empty() {
            workers.push(Worker::start(self.dispatcher()));
        }
        self.settle_down().await;
        for worker in workers {
            worker.stop().await;
        }
    }

    /// Waits until every row has ended.
    async fn settle_down(&self) {
        use pillarbox::Operate;
        let began = tokio::time::Instant::now();
        loop {
            let stats = self.outbox.stats(&Scope::All).await.expect("memory answers");
            if stats.pending + stats.processing == 0 {
                return;
            }
            assert!(began.elapsed() < s(3600), "rows have not ended: {stats:?}");
            tokio::time::sleep(ms(250)).await;
        }
    }

    async fn judge(&self) {
        use pillarbox::Operate;
        let mut duplicates = 0;
        for id in &self.committed {
            let row = self
                .outbox
                .show(*id)
                .await
                .expect("memory answers")
                .expect("no row is lost");
            let confirmed = self
                .watch
                .with(|ledger| ledger.confirmed.get(id).copied().unwrap_or(0));
            match row.status.as_str() {
                "delivered" => assert!(confirmed >= 1, "{id} was never confirmed"),
                "dead" => assert!(
                    row.last_error.is_some_and(|error| !error.is_empty()),
                    "{id} has no reason"
                ),
                other => panic!("{id} is {other}"),
            }
            assert!(u32::try_from(row.attempts).expect("not negative") <= LIMIT);
            duplicates += confirmed.saturating_sub(1);
        }
        self.watch.with(|ledger| {
            assert!(ledger.broken.is_empty(), "{:#?}", ledger.broken);
            let ghosts = ledger
                .sent
                .keys()
                .filter(|id| self.rolled_back.contains(id))
                .count();
            assert_eq!(ghosts, 0, "what rolled back was sent");
            // At most what was in flight at each fault; without one, none.
            assert!(
                duplicates <= ledger.faults * 8 * self.weather.workers,
                "{duplicates} duplicates"
            );
            if !self.weather.faults {
                assert_eq!(ledger.sent.values().max(), Some(&1));
            }
        });
    }

    fn judge_order(&self) {
        self.watch.with(|ledger| {
            let mut last: HashMap<&str, i64> = HashMap::new();
            for (key, seq) in &ledger.order {
                let before = last.insert(key, *seq).unwrap_or(0);
                assert!(before < *seq, "{key}: {seq} was sent after {before}");
            }
            assert!(!last.is_empty());
        });
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
        self.task.await.expect("it does not panic");
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("PILLARBOX_TEST_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => {
            let first = Rng::new().u64(..1 << 40);
            (first..first + SEEDS).collect()
        }
    }
}

/// Runs a seed in virtual time, and says which it was if it fails.
fn run(seed: u64, weather: Weather) -> Run {
    println!("seed {seed}, {weather:?}");
    // Everything that is left to chance in the engine follows from the seed too.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut run = Run::new(seed, weather);
        run.live().await;
        run.judge().await;
        run
    })
}

#[test]
fn whatever_happens_every_event_is_delivered_or_dead_with_a_reason() {
    for seed in seeds() {
        let workers = usize::try_from(seed % 3).expect("small") + 1;
        run(
            seed,
            Weather {
                workers,
                faults: true,
            },
        );
    }
}

#[test]
fn without_faults_nothing_is_sent_twice_by_any_number_of_workers() {
    for seed in seeds().into_iter().take(10) {
        run(
            seed,
            Weather {
                workers: 3,
                faults: false,
            },
        );
    }
}

#[test]
fn without_faults_one_worker_keeps_the_order_of_every_key() {
    for seed in seeds().into_iter().take(10) {
        let weather = Weather {
            workers: 1,
            faults: false,
        };
        run(seed, weather).judge_order();
    }
}
