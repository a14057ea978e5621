//! Writes verdicts to the store, in batches.
//!
//! At once when nothing else is in flight, so that a single event is quick. Otherwise when there are enough, or the first
//! has waited long enough, so that a busy worker makes few statements. One statement runs at a time while the next batch
//! collects.
//!
//! While the store is unavailable all verdicts are kept. A late settlement is valid as long as no other claim took the
//! row. A settlement that lost its row changes nothing: it is counted and logged.
//!
//! **If we die here** rows stay in processing until their leases expire, and events may be sent again.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pillarbox::internal::LineLimit;
use pillarbox::{Delivery, StoreError, failpoint};
use pillarbox_store::Verdict;
use pillarbox_store::store::Settlement;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use uuid::Uuid;

use crate::metrics::Measure;
use crate::worker::Worker;
use crate::worker::in_flight::Room;
use crate::worker::task::{LONG, Next, Task};

/// The task's name.
pub(crate) const SETTLER: &str = "settler";
/// Enough for a statement.
const ENOUGH: usize = 500;
/// How long the first may wait for others.
const COLLECT: Duration = Duration::from_millis(10);
/// The most in one statement.
const MOST: usize = 2000;
/// How long to retry after a shutdown while the store is unavailable.
pub(crate) const FLUSH: Duration = Duration::from_secs(5);

/// A verdict that is not written yet, and the room that its row uses until then.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) settlement: Settlement,
    pub(crate) room: Room,
    /// What is measured of an attempt.
    pub(crate) measure: Option<Measure>,
}

impl Decided {
    pub(crate) fn new(delivery: &Delivery, verdict: Verdict) -> Self {
        Self {
            settlement: Settlement {
                id: delivery.id,
                claim: delivery.claim,
                verdict,
                destination: None,
                max_attempts: None,
                unordered: false,
                keep: true,
            },
            room: Room::of(delivery),
            measure: None,
        }
    }
}

/// Pending again at once, without using an attempt.
pub(crate) fn release() -> Verdict {
    Verdict::Release {
        after: Duration::ZERO,
        reason: None,
    }
}

/// Passes verdicts to the settler. Their rows need no lease from now on.
pub(crate) fn hand_over(worker: &Worker, settler: &UnboundedSender<Vec<Decided>>, decided: Vec<Decided>) {
    if decided.is_empty() {
        return;
    }
    let ids = decided
        .iter()
        .map(|row| (row.settlement.claim, row.settlement.id));
    worker.in_flight.decided(ids);
    if settler.send(decided).is_err() {
        tracing::error!("settler stopped, unsettled rows wait until their leases expire");
    }
}

/// See the module.
pub(crate) struct Settler {
    worker: Arc<Worker>,
    incoming: UnboundedReceiver<Vec<Decided>>,
    settlements: VecDeque<Settlement>,
    rooms: VecDeque<(Room, Option<Measure>)>,
    /// When the oldest arrived.
    first: Duration,
    /// When to give up; set when the last sender has stopped.
    give_up: Option<Duration>,
    lost_lines: LineLimit,
}

impl Settler {
    pub(crate) fn new(worker: Arc<Worker>, incoming: UnboundedReceiver<Vec<Decided>>) -> Self {
        Self {
            worker,
            incoming,
            settlements: VecDeque::new(),
            rooms: VecDeque::new(),
            first: Duration::ZERO,
            give_up: None,
            lost_lines: LineLimit::default(),
        }
    }

    fn collect(&mut self, decided: Vec<Decided>) {
        if self.settlements.is_empty() {
            self.first = self.worker.now();
        }
        for Decided {
            settlement,
            room,
            measure,
        } in decided
        {
            self.settlements.push_back(settlement);
            self.rooms.push_back((room, measure));
        }
    }

    /// When the next batch should be written.
    fn due(&self) -> Duration {
        let nothing_else = || self.worker.in_flight.used().rows <= self.settlements.len();
        let is_complete = self.give_up.is_some() || self.settlements.len() >= ENOUGH || nothing_else();
        if is_complete {
            self.first
        } else {
            self.first + COLLECT
        }
    }

    async fn write(&mut self) -> Result<(), StoreError> {
        let most = self.settlements.len().min(MOST);
        let batch = &self.settlements.make_contiguous()[..most];
        failpoint::hit("before_settle");
        let began = self.worker.now();
        let lost = self.worker.store.settle(self.worker.id, batch).await?;
        self.worker
            .metrics
            .settled(most, self.worker.now().saturating_sub(began));
        failpoint::hit("after_settle");
        self.written(most, &lost);
        Ok(())
    }

    fn written(&mut self, most: usize, lost: &[Uuid]) {
        self.report(lost);
        let lost: HashSet<Uuid> = lost.iter().copied().collect();
        let mut keyed = 0;
        let rows = self.settlements.drain(..most).zip(self.rooms.drain(..most));
        let (worker, now, wall) = (&self.worker, self.worker.now(), self.worker.clock.wall());
        let rows = rows.map(|(settlement, (room, measure))| {
            if !lost.contains(&settlement.id) {
                worker.counters.settled(&settlement.verdict);
                match (&measure, &settlement.verdict) {
                    (Some(measure), verdict) => {
                        measure.settled(verdict, now, |created| worker.metrics.age(created, wall));
                    }
                    (None, Verdict::Dead { .. }) => worker.metrics.dead(settlement.destination.as_deref()),
                    (None, _) => {}
                }
            }
            keyed += room.keyed;
            (settlement.claim, room)
        });
        self.worker.in_flight.free(rows);
        let left = self.worker.in_flight.used().keyed;
        self.worker.backlogs.settled(keyed, left);
        self.first = self.worker.now();
    }

    fn report(&mut self, lost: &[Uuid]) {
        if lost.is_empty() {
            return;
        }
        self.worker.lost(lost.len());
        if let Some(suppressed) = self.lost_lines.allow(self.worker.now()) {
            tracing::warn!(
                rows = lost.len(),
                suppressed,
                "lease lost before settling, events may be sent again"
            );
        }
        tracing::debug!(?lost, "rows lost before settling");
    }

    /// Have all senders stopped? Then sets when to give up.
    fn is_closed(&mut self, now: Duration) -> bool {
        if self.incoming.is_closed() && self.incoming.is_empty() {
            self.give_up.get_or_insert(now + FLUSH);
        }
        self.give_up.is_some()
    }
}

impl Task for Settler {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        while let Ok(decided) = self.incoming.try_recv() {
            self.collect(decided);
        }
        let now = self.worker.now();
        let is_closed = self.is_closed(now);
        if self.settlements.is_empty() {
            return Ok(if is_closed { Next::Done } else { Next::Wait(LONG) });
        }
        if self.give_up.is_some_and(|at| now >= at) {
            let rows = self.settlements.len();
            tracing::error!(rows, "database unavailable at shutdown, events may be sent again");
            return Ok(Next::Done);
        }
        if let Some(wait) = self.due().checked_sub(now).filter(|wait| !wait.is_zero()) {
            return Ok(Next::Wait(wait));
        }
        self.write().await?;
        Ok(Next::Again)
    }

    async fn listen(&mut self) {
        if self.give_up.is_some() {
            return std::future::pending().await;
        }
        match self.incoming.recv().await {
            Some(decided) => self.collect(decided),
            None => {
                self.give_up = Some(self.worker.now() + FLUSH);
            }
        }
    }
}
