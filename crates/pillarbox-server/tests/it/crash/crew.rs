//! Workers that are killed and frozen at moments that nobody chose, and replaced.

use std::fmt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use uuid::Uuid;

use super::daemon::Daemon;
use super::patience::eventually;
use super::shop::Books;

/// Fewer faults than these, with rows in the victims' hands, prove nothing.
const KILLS: usize = 3;
const FREEZES: usize = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// Daemons on one outbox.
pub(super) struct Crew<'a, B> {
    books: &'a B,
    start: Box<dyn Fn() -> Daemon + 'a>,
    daemons: Vec<Daemon>,
    faults: Faults,
}

/// What was done to them while they had rows in their hands.
#[derive(Debug, Default, Clone)]
pub(super) struct Faults {
    pub(super) kills: usize,
    pub(super) freezes: usize,
    /// Rows in the hands of all victims when it came over them.
    pub(super) in_flight: usize,
    /// Rows that a daemon which lived on found to be somebody else's.
    pub(super) lost: u64,
}

impl<'a, B: Books> Crew<'a, B> {
    pub(super) fn hire(books: &'a B, workers: usize, start: impl Fn() -> Daemon + 'a) -> Self {
        Self {
            books,
            daemons: (0..workers).map(|_| start()).collect(),
            start: Box::new(start),
            faults: Faults::default(),
        }
    }

    /// One fault after another for so long, and until there were enough.
    pub(super) async fn suffer(&mut self, length: Duration) {
        let began = Instant::now();
        while began.elapsed() < length || self.faults.kills < KILLS || self.faults.freezes < FREEZES {
            let is_late = began.elapsed() >= length;
            match fastrand::usize(..3) {
                // Only what is missing.
                _ if is_late && self.faults.kills < KILLS => self.kill_one().await,
                0 => self.freeze_one(false).await,
                1 => self.freeze_one(true).await,
                _ => self.kill_one().await,
            }
        }
    }

    /// Expects that all end in good order.
    pub(super) async fn dismiss(mut self) -> Faults {
        for daemon in self.daemons {
            self.faults.lost += lost(&daemon.stop().await);
        }
        self.faults
    }

    async fn kill_one(&mut self) {
        let (number, worker) = self.somebody_busy().await;
        self.daemons.swap_remove(number).kill().await;
        let held = self.held_by(worker).await;
        self.faults.kills += usize::from(held > 0);
        self.faults.in_flight += held;
        self.daemons.push((self.start)());
    }

    /// Stops one until its leases are over, and then lets it go on. Meanwhile another may be killed.
    async fn freeze_one(&mut self, kill_another: bool) {
        let (number, worker) = self.somebody_busy().await;
        let sleeper = self.daemons.swap_remove(number);
        sleeper.signal(Signal::STOP);
        let held = self.held_by(worker).await;
        self.faults.freezes += usize::from(held > 0);
        self.faults.in_flight += held;
        if kill_another && !self.daemons.is_empty() {
            self.kill_one().await;
        }
        let look = || async { self.books.is_overdue(worker).await.then_some(()) };
        eventually("the sleeper's leases are over", PATIENCE, look).await;
        chance().await;
        sleeper.signal(Signal::CONT);
        self.daemons.push(sleeper);
    }

    /// Waits until one has rows in its hands, and then a little.
    async fn somebody_busy(&self) -> (usize, Uuid) {
        let look = || async {
            let number = fastrand::usize(..self.daemons.len());
            let worker = self.daemons[number].worker()?;
            (self.books.held_by(worker).await > 0).then_some((number, worker))
        };
        let busy = eventually("somebody is busy", PATIENCE, look).await;
        chance().await;
        busy
    }

    async fn held_by(&self, worker: Uuid) -> usize {
        usize::try_from(self.books.held_by(worker).await).expect("a count")
    }
}

/// Not a wait for a fact: the moment is the test's chance.
async fn chance() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..800))).await;
}

/// How many rows a daemon says it has lost, when it has ended.
fn lost(said: &str) -> u64 {
    let number = said
        .rsplit_once(" lost=")
        .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    number
        .and_then(|digits| digits.parse().ok())
        .expect("it says what it lost")
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
