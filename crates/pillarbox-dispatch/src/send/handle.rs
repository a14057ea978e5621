//! What the other tasks know of one destination, and how they reach its sender.
//!
//! The claimer asks for room, the router admits rows, the finder reports pauses. The handle and the sender share
//! atomics, so that no task waits for another.
//!
//! **If we die here** nothing is lost: rows that wait for the sender have a lease.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pillarbox_store::store::OpenBreaker;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::destination::Destination;
use crate::send::key_queues::Row;

/// How many suspects of one destination may be in flight: the next crash has few victims.
const MOST_SUSPECTS: usize = 16;

/// The same while all slots are taken. Then suspects wait for a slot, and a crash meanwhile counts as their attempt. With
/// none they would wait for the end of the backlog.
const FEW_SUSPECTS: usize = 4;

/// How many rows are claimed while the breaker is half-open, to choose one to send: the one with the fewest attempts.
const PROBES: usize = 16;

/// One destination, as the other tasks see it.
#[derive(Debug)]
pub(crate) struct DestinationHandle {
    pub(crate) name: String,
    /// Are its rows claimed in rotation over tenants?
    pub(crate) fair: bool,
    concurrency: usize,
    rows: UnboundedSender<Vec<Row>>,
    shared: Arc<Shared>,
}

/// What a handle and its sender share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Is the breaker open, or the destination disabled?
    tripped: AtomicBool,
    /// Is the breaker half-open? Then one event at a time is sent.
    half_open: AtomicBool,
    /// How many rows may wait.
    window: AtomicUsize,
    /// Is a suspect about to be tried alone? Then only suspects are sent, and waiting rows are released.
    quiet: AtomicBool,
    paused: AtomicBool,
    /// Has a pause ended since the sender last looked?
    resumed: AtomicBool,
    changed: Notify,
    /// Rows that were admitted and whose attempt has not begun.
    waiting: AtomicUsize,
    /// Attempts that are running.
    running: AtomicUsize,
    /// When the last attempt began, in nanoseconds.
    last_began: AtomicU64,
    /// Suspects that were admitted and have no verdict.
    suspects: AtomicUsize,
    /// The breaker as the heartbeat reports it, unless it is closed.
    breaker: Mutex<Option<OpenBreaker>>,
}

impl Shared {
    pub(crate) fn set_tripped(&self, tripped: bool) {
        self.tripped.store(tripped, Ordering::Release);
    }

    pub(crate) fn set_half_open(&self, half_open: bool) {
        self.half_open.store(half_open, Ordering::Release);
    }

    /// Sets what the heartbeat reports of the breaker: `None` if it is closed.
    pub(crate) fn set_breaker(&self, breaker: Option<OpenBreaker>) {
        *self.breaker.lock().unwrap_or_else(PoisonError::into_inner) = breaker;
    }

    pub(crate) fn set_window(&self, window: usize) {
        self.window.store(window, Ordering::Release);
    }

    /// Is a suspect about to be tried alone?
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Acquire)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Has a pause ended since this was last asked?
    pub(crate) fn take_resumed(&self) -> bool {
        self.resumed.swap(false, Ordering::AcqRel)
    }

    /// Waits until a pause or a quiet time begins or ends. Safe to cancel.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// So many waiting rows were released.
    pub(crate) fn released(&self, rows: usize) {
        self.waiting.fetch_sub(rows, Ordering::AcqRel);
    }

    /// The attempt of a waiting row begins.
    pub(crate) fn begins(&self, now: Duration) {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.last_began.store(now, Ordering::Release);
        // Before it stops waiting: it must be seen as one or the other.
        self.running.fetch_add(1, Ordering::AcqRel);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// So many attempts are running.
    pub(crate) fn set_running(&self, attempts: usize) {
        self.running.store(attempts, Ordering::Release);
    }

    /// A suspect has a verdict, or is lost.
    pub(crate) fn suspect_ended(&self) {
        self.suspects.fetch_sub(1, Ordering::AcqRel);
    }
}

