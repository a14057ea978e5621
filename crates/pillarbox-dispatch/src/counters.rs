//! What a dispatcher has done since it started, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use pillarbox_store::Verdict;
use pillarbox_store::retention::Pruned;
use serde::Serialize;

/// Counts that only grow. Any thread may read them at any time.
#[derive(Debug, Default)]
pub struct Counters {
    claimed: AtomicU64,
    delivered: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    released: AtomicU64,
    suspected: AtomicU64,
    unrouted: AtomicU64,
    deleted: AtomicU64,
    lost: AtomicU64,
    store_errors: AtomicU64,
    pruned: AtomicU64,
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Snapshot {
    /// Rows claimed.
    pub claimed: u64,
    /// Rows settled as delivered.
    pub delivered: u64,
    /// Attempts that failed and are retried.
    pub retried: u64,
    /// Rows that are dead, by an outcome or by a sweep.
    pub dead: u64,
    /// Rows released: pending again, without using an attempt.
    pub released: u64,
    /// Rows that became suspects, because their connection was lost.
    pub suspected: u64,
    /// Rows that no route matched.
    pub unrouted: u64,
    /// Unrouted rows that were deleted, because the settings say so.
    pub deleted: u64,
    /// Rows whose lease was lost before they were sent or settled.
    pub lost: u64,
    /// Calls to the store that failed.
    pub store_errors: u64,
    /// Rows, sagas and marks that were deleted because they were kept long enough.
    pub pruned: u64,
}

impl Snapshot {
    /// Attempts that failed.
    pub fn failed(&self) -> u64 {
        self.retried + self.suspected + self.dead
    }
}

impl Counters {
    /// The counts now.
    pub fn snapshot(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            claimed: read(&self.claimed),
            delivered: read(&self.delivered),
            retried: read(&self.retried),
            dead: read(&self.dead),
            released: read(&self.released),
            suspected: read(&self.suspected),
            unrouted: read(&self.unrouted),
            deleted: read(&self.deleted),
            lost: read(&self.lost),
            store_errors: read(&self.store_errors),
            pruned: read(&self.pruned),
        }
    }

    pub(crate) fn claimed(&self, rows: usize) {
        add(&self.claimed, rows);
    }

    pub(crate) fn unrouted(&self, rows: usize) {
        add(&self.unrouted, rows);
    }

    pub(crate) fn lost(&self, rows: usize) {
        add(&self.lost, rows);
    }

    pub(crate) fn swept(&self, rows: usize) {
        add(&self.dead, rows);
    }

    pub(crate) fn store_error(&self) {
        add(&self.store_errors, 1);
    }

    pub(crate) fn pruned(&self, pruned: &Pruned) {
        self.pruned.fetch_add(pruned.total(), Ordering::Relaxed);
    }

    pub(crate) fn settled(&self, verdict: &Verdict) {
        let counter = match verdict {
            Verdict::Delivered => &self.delivered,
            Verdict::Retry { .. } => &self.retried,
            Verdict::Dead { .. } => &self.dead,
            Verdict::Release { .. } => &self.released,
            Verdict::Delete => &self.deleted,
            Verdict::Suspect { .. } => &self.suspected,
        };
        add(counter, 1);
    }
}

fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}
