//! What the other tasks know of one destination, and how they reach its sender.
//!
//! The claimer asks for room, the router admits rows, the finder reports pauses. The handle and the sender share
//! atomics, so that no task waits for another.
//!
//! **If we die here** nothing is lost: rows that wait for the sender have a lease.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pillarbox_store::store::OpenBreaker;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::destination::Destination;
use crate::send::key_queues::Row;
use crate::settings::Settings;

/// How many rows are claimed while the breaker is half-open, to choose one to send: the one with the fewest attempts.
const PROBES: usize = 16;

/// One destination, as the other tasks see it.
#[derive(Debug)]
pub(crate) struct DestinationHandle {
    pub(crate) name: String,
    /// Are its rows claimed in rotation over tenants?
    pub(crate) fair: bool,
    /// How many rows may wait for it.
    capacity: usize,
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
    /// Does the sender release rows because too many wait?
    backpressure: AtomicBool,
    paused: AtomicBool,
    /// Has a pause ended since the sender last looked?
    resumed: AtomicBool,
    pause_changed: Notify,
    /// Rows that were admitted and whose attempt has not begun.
    waiting: AtomicUsize,
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

    pub(crate) fn set_backpressure(&self, backpressure: bool) {
        self.backpressure.store(backpressure, Ordering::Release);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Has a pause ended since this was last asked?
    pub(crate) fn take_resumed(&self) -> bool {
        self.resumed.swap(false, Ordering::AcqRel)
    }

    /// Waits until a pause begins or ends. Safe to cancel.
    pub(crate) async fn pause_changed(&self) {
        self.pause_changed.notified().await;
    }

    /// The attempts of so many rows have begun, or the rows were released.
    pub(crate) fn no_longer_waiting(&self, rows: usize) {
        self.waiting.fetch_sub(rows, Ordering::AcqRel);
    }
}

impl DestinationHandle {
    /// A handle for one of `destinations` that share the room of a worker. Admitted rows go to `rows`.
    pub(crate) fn new(
        destination: &Destination,
        destinations: usize,
        settings: &Settings,
        rows: UnboundedSender<Vec<Row>>,
    ) -> Self {
        Self {
            name: destination.name.clone(),
            fair: destination.fair_by_tenant,
            capacity: capacity(destination, destinations, settings),
            rows,
            shared: Arc::default(),
        }
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// The store reports whether the destination is paused.
    pub(crate) fn set_paused(&self, paused: bool) {
        if self.shared.paused.swap(paused, Ordering::AcqRel) != paused {
            self.shared.resumed.store(!paused, Ordering::Release);
            self.shared.pause_changed.notify_one();
        }
    }

    /// Is the breaker closed, and the destination neither paused nor disabled?
    pub(crate) fn is_available(&self) -> bool {
        !self.shared.is_paused() && !self.shared.tripped.load(Ordering::Acquire)
    }

    /// How many more rows it takes.
    pub(crate) fn room(&self) -> usize {
        if !self.is_available() || self.shared.backpressure.load(Ordering::Acquire) {
            return 0;
        }
        let is_half_open = self.shared.half_open.load(Ordering::Acquire);
        let most = if is_half_open { PROBES } else { self.capacity };
        self.capacity
            .min(most)
            .saturating_sub(self.shared.waiting.load(Ordering::Acquire))
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
        let rest = rows.split_off(most.min(self.room()));
        self.shared.waiting.fetch_add(rows.len(), Ordering::AcqRel);
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

/// How many rows may wait for a destination: twice its concurrency or twice its part of the room. With a rate limit, at
/// most what it sends in a second.
fn capacity(destination: &Destination, destinations: usize, settings: &Settings) -> usize {
    let part = (settings.max_in_flight / destinations).max(destination.concurrency);
    let most = part.saturating_mul(2).clamp(1, settings.max_in_flight.max(1));
    match destination.rate {
        None => most,
        Some(rate) => {
            // The cast saturates.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let second = rate.per_second.ceil() as usize;
            most.min(second.max(rate.burst as usize).max(1))
        }
    }
}
