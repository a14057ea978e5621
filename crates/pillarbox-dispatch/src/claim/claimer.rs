//! Claims rows for this worker from the backlogs that the finder saw, and routes them. The store writes the families of one
//! claim while the next claim runs.
//!
//! Never claims more than there is room for: a waiting row uses up its lease, and another worker could send it. Claims
//! nothing for a destination that is paused, or whose breaker is open.
//!
//! **If we die here** the lease expires and another claim takes the rows. The attempt stays counted.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::internal::LineLimit;
use pillarbox::{Delivery, StoreError, failpoint};
use pillarbox_store::store::{Backlog, ClaimRequest, LANES, Share, Take};
use uuid::Uuid;

use crate::claim::suspects::{MOMENT, Step, Suspects, Tried};
use crate::find::backlogs::{Kind, Taken};
use crate::route::route_table::RouteTable;
use crate::route::router::Router;
use crate::send::handle::{
    DestinationHandle, suspects_room, without_lone_suspect_room, without_suspects_room,
};
use crate::settle::settler::SETTLER;
use crate::worker::Worker;
use crate::worker::flag::Flag;
use crate::worker::in_flight::{Lease, Room};
use crate::worker::task::{LONG, Next, Task};

/// With so few keys a claim takes longer runs of each. Nothing else makes them quick, because a key's rows are sent one
/// by one and its next run is claimed when the last is settled.
const FEW_KEYS: usize = 8;
/// A claim of rows with keys takes so many batches: stepping from key to key costs as much as the rows.
const KEYED_BATCHES: usize = 2;
/// From how many backlogs one claim takes.
const MOST_BACKLOGS: usize = 64;

/// What the sweeper reports to the claimer.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// There are suspects to be tried in small groups.
    pub(crate) suspects: Flag,
    /// There is a suspect to be tried alone.
    pub(crate) lone_suspect: Flag,
}

/// See the module.
pub(crate) struct Claimer {
    worker: Arc<Worker>,
    routes: Arc<RouteTable>,
    destinations: Arc<[DestinationHandle]>,
    router: Router,
    signals: Arc<Signals>,
    /// Raised when a claim has made rows dead: they may block their keys.
    has_dead: Arc<Flag>,
    lone_suspects: Suspects,
    /// Do the senders keep quiet for a suspect?
    is_quiet: bool,
    /// Are there suspects?
    suspects: bool,
    /// The kind of rows that is claimed next.
    next_kind: Kind,
    /// Did the last claim of rows with keys have few keys?
    few_keys: bool,
    /// Does freed room end the wait?
    wants_room: bool,
    reclaimed_lines: LineLimit,
}

impl Claimer {
    pub(crate) fn new(
        worker: Arc<Worker>,
        routes: Arc<RouteTable>,
        destinations: Arc<[DestinationHandle]>,
        router: Router,
        signals: Arc<Signals>,
        has_dead: Arc<Flag>,
    ) -> Self {
        Self {
            worker,
            routes,
            destinations,
            router,
            signals,
            has_dead,
            lone_suspects: Suspects::default(),
            is_quiet: false,
            suspects: false,
            next_kind: Kind::Free,
            few_keys: false,
            reclaimed_lines: LineLimit::default(),
            wants_room: false,
        }
    }

    /// Claims due rows, if there are any and there is room.
    async fn claim_due(&mut self) -> Result<Next, StoreError> {
        let Some(room) = self.room() else {
            self.wants_room = true;
            return Ok(Next::Wait(self.worker.settings.poll_interval));
        };
        if self.suspects {
            self.claim_suspects(&room).await?;
        }
        for _ in 0..2 {
            let kind = self.next_kind;
            self.next_kind = kind.other();
            let shares = self.shares(kind, room.rows);
            if !shares.is_empty() {
                self.claim_from(kind, shares, room.bytes).await?;
                return Ok(Next::Again);
            }
        }
        self.wants_room = self.suspects;
        Ok(Next::Wait(LONG))
    }

    /// Claims a small group of suspects.
    async fn claim_suspects(&mut self, room: &Room) -> Result<(), StoreError> {
        let most = suspects_room(&self.destinations).min(room.rows);
        if most == 0 {
            return Ok(());
        }
        let claimed = self.claim(Take::Suspects(most), room.bytes).await?;
        self.suspects = !claimed.is_empty();
        self.route(claimed);
        Ok(())
    }

