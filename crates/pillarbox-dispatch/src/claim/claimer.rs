//! Takes rows for this worker from where the finder saw some, and passes them on to be sorted.
//!
//! Never asks for more than there is room for: a row that waits here burns its lease without being
//! worked on, and another worker could have had it. Asks nothing of a destination that takes nothing now.
//!
//! **If we die here** the lease ends and the next claim takes the rows. The attempt stays counted.

use std::collections::HashSet;
use std::sync::Arc;

use pillarbox::{Delivery, StoreError, failpoint};
use pillarbox_store::store::{Backlog, ClaimRequest, LANES, Share, Take};
use uuid::Uuid;

use crate::claim::suspects::{Asked, Step, Suspects};
use crate::find::backlogs::{Kind, Taken};
use crate::route::route_table::RouteTable;
use crate::route::router::Router;
use crate::send::handle::{Entrance, closed};
use crate::settle::settler::SETTLER;
use crate::worker::Worker;
use crate::worker::in_flight::{Lease, Room};
use crate::worker::store_health::Backoff;
use crate::worker::task::{LONG, Next, Task};

/// How many rows whose lease ran out may be in flight: the next crash has few victims.
const SUSPECTS: usize = 16;
/// A claim of so few keys takes longer runs of them, because there is no other target to be quick: the rows of a key go
/// one after another, and the next run is claimed when the last is settled.
const FEW_KEYS: usize = 8;
/// How many times as many rows a claim takes that have a key: to step from key to key costs as much as the rows.
const KEYED: usize = 2;
/// From how many backlogs a claim takes at the most.
const MAX_BACKLOGS: usize = 64;

/// Word from the sweeper of rows whose lease ran out.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// There are some that come in small groups.
    pub(crate) suspects: Asked,
    /// There is one that wants to be alone.
    pub(crate) lone_suspect: Asked,
}

/// See the module.
pub(crate) struct Claimer {
    worker: Arc<Worker>,
    routes: Arc<RouteTable>,
    entrances: Arc<[Entrance]>,
    router: Router,
    signals: Arc<Signals>,
    lone: Suspects,
    /// Are there rows whose lease ran out?
    suspects: bool,
    /// Which rows are claimed next, where there are both.
    turn: Kind,
    /// Did the last rows with a key have few keys?
    few_keys: bool,
    backoff: Backoff,
    /// Does room that is given back end the wait?
    wants_room: bool,
}

impl Claimer {
    pub(crate) fn new(
        worker: Arc<Worker>,
        routes: Arc<RouteTable>,
        entrances: Arc<[Entrance]>,
        router: Router,
        signals: Arc<Signals>,
    ) -> Self {
        Self {
            worker,
            routes,
            entrances,
            router,
            signals,
            lone: Suspects::default(),
            suspects: false,
            turn: Kind::Free,
            few_keys: false,
            backoff: Backoff::for_store(),
            wants_room: false,
        }
    }

    /// Claims what may be taken, if anything may and there is room for it.
    async fn claim_due(&mut self) -> Result<Next, StoreError> {
        let Some(room) = self.room() else {
            self.wants_room = true;
            return Ok(Next::Wait(self.worker.settings.poll_interval));
        };
        if self.suspects && room.suspects > 0 {
            let taken = self.claim(Take::Suspects(room.suspects), room.bytes).await?;
            self.suspects = !taken.is_empty();
            self.pass_on(taken).await;
        }
        for _ in 0..2 {
            let kind = self.turn;
            self.turn = kind.other();
            let shares = self.shares(kind, room.rows);
            if !shares.is_empty() {
                self.claim_from(kind, shares, room.bytes).await?;
                return Ok(Next::Again);
            }
        }
        self.wants_room = self.suspects;
        Ok(Next::Wait(LONG))
    }

    /// What each backlog may give.
    fn shares(&self, kind: Kind, rows: usize) -> Vec<Share> {
        let now = self.worker.now();
        let rows = match kind {
            Kind::Keyed if self.few_keys => rows,
            Kind::Keyed => rows.min(self.worker.settings.batch.saturating_mul(KEYED)),
            Kind::Free => rows.min(self.worker.settings.batch),
        };
        let room = |backlog: &Backlog| match &backlog.destination {
            // Where these go is known when they are here.
            None => Some((rows, false)),
            Some(name) => {
                let entrance = &self.entrances[self.routes.number(name)?];
                Some((entrance.room(now), entrance.fair))
            }
        };
        self.worker.backlogs.shares(kind, MAX_BACKLOGS, rows, room)
    }

