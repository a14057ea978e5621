//! Writes down what came of attempts, in batches.
//!
//! At once when nothing else is under target, so that a single event is quick; otherwise when there are
//! enough or the first has waited long enough, so that a busy worker makes few statements. One settle
//! at a time; the next collects meanwhile.
//!
//! When the store does not answer, everything is kept and tried again until it does: a settle is good
//! however late, as long as nobody touched the row. A settle that no longer owns its row changed
//! nothing; that is logged and counted, and never answered with another.
//!
//! **If we die here** rows stay in processing and their leases end: events may be sent again.

use std::collections::{HashSet, VecDeque};
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::failpoint;
use pillarbox_store::Verdict;
use pillarbox_store::store::Settlement;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use uuid::Uuid;

use crate::worker::Worker;
use crate::worker::in_flight::Room;
use crate::worker::store_health::Backoff;
use crate::worker::task::{LONG, Next, Task};

/// The task's name.
pub(crate) const SETTLER: &str = "settler";
/// Enough to be worth a statement.
const ENOUGH: usize = 500;
/// How long the first may wait for others.
const COLLECT: Duration = Duration::from_millis(10);
/// The most in one statement.
const MOST: usize = 2000;
/// How long to go on trying after a shutdown if the store is gone.
pub(crate) const FLUSH: Duration = Duration::from_secs(5);

/// A verdict, and the room that its row takes until it is written.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) settlement: Settlement,
    pub(crate) room: Room,
}

/// Given back unsent, with nothing to say about it.
pub(crate) fn release() -> Verdict {
    Verdict::Release {
        after: Duration::ZERO,
        reason: None,
    }
}

/// Hands verdicts to the settler: their rows need no lease any more.
pub(crate) fn hand_over(worker: &Worker, settler: &UnboundedSender<Vec<Settled>>, settled: Vec<Settled>) {
    if settled.is_empty() {
        return;
    }
    let ids = settled
        .iter()
        .map(|row| (row.settlement.claim, row.settlement.id));
    worker.in_flight.answered(ids);
    if settler.send(settled).is_err() {
        tracing::error!("the settler is gone; what was not settled waits for its lease to end");
    }
}

/// See the module.
pub(crate) struct Settler {
    worker: Arc<Worker>,
    inbox: UnboundedReceiver<Vec<Settled>>,
    settlements: VecDeque<Settlement>,
    rooms: VecDeque<Room>,
    /// When the oldest came.
    first: Duration,
    backoff: Backoff,
    /// Not before this, after an error.
    not_before: Duration,
    /// When to give up; set when there is nobody left to settle for.
    give_up: Option<Duration>,
}

impl Settler {
    pub(crate) fn new(worker: Arc<Worker>, inbox: UnboundedReceiver<Vec<Settled>>) -> Self {
        Self {
            worker,
            inbox,
            settlements: VecDeque::new(),
            rooms: VecDeque::new(),
            first: Duration::ZERO,
            backoff: Backoff::for_store(),
            not_before: Duration::ZERO,
            give_up: None,
        }
    }

    fn collect(&mut self, settled: Vec<Settled>) {
        if self.settlements.is_empty() {
            self.first = self.worker.now();
        }
        for Settled { settlement, room } in settled {
            self.settlements.push_back(settlement);
            self.rooms.push_back(room);
        }
    }

    /// When the next batch should be written.
    fn due(&self) -> Duration {
        let nothing_else = || self.worker.in_flight.taken().rows <= self.settlements.len();
        let collected = self.give_up.is_some() || self.settlements.len() >= ENOUGH || nothing_else();
        let due = if collected {
            self.first
        } else {
            self.first + COLLECT
        };
        due.max(self.not_before)
    }

    async fn write(&mut self) -> Next {
        let most = self.settlements.len().min(MOST);
        let batch = &self.settlements.make_contiguous()[..most];
        failpoint::hit("before_settle");
        match self.worker.store.settle(self.worker.id, batch).await {
            Ok(lost) => {
                failpoint::hit("after_settle");
                self.written(most, &lost);
                Next::Again
            }
            Err(error) => {
                self.worker.store_failed(SETTLER, &error);
                let wait = self.backoff.failed(fastrand::f64());
                self.not_before = self.worker.now() + wait;
                Next::Wait(wait)
            }
        }
    }

    fn written(&mut self, most: usize, lost: &[Uuid]) {
        self.worker.store_health.worked(SETTLER);
        self.backoff.worked();
        self.report(lost);
        let lost: HashSet<Uuid> = lost.iter().copied().collect();
        for settlement in self.settlements.drain(..most) {
            if !lost.contains(&settlement.id) {
                self.worker.counters.settled(&settlement.verdict);
            }
        }
        let room = self.rooms.drain(..most).fold(Room::default(), Room::add);
        self.worker.in_flight.free(room);
        let left = self.worker.in_flight.taken().keyed;
        self.worker.backlogs.settled(room.keyed, left);
        self.first = self.worker.now();
    }

    fn report(&self, lost: &[Uuid]) {
        if lost.is_empty() {
            return;
        }
        self.worker.counters.lost(lost.len());
        tracing::warn!(
            rows = lost.len(),
            "rows were no longer ours when they were settled; they are unchanged and may be sent again"
        );
        tracing::debug!(?lost, "rows that were no longer ours");
    }

    fn is_closed(&mut self, now: Duration) -> bool {
        if self.inbox.is_closed() && self.inbox.is_empty() {
            self.give_up.get_or_insert(now + FLUSH);
        }
        self.give_up.is_some()
    }
}

impl Task for Settler {
    async fn tick(&mut self) -> Next {
        while let Ok(settled) = self.inbox.try_recv() {
            self.collect(settled);
        }
        let now = self.worker.now();
        let is_closed = self.is_closed(now);
        if self.settlements.is_empty() {
            return if is_closed { Next::Done } else { Next::Wait(LONG) };
        }
        if self.give_up.is_some_and(|at| now >= at) {
            let rows = self.settlements.len();
            tracing::error!(
                rows,
                "the store did not come back; rows that were sent will be sent again"
            );
            return Next::Done;
        }
        match self.due().checked_sub(now) {
            Some(wait) if !wait.is_zero() => Next::Wait(wait),
            Some(_) | None => self.write().await,
        }
    }

    async fn listen(&mut self) {
        if self.give_up.is_some() {
            return std::future::pending().await;
        }
        match self.inbox.recv().await {
            Some(settled) => self.collect(settled),
            None => {
                self.give_up = Some(self.worker.now() + FLUSH);
            }
        }
    }
}