impl DestinationHandle {
    /// A handle whose admitted rows go to `rows`.
    pub(crate) fn new(destination: &Destination, window: usize, rows: UnboundedSender<Vec<Row>>) -> Self {
        let shared = Shared::default();
        shared.set_window(window);
        Self {
            name: destination.name.clone(),
            fair: destination.fair_by_tenant,
            concurrency: destination.concurrency,
            rows,
            shared: Arc::new(shared),
        }
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// The store reports whether the destination is paused.
    pub(crate) fn set_paused(&self, paused: bool) {
        if self.shared.paused.swap(paused, Ordering::AcqRel) != paused {
            self.shared.resumed.store(!paused, Ordering::Release);
            self.shared.changed.notify_one();
        }
    }

    /// Is the breaker closed, and the destination neither paused nor disabled?
    pub(crate) fn is_available(&self) -> bool {
        !self.shared.is_paused() && !self.shared.tripped.load(Ordering::Acquire)
    }

    /// Begins or ends a quiet time.
    pub(crate) fn set_quiet(&self, quiet: bool) {
        if self.shared.quiet.swap(quiet, Ordering::AcqRel) != quiet {
            self.shared.changed.notify_one();
        }
    }

    /// Does nothing wait here, and has no attempt begun in the last `moment`?
    pub(crate) fn is_still(&self, moment: Duration, now: Duration) -> bool {
        let last = Duration::from_nanos(self.shared.last_began.load(Ordering::Acquire));
        let is_waiting = self.shared.waiting.load(Ordering::Acquire) > 0;
        !is_waiting && (self.running() == 0 || now.saturating_sub(last) >= moment)
    }

    /// How many attempts are running.
    pub(crate) fn running(&self) -> usize {
        self.shared.running.load(Ordering::Acquire)
    }

    /// How many rows to claim for it. None if few would fit: a claim of a few rows costs as much as one of many.
    pub(crate) fn room(&self) -> usize {
        let free = self.free();
        if free < self.window().div_ceil(4) { 0 } else { free }
    }

    /// How many more rows may wait for it.
    fn free(&self) -> usize {
        if !self.is_available() {
            return 0;
        }
        self.window()
            .saturating_sub(self.shared.waiting.load(Ordering::Acquire))
    }

    fn window(&self) -> usize {
        let is_half_open = self.shared.half_open.load(Ordering::Acquire);
        let most = if is_half_open { PROBES } else { usize::MAX };
        self.shared.window.load(Ordering::Acquire).min(most)
    }

    /// How many more suspects it takes.
    pub(crate) fn suspects_room(&self) -> usize {
        if self.free() == 0 {
            return 0;
        }
        let most = if self.has_slot() {
            MOST_SUSPECTS
        } else {
            FEW_SUSPECTS
        };
        most.saturating_sub(self.shared.suspects.load(Ordering::Acquire))
    }

    /// Does it take a suspect that is to be tried alone? Only if its attempt begins at once.
    fn takes_lone_suspect(&self) -> bool {
        self.suspects_room() > 0 && self.has_slot()
    }

    /// May another attempt begin?
    fn has_slot(&self) -> bool {
        self.running() < self.concurrency
    }

    /// Passes rows to the sender, as many as there is room for. Returns the others, to be released.
    ///
    /// It cuts the list at one place, so that no row of a key overtakes an earlier one that found no room.
    pub(crate) fn admit(&self, mut rows: Vec<Row>) -> Vec<Row> {
        // A fair destination takes rows only from its own backlog: only that is claimed in rotation over tenants.
        if self.fair {
            rows.sort_by_key(|row| !row.ticket.has_destination);
        }
        let own = rows.iter().filter(|row| row.ticket.has_destination).count();
        let most = if self.fair { own } else { rows.len() };
        let rest = rows.split_off(most.min(self.free()));
        self.shared.waiting.fetch_add(rows.len(), Ordering::AcqRel);
        let suspects = rows.iter().filter(|row| row.delivery.suspect).count();
        self.shared.suspects.fetch_add(suspects, Ordering::AcqRel);
        if !rows.is_empty() && self.rows.send(rows).is_err() {
            // Only after a sender panicked, which ends the worker.
            tracing::error!(
                destination = self.name,
                "sender stopped, rows wait until their leases expire"
            );
        }
        rest
    }
}

/// The names of destinations that take no suspect now.
pub(crate) fn without_suspects_room(destinations: &[DestinationHandle]) -> Vec<String> {
    let full = destinations
        .iter()
        .filter(|destination| destination.suspects_room() == 0);
    full.map(|destination| destination.name.clone()).collect()
}

/// The names of destinations that take no suspect now that is to be tried alone.
pub(crate) fn without_lone_suspect_room(destinations: &[DestinationHandle]) -> Vec<String> {
    let full = destinations
        .iter()
        .filter(|destination| !destination.takes_lone_suspect());
    full.map(|destination| destination.name.clone()).collect()
}

/// How many suspects to claim for these destinations in all.
pub(crate) fn suspects_room(destinations: &[DestinationHandle]) -> usize {
    let rooms = destinations.iter().map(DestinationHandle::suspects_room);
    rooms.filter(|room| *room > 0).min().unwrap_or(0)
}

/// The names of destinations that take nothing now.
pub(crate) fn unavailable(destinations: &[DestinationHandle]) -> Vec<String> {
    let unavailable = destinations
        .iter()
        .filter(|destination| !destination.is_available());
    unavailable.map(|destination| destination.name.clone()).collect()
}

/// The breakers of some destinations, for the heartbeat. It holds no handle, because a sender ends when the last handle is
/// dropped, and the heartbeat goes on until the senders have ended.
#[derive(Debug)]
pub(crate) struct Breakers(Vec<(String, Arc<Shared>)>);

impl Breakers {
    pub(crate) fn of(destinations: &[DestinationHandle]) -> Self {
        let shared = destinations.iter().map(|to| (to.name.clone(), to.shared()));
        Self(shared.collect())
    }

    /// The names of the destinations.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Which of them are open, in the order of the names. A paused destination is paused for all workers, so its breaker
    /// does not count.
    pub(crate) fn are_tripped(&self) -> impl Iterator<Item = bool> {
        let is_tripped = |shared: &Shared| !shared.is_paused() && shared.tripped.load(Ordering::Acquire);
        self.0.iter().map(move |(_, shared)| is_tripped(shared))
    }

    /// Those that are not closed, by destination; at most `most` of them.
    pub(crate) fn open(&self, most: usize) -> BTreeMap<String, OpenBreaker> {
        let open = self.0.iter().filter_map(|(name, shared)| {
            let breaker = shared.breaker.lock();
            let breaker = breaker.unwrap_or_else(PoisonError::into_inner).clone()?;
            Some((name.clone(), breaker))
        });
        open.take(most).collect()
    }
}
