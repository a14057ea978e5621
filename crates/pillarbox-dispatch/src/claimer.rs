//! Claims due rows for this worker and hands each to its destination's lanes.
//!
//! Never asks for more than there is room for: a row that waits here burns its lease without being
//! worked on, and another worker could have had it. Asks nothing at all while every destination is
//! closed.
//!
//! A wake is only a hint. Correctness comes from asking again when patience runs out.
//!
//! **If we die here** the lease ends and the next claim takes the rows. The attempt stays counted.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{ClaimRequest, Settlement, Take};
use pillarbox::{Delivery, StoreError, Verdict, Wake, failpoint};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::crowd::Notice;
use crate::gate::Sign;
use crate::held::{Lease, Room};
use crate::outage::Backoff;
use crate::pace::Pace;
use crate::recovery::{Asked, Recovery, Step};
use crate::router::Router;
use crate::settler::{SETTLER, Settled};
use crate::task::{Next, Task};
use crate::turns::Row;
use crate::worker::Worker;

/// How many rows whose lease ran out may be in flight: the next crash has few victims.
const RECOVERED: usize = 16;
/// How long a row is held that leads nowhere.
const UNROUTED: Duration = Duration::from_secs(60);
/// About how many (namespace, topic) without a route a warning is remembered.
const MOST_WARNINGS: usize = 1000;

/// The way to one destination's lanes.
pub(crate) struct Entrance {
    pub(crate) name: String,
    pub(crate) sign: Sign,
    pub(crate) crowd: Notice,
    /// How long a row waits that is turned away because of a crowd.
    pub(crate) patience: Duration,
    pub(crate) rows: UnboundedSender<Vec<Row>>,
}

impl Entrance {
    /// Lets rows in. Returns those that cannot be let in now, to be given back unsent.
    fn admit(&self, mut rows: Vec<Row>, now: Duration) -> Vec<Settled> {
        if let Some(wait) = self.sign.closed(now) {
            // The same wait for all, so that keys keep their order.
            return rows.iter().map(|row| turn_away(row, &self.name, wait)).collect();
        }
        let mut turned_away = Vec::new();
        if self.crowd.is_crowded() {
            let crowd = rows.extract_if(.., |row| row.ticket.key.is_none());
            turned_away.extend(crowd.map(|row| turn_away(&row, &self.name, self.patience)));
        }
        pass(&self.rows, rows);
        turned_away
    }
}

/// See the module.
pub(crate) struct Claimer {
    worker: Arc<Worker>,
    router: Router,
    entrances: Vec<Entrance>,
    settler: UnboundedSender<Vec<Settled>>,
    wake: Wake,
    alone: Arc<Asked>,
    pace: Pace,
    recovery: Recovery,
    backoff: Backoff,
    /// Does room that is given back end the wait?
    wants_room: bool,
    /// Where there is room for one row only, due rows and recovered ones take turns.
    recovered_first: bool,
    warned: HashSet<(String, String)>,
}

impl Claimer {
    pub(crate) fn new(
        worker: Arc<Worker>,
        router: Router,
        entrances: Vec<Entrance>,
        settler: UnboundedSender<Vec<Settled>>,
        wake: Wake,
        alone: Arc<Asked>,
    ) -> Self {
        let pace = Pace::new(worker.settings.poll_interval);
        Self {
            worker,
            router,
            entrances,
            settler,
            wake,
            alone,
            pace,
            recovery: Recovery::default(),
            backoff: Backoff::for_store(),
            wants_room: false,
            recovered_first: false,
            warned: HashSet::new(),
        }
    }

    /// Is there a reason to take nothing at all?
    fn has_to_wait(&self) -> bool {
        let now = self.worker.now();
        let is_closed = |entrance: &Entrance| entrance.sign.closed(now).is_some();
        // What came of earlier attempts is written first: after an outage we would otherwise claim our
        // own rows again, whose leases have ended and whose settlements wait.
        self.worker.outage.is_failing(SETTLER) || self.entrances.iter().all(is_closed)
    }

    /// Claims what is due, if anything is and there is room for it.
    async fn claim_due(&mut self) -> Result<Next, StoreError> {
        let Some(room) = self.room() else {
            self.wants_room = true;
            return Ok(Next::Wait(self.worker.settings.poll_interval));
        };
        let probes = self.pace.probes();
        if probes && !self.worker.store.is_due(&self.worker.settings.scope).await? {
            self.worked();
            return Ok(Next::Wait(self.pace.nothing()));
        }
        let take = self.due(room);
        let found = self.claim(take, room.bytes).await?;
        if found == Found::Nothing && probes && room.recovered > 0 {
            // Something is there that no ordinary claim takes.
            self.pace.misled();
            self.recovery.want();
            return Ok(Next::Again);
        }
        Ok(match found {
            Found::Rows => {
                self.pace.found();
                Next::Again
            }
            Found::Nothing | Found::Closed => Next::Wait(self.pace.nothing()),
        })
    }

    /// Claims one row with nothing else in flight.
    async fn claim_alone(&mut self) -> Result<Next, StoreError> {
        let found = self.claim(Take::Alone, self.worker.settings.max_bytes).await?;
        self.recovery.claimed(found != Found::Nothing);
        Ok(Next::Again)
    }

    /// The room that is left, if it is worth a claim: a few rows at a time would cost as much as many.
    fn room(&self) -> Option<Room> {
        let settings = &self.worker.settings;
        let taken = self.worker.held.taken();
        let rows = settings.max_in_flight.saturating_sub(taken.rows);
        let bytes = settings.max_bytes.saturating_sub(taken.bytes);
        let worth = (settings.batch.min(settings.max_in_flight) / 4).max(1);
        let recovered = RECOVERED.saturating_sub(taken.recovered).min(rows.div_ceil(2));
        (rows >= worth && bytes >= settings.max_bytes.div_ceil(4)).then_some(Room {
            rows,
            bytes,
            recovered,
        })
    }

