//! What a consumer has done since it started, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counts that only grow. Read by anybody, at any time.
#[derive(Debug, Default)]
pub struct Counters {
    received: AtomicU64,
    handled: AtomicU64,
    already: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    ignored: AtomicU64,
    released: AtomicU64,
    store_errors: AtomicU64,
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Snapshot {
    /// Messages that came.
    pub received: u64,
    /// Events whose effects are committed.
    pub handled: u64,
    /// Deliveries of events that were handled before.
    pub already: u64,
    /// Attempts that failed and will be made again.
    pub retried: u64,
    /// Messages given up on: they are among the dead letters.
    pub dead: u64,
    /// Events of types that nobody handles here.
    pub ignored: u64,
    /// Messages given back unhandled: at a shutdown, or because they became somebody else's.
    pub released: u64,
    /// Calls to the database that failed.
    pub store_errors: u64,
}

impl Counters {
    /// The counts now.
    pub fn snapshot(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            received: read(&self.received),
            handled: read(&self.handled),
            already: read(&self.already),
            retried: read(&self.retried),
            dead: read(&self.dead),
            ignored: read(&self.ignored),
            released: read(&self.released),
            store_errors: read(&self.store_errors),
        }
    }

    pub(crate) fn received(&self) {
        add(&self.received);
    }

    pub(crate) fn handled(&self) {
        add(&self.handled);
    }

    pub(crate) fn already(&self) {
        add(&self.already);
    }

    pub(crate) fn retried(&self) {
        add(&self.retried);
    }

    pub(crate) fn dead(&self) {
        add(&self.dead);
    }

    pub(crate) fn ignored(&self) {
        add(&self.ignored);
    }

    pub(crate) fn released(&self) {
        add(&self.released);
    }

    pub(crate) fn store_error(&self) {
        add(&self.store_errors);
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