    /// How much to claim from each backlog.
    fn shares(&self, kind: Kind, free: usize) -> Vec<Share> {
        let rows = match kind {
            Kind::Keyed if self.few_keys => free,
            Kind::Keyed => free.min(self.worker.settings.batch.saturating_mul(KEYED_BATCHES)),
            Kind::Free => free.min(self.worker.settings.batch),
        };
        let room = |backlog: &Backlog| match &backlog.destination {
            // Routing finds their destinations after the claim, and may make several rows of each.
            None => Some(((free / self.router.fan_out()).clamp(1, rows.max(1)), false)),
            Some(name) => {
                let destination = &self.destinations[self.routes.number(name)?];
                Some((destination.room(), destination.fair))
            }
        };
        self.worker.backlogs.shares(kind, MOST_BACKLOGS, rows, room)
    }

    async fn claim_from(&mut self, kind: Kind, shares: Vec<Share>, bytes: usize) -> Result<(), StoreError> {
        let take = match kind {
            Kind::Free => Take::Free(shares.clone()),
            Kind::Keyed => Take::Keyed(shares.clone()),
        };
        let is_unrouted = shares.iter().any(|share| share.backlog.destination.is_none());
        let fan_out = if is_unrouted { self.router.fan_out() } else { 1 };
        let bytes = (bytes / fan_out).max(1);
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
        let now = self.worker.now();
        self.worker.backlogs.claimed(kind, &shares, &taken, now);
        self.route(claimed);
        Ok(())
    }

    /// Claims one suspect in a quiet time.
    async fn claim_alone(&mut self) -> Result<Next, StoreError> {
        let claimed = self
            .claim(Take::LoneSuspect, self.worker.settings.max_bytes)
            .await?;
        let now = self.worker.now();
        match claimed.rows.first() {
            Some(row) => {
                let most = row.max_attempts.unwrap_or(self.worker.settings.max_attempts);
                let tried = Tried::new(claimed.lease.claim, row.attempts, most);
                self.lone_suspects.claimed(tried, now);
            }
            None => self.lone_suspects.found_none(now),
        }
        self.route(claimed);
        Ok(Next::Again)
    }

    /// Has no attempt begun a moment ago, and is nothing else in flight than what is being sent?
    fn is_still(&self, now: Duration) -> bool {
        let running: usize = self.destinations.iter().map(DestinationHandle::running).sum();
        let still = |destination: &DestinationHandle| destination.is_still(MOMENT, now);
        self.worker.in_flight.used().rows <= running && self.destinations.iter().all(still)
    }

    fn set_quiet(&mut self, quiet: bool) {
        if std::mem::replace(&mut self.is_quiet, quiet) != quiet {
            for destination in self.destinations.iter() {
                destination.set_quiet(quiet);
            }
        }
    }

    /// The free room, if it is worth a claim: a claim of a few rows costs as much as one of many.
    fn room(&self) -> Option<Room> {
        let settings = &self.worker.settings;
        let used = self.worker.in_flight.used();
        let reserved = self.router.reserved();
        let rows = settings.max_in_flight.saturating_sub(used.rows + reserved.rows);
        let bytes = settings
            .max_bytes
            .saturating_sub(used.bytes.saturating_add(reserved.bytes));
        let worth = (settings.batch.min(settings.max_in_flight) / 4).max(1);
        (rows >= worth && bytes >= settings.max_bytes.div_ceil(4)).then_some(Room {
            rows,
            bytes,
            ..Room::default()
        })
    }

