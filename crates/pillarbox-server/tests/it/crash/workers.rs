//! Workers that are killed and frozen at random moments, and replaced.

use std::fmt;
use std::time::{Duration, Instant};

use pillarbox_testkit::process::Signal;
use uuid::Uuid;

use super::shop::OrderDatabase;
use crate::daemon::Daemon;
use pillarbox_testkit::wait::{until, until_some};

/// Fewer faults with rows in flight prove nothing.
const KILLS: usize = 3;
const FREEZES: usize = 2;

/// Daemons on one outbox.
pub(super) struct Workers<'a, B> {
    database: &'a B,
    start: Box<dyn Fn() -> Daemon + 'a>,
    daemons: Vec<Daemon>,
    faults: Faults,
}

/// The faults that hit a worker with rows in flight.
#[derive(Debug, Default, Clone)]
pub(super) struct Faults {
    pub(super) kills: usize,
    pub(super) freezes: usize,
    /// Rows that were in flight at all faults.
    pub(super) in_flight: usize,
    /// Rows that a daemon lost to another one, as its log says.
    pub(super) lost: u64,
}

impl<'a, B: OrderDatabase> Workers<'a, B> {
    pub(super) fn start(database: &'a B, workers: usize, start: impl Fn() -> Daemon + 'a) -> Self {
        Self {
            database,
            daemons: (0..workers).map(|_| start()).collect(),
            start: Box::new(start),
            faults: Faults::default(),
        }
    }

    /// Causes one fault after another for this long, and until there were enough.
    pub(super) async fn disturb(&mut self, length: Duration) {
        let began = Instant::now();
        while began.elapsed() < length || self.faults.kills < KILLS || self.faults.freezes < FREEZES {
            let is_late = began.elapsed() >= length;
            match fastrand::usize(..3) {
                // Only the faults that are missing.
                _ if is_late && self.faults.kills < KILLS => self.kill_one().await,
                0 => self.freeze_one(false).await,
                1 => self.freeze_one(true).await,
                _ => self.kill_one().await,
            }
        }
    }

    /// Stops all of them, and expects exit code 0.
    pub(super) async fn stop(mut self) -> Faults {
        for daemon in self.daemons {
            self.faults.lost += lost(&daemon.stop().await);
        }
        self.faults
    }

    async fn kill_one(&mut self) {
        let (number, worker) = self.busy_worker().await;
        self.daemons.swap_remove(number).kill();
        let in_flight = self.in_flight_of(worker).await;
        self.faults.kills += usize::from(in_flight > 0);
        self.faults.in_flight += in_flight;
        self.daemons.push((self.start)());
    }

    /// Freezes one until its leases have expired, and then lets it continue. Meanwhile another one may be killed.
    async fn freeze_one(&mut self, kill_another: bool) {
        let (number, worker) = self.busy_worker().await;
        let frozen = self.daemons.swap_remove(number);
        frozen.signal(Signal::STOP);
        let in_flight = self.in_flight_of(worker).await;
        self.faults.freezes += usize::from(in_flight > 0);
        self.faults.in_flight += in_flight;
        if kill_another && !self.daemons.is_empty() {
            self.kill_one().await;
        }
        until("the leases of the frozen worker have expired", async || {
            self.database.leases_expired(worker).await
        })
        .await;
        random_pause().await;
        frozen.signal(Signal::CONT);
        self.daemons.push(frozen);
    }

    /// Waits until a worker has rows in flight, and then for a random time.
    async fn busy_worker(&self) -> (usize, Uuid) {
        let busy = until_some("a worker has rows in flight", async || {
            let number = fastrand::usize(..self.daemons.len());
            let worker = self.daemons[number].worker()?;
            (self.database.in_flight_of(worker).await > 0).then_some((number, worker))
        })
        .await;
        random_pause().await;
        busy
    }

    async fn in_flight_of(&self, worker: Uuid) -> usize {
        usize::try_from(self.database.in_flight_of(worker).await).expect("a count")
    }
}

/// Not a wait for a fact: the fault happens at a random moment.
async fn random_pause() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..800))).await;
}

/// How many rows a daemon has lost, as the end of its log says.
fn lost(log: &str) -> u64 {
    let number = log
        .rsplit_once(" lost=")
        .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    number
        .and_then(|digits| digits.parse().ok())
        .expect("the log says what it lost")
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kills,
            freezes,
            in_flight,
            lost,
        } = self;
        write!(
            f,
            "{kills} kills and {freezes} freezes with {in_flight} rows in flight, {lost} stale rows given up"
        )
    }
}