    fn due(&mut self, room: Room) -> Take {
        let mut recovered = room.recovered;
        if room.rows == 1 && recovered == 1 {
            self.recovered_first = !self.recovered_first;
            recovered = usize::from(self.recovered_first);
        }
        Take::Due {
            limit: self.worker.settings.batch.min(room.rows - recovered),
            recovered,
        }
    }

    async fn claim(&mut self, take: Take, max_bytes: usize) -> Result<Found, StoreError> {
        let settings = &self.worker.settings;
        let request = ClaimRequest {
            worker: self.worker.id,
            claim: Uuid::now_v7(),
            lease: settings.lease,
            take,
            max_bytes,
            scope: settings.scope.clone(),
            max_attempts: settings.max_attempts,
        };
        let asked = self.worker.now();
        failpoint::hit("before_claim");
        let deliveries = self.worker.store.claim(&request).await?;
        self.worked();
        if deliveries.is_empty() {
            return Ok(Found::Nothing);
        }
        failpoint::hit("after_claim");
        self.worker.counters.claimed(deliveries.len());
        let lease = Arc::new(Lease::new(request.claim, asked, request.lease));
        self.worker.held.take(&lease, asked, &deliveries);
        Ok(self.hand_out(deliveries, &lease))
    }

    /// Hands each row to its destination, and gives back what cannot go there now.
    fn hand_out(&mut self, deliveries: Vec<Delivery>, lease: &Arc<Lease>) -> Found {
        let now = self.worker.now();
        let all = deliveries.len();
        let mut given_back = Vec::new();
        let mut bundles: Vec<Vec<Row>> = self.entrances.iter().map(|_| Vec::new()).collect();
        for delivery in deliveries {
            match self.router.route(&delivery.event) {
                Ok(number) => bundles[number].push(Row::new(delivery, lease, now)),
                Err(reason) => given_back.push(self.hold(&Row::new(delivery, lease, now), reason)),
            }
        }
        failpoint::hit("after_route");
        for (entrance, rows) in self.entrances.iter().zip(bundles) {
            if !rows.is_empty() {
                given_back.extend(entrance.admit(rows, now));
            }
        }
        let most_came_back = given_back.len() * 2 > all;
        self.give_back(given_back);
        if most_came_back {
            Found::Closed
        } else {
            Found::Rows
        }
    }

    /// A row that leads nowhere waits for somebody to add a route.
    fn hold(&mut self, row: &Row, reason: String) -> Settled {
        self.worker.counters.unrouted(1);
        let event = &row.delivery.event;
        let about = (event.namespace.clone(), event.topic.clone());
        if self.warned.len() < MOST_WARNINGS && self.warned.insert(about) {
            tracing::warn!(reason, "events are held; they are looked at again every minute");
        }
        let verdict = Verdict::Release {
            after: UNROUTED,
            reason: Some(reason),
        };
        settled(row, None, verdict)
    }

    fn give_back(&self, settled: Vec<Settled>) {
        if settled.is_empty() {
            return;
        }
        let ids = settled
            .iter()
            .map(|row| (row.settlement.claim, row.settlement.id));
        self.worker.held.answered(ids);
        pass(&self.settler, settled);
    }

    fn worked(&mut self) {
        self.worker.outage.worked("claimer");
        self.backoff.worked();
    }
}

/// What a claim came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Rows,
    /// Rows, but most of them had to be given back at once. As good as nothing: asking on would only
    /// churn the table.
    Closed,
}

impl Task for Claimer {
    async fn tick(&mut self) -> Next {
        self.wants_room = false;
        if self.has_to_wait() {
            return Next::Wait(self.worker.settings.poll_interval);
        }
        if self.alone.take() {
            self.recovery.want();
        }
        let in_flight = self.worker.held.taken().rows;
        let next = match self.recovery.step(in_flight, self.worker.now()) {
            Step::Claim => self.claim_due().await,
            Step::ClaimAlone => self.claim_alone().await,
            Step::Wait => {
                self.wants_room = true;
                Ok(Next::Wait(self.worker.settings.poll_interval))
            }
        };
        next.unwrap_or_else(|error| {
            self.worker.store_failed("claimer", &error);
            Next::Wait(self.backoff.failed(fastrand::f64()))
        })
    }

    async fn listen(&mut self) {
        tokio::select! {
            () = self.worker.held.freed(), if self.wants_room => {}
            () = self.alone.heard() => {}
            () = self.wake.rung() => self.pace.wake(),
        }
    }
}

/// A row whose destination is closed: given back unsent.
fn turn_away(row: &Row, destination: &str, after: Duration) -> Settled {
    settled(row, Some(destination), Verdict::Release { after, reason: None })
}

fn settled(row: &Row, destination: Option<&str>, verdict: Verdict) -> Settled {
    let settlement = Settlement {
        id: row.ticket.id,
        claim: row.ticket.lease.claim,
        verdict,
        destination: destination
            .filter(|_| !row.ticket.knows_destination)
            .map(str::to_owned),
        max_attempts: None,
    };
    let room = row.ticket.room;
    Settled { settlement, room }
}

fn pass<T>(to: &UnboundedSender<Vec<T>>, rows: Vec<T>) {
    if to.send(rows).is_err() {
        // Only when a task of ours has panicked, which ends the worker; the leases run out.
        tracing::error!("a task of this worker is gone; rows wait for their leases to end");
    }
}