    async fn claim(&mut self, take: Take, max_bytes: usize) -> Result<Claimed, StoreError> {
        let settings = &self.worker.settings;
        let excluded = match take {
            Take::Free(_) | Take::Keyed(_) => Vec::new(),
            Take::Suspects(_) => without_suspects_room(&self.destinations),
            Take::LoneSuspect => without_lone_suspect_room(&self.destinations),
        };
        let request = ClaimRequest {
            worker: self.worker.id,
            claim: Uuid::new_v4(),
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
        let claimed = self.worker.store.claim(&request).await;
        if self.worker.store.take_unreadable() {
            self.has_dead.raise();
        }
        let rows = claimed?;
        self.worker
            .metrics
            .claimed(rows.len(), self.worker.now().saturating_sub(asked));
        let lease = Arc::new(Lease::new(request.claim, asked, request.lease));
        if !rows.is_empty() {
            failpoint::hit("after_claim");
            self.worker.counters.claimed(rows.len());
            self.log(&request.take, rows.len());
            self.worker.in_flight.add(&lease, asked, &rows);
        }
        Ok(Claimed { rows, lease })
    }

    fn log(&mut self, take: &Take, rows: usize) {
        tracing::debug!(worker_id = %self.worker.id, batch_size = rows, "batch claimed");
        match take {
            Take::Free(_) | Take::Keyed(_) => {}
            Take::Suspects(_) | Take::LoneSuspect => {
                if let Some(suppressed) = self.reclaimed_lines.allow(self.worker.now()) {
                    tracing::info!(rows, suppressed, "expired leases reclaimed");
                }
            }
        }
    }

    /// Makes the next claim, if there is something to claim and it is time.
    async fn claim_next(&mut self) -> Result<Next, StoreError> {
        // Settlements come first. After an outage this worker would otherwise claim its own rows again, whose leases have
        // expired and whose settlements wait.
        if self.worker.store_health.is_failing(SETTLER) {
            return Ok(Next::Wait(self.worker.settings.poll_interval));
        }
        if self.signals.lone_suspect.take() {
            self.lone_suspects.want();
        }
        self.suspects |= self.signals.suspects.take();
        let now = self.worker.now();
        let worker = Arc::clone(&self.worker);
        let is_unsettled = |claim| worker.in_flight.has_suspects(claim);
        let mut lone_suspects = std::mem::take(&mut self.lone_suspects);
        let step = lone_suspects.step(now, || self.is_still(now), is_unsettled);
        self.lone_suspects = lone_suspects;
        self.set_quiet(step != Step::Claim);
        match step {
            Step::Claim => {
                let next = self.claim_due().await?;
                Ok(match (next, self.lone_suspects.due()) {
                    (Next::Wait(wait), Some(due)) => {
                        Next::Wait(wait.min(due.saturating_sub(now).max(MOMENT)))
                    }
                    (next, _) => next,
                })
            }
            Step::ClaimAlone => self.claim_alone().await,
            Step::Wait(until) => {
                self.wants_room = true;
                Ok(Next::Wait(until.saturating_sub(now)))
            }
        }
    }

    fn route(&mut self, claimed: Claimed) {
        if !claimed.is_empty() {
            self.router.accept(claimed.rows, claimed.lease);
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

/// How much a claim took from one backlog.
fn taken(kind: Kind, backlog: &Backlog, rows: &[Delivery]) -> Taken {
    let from = |row: &&Delivery| {
        row.event.destination == backlog.destination && row.event.namespace == backlog.namespace
    };
    // The lowest `seq` that was claimed. With retried rows among them, about the lowest fresh one.
    let has_retried = rows.iter().any(|row| row.attempts > 1);
    let skip = if has_retried { rows.len() / 2 } else { 0 };
    Taken {
        rows: rows.iter().filter(from).count(),
        fresh: rows.iter().filter(from).filter(|row| row.attempts <= 1).count(),
        floor: match kind {
            Kind::Free => rows.iter().filter(from).nth(skip).map(|row| row.seq),
            Kind::Keyed => None,
        },
    }
}

impl Task for Claimer {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        self.wants_room = false;
        let next = match self.router.next_families() {
            None => self.claim_next().await,
            Some(families) => {
                let worker = Arc::clone(&self.worker);
                let write = worker.store.route(worker.id, &families);
                let (routed, next) = if self.router.may_claim() {
                    tokio::join!(write, self.claim_next())
                } else {
                    (write.await, Ok(Next::Again))
                };
                self.router.written(families.len(), routed)?;
                next
            }
        }?;
        Ok(if self.router.is_pending() {
            Next::Again
        } else {
            next
        })
    }

    async fn listen(&mut self) {
        tokio::select! {
            () = self.worker.in_flight.freed(), if self.wants_room => {}
            () = self.signals.lone_suspect.raised() => {}
            () = self.signals.suspects.raised() => {}
            () = self.worker.backlogs.ready() => {}
        }
    }

    fn stopped(&mut self) {
        self.router.release();
    }
}