    async fn claim_from(&mut self, kind: Kind, shares: Vec<Share>, bytes: usize) -> Result<(), StoreError> {
        let take = match kind {
            Kind::Free => Take::Free(shares.clone()),
            Kind::Keyed => Take::Keyed(shares.clone()),
        };
        let claimed = self.claim(take, bytes).await?;
        if kind == Kind::Keyed && !claimed.is_empty() {
            let keys: HashSet<&str> = claimed
                .rows
                .iter()
                .filter_map(|row| row.event.ordering_key.as_deref())
                .collect();
            self.few_keys = keys.len() <= FEW_KEYS;
        }
        let taken: Vec<Taken> = shares
            .iter()
            .map(|share| taken(kind, &share.backlog, &claimed.rows))
            .collect();
        self.worker.backlogs.took(kind, &shares, &taken);
        self.pass_on(claimed).await;
        Ok(())
    }

    /// Claims one row with nothing else in flight.
    async fn claim_alone(&mut self) -> Result<Next, StoreError> {
        let claimed = self
            .claim(Take::LoneSuspect, self.worker.settings.max_bytes)
            .await?;
        self.lone.claimed(!claimed.is_empty());
        self.pass_on(claimed).await;
        Ok(Next::Again)
    }

    /// The room that is left, if it is worth a claim: a few rows at a time would cost as much as many.
    fn room(&self) -> Option<Room> {
        let settings = &self.worker.settings;
        let taken = self.worker.in_flight.taken();
        let rows = settings.max_in_flight.saturating_sub(taken.rows);
        let bytes = settings.max_bytes.saturating_sub(taken.bytes);
        let worth = (settings.batch.min(settings.max_in_flight) / 4).max(1);
        let suspects = SUSPECTS.saturating_sub(taken.suspects).min(rows);
        (rows >= worth && bytes >= settings.max_bytes.div_ceil(4)).then_some(Room {
            rows,
            bytes,
            suspects,
            keyed: 0,
        })
    }

    async fn claim(&mut self, take: Take, max_bytes: usize) -> Result<Claimed, StoreError> {
        let settings = &self.worker.settings;
        let excluded = match take {
            Take::Free(_) | Take::Keyed(_) => Vec::new(),
            Take::Suspects(_) | Take::LoneSuspect => closed(&self.entrances, self.worker.now()),
        };
        let request = ClaimRequest {
            worker: self.worker.id,
            claim: Uuid::now_v7(),
            lease: settings.lease,
            take,
            excluded,
            first_lane: fastrand::u16(0..LANES),
            max_bytes,
            scope: settings.scope.clone(),
            max_attempts: settings.max_attempts,
        };
        let asked = self.worker.now();
        failpoint::hit("before_claim");
        let rows = self.worker.store.claim(&request).await?;
        self.worker.store_health.worked("claimer");
        self.backoff.worked();
        let lease = Arc::new(Lease::new(request.claim, asked, request.lease));
        if !rows.is_empty() {
            failpoint::hit("after_claim");
            self.worker.counters.claimed(rows.len());
            self.worker.in_flight.take(&lease, asked, &rows);
        }
        Ok(Claimed { rows, lease })
    }

    async fn pass_on(&mut self, claimed: Claimed) {
        if !claimed.rows.is_empty() {
            self.router.sort(claimed.rows, &claimed.lease).await;
        }
    }
}

/// Rows and the lease on them.
struct Claimed {
    rows: Vec<Delivery>,
    lease: Arc<Lease>,
}

impl Claimed {
    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// What came from one backlog.
fn taken(kind: Kind, backlog: &Backlog, rows: &[Delivery]) -> Taken {
    let from = |row: &&Delivery| {
        row.event.destination == backlog.destination && row.event.namespace == backlog.namespace
    };
    // The lowest that was taken; where rows that have waited are among them, about the lowest fresh one.
    let tried = rows.iter().any(|row| row.attempts > 1);
    let skip = if tried { rows.len() / 2 } else { 0 };
    Taken {
        rows: rows.iter().filter(from).count(),
        floor: match kind {
            Kind::Free => rows.iter().filter(from).nth(skip).map(|row| row.seq),
            Kind::Keyed => None,
        },
    }
}

impl Task for Claimer {
    async fn tick(&mut self) -> Next {
        self.wants_room = false;
        // What came of earlier attempts is written first: after an outage we would otherwise claim our
        // own rows again, whose leases have ended and whose settlements wait.
        if self.worker.store_health.is_failing(SETTLER) {
            return Next::Wait(self.worker.settings.poll_interval);
        }
        if self.signals.lone_suspect.take() {
            self.lone.want();
        }
        self.suspects |= self.signals.suspects.take();
        let in_flight = self.worker.in_flight.taken().rows;
        let next = match self.lone.step(in_flight, self.worker.now()) {
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
            () = self.worker.in_flight.freed(), if self.wants_room => {}
            () = self.signals.lone_suspect.heard() => {}
            () = self.signals.suspects.heard() => {}
            () = self.worker.backlogs.ready() => {}
        }
    }
}
