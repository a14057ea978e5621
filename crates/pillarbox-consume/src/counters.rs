//! Counts of what a consumer has done since it started.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::metrics::ConsumerMetrics;

/// Counters that only increase. They can be read at any time.
#[derive(Debug)]
pub struct Counters {
    pub(crate) metrics: ConsumerMetrics,
    received: AtomicU64,
    handled: AtomicU64,
    duplicates: AtomicU64,
    retried: AtomicU64,
    timed_out: AtomicU64,
    dead: AtomicU64,
    ignored: AtomicU64,
    released: AtomicU64,
    store_errors: AtomicU64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Snapshot {
    /// Messages received.
    pub received: u64,
    /// Events whose effects are committed.
    pub handled: u64,
    /// Deliveries of events that were handled before.
    pub duplicates: u64,
    /// Attempts that failed and are retried.
    pub retried: u64,
    /// Attempts whose handler took too long. They are retried, or were the last.
    pub timed_out: u64,
    /// Messages published as dead letters.
    pub dead: u64,
    /// Events of types without a handler.
    pub ignored: u64,
    /// Messages returned unhandled: shutdown, lost connection, revoked partition.
    pub released: u64,
    /// Failed database calls.
    pub store_errors: u64,
}

impl Counters {
    pub(crate) fn new(consumer: &str) -> Self {
        Self {
            metrics: ConsumerMetrics::new(consumer),
            received: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            ignored: AtomicU64::new(0),
            released: AtomicU64::new(0),
            store_errors: AtomicU64::new(0),
        }
    }

    /// The counters now.
    pub fn snapshot(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            received: read(&self.received),
            handled: read(&self.handled),
            duplicates: read(&self.duplicates),
            retried: read(&self.retried),
            timed_out: read(&self.timed_out),
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
        self.metrics.handled.increment(1);
        self.metrics.set_database(true);
    }

    pub(crate) fn duplicate(&self) {
        add(&self.duplicates);
        self.metrics.duplicate.increment(1);
        self.metrics.set_database(true);
    }

    pub(crate) fn retried(&self) {
        add(&self.retried);
        self.metrics.retry.increment(1);
    }

    pub(crate) fn timed_out(&self) {
        add(&self.timed_out);
    }

    /// A dead letter was published, of an event or of a message that holds none.
    pub(crate) fn dead(&self, holds_event: bool) {
        add(&self.dead);
        if holds_event {
            self.metrics.dead_letter.increment(1);
        } else {
            self.metrics.unreadable.increment(1);
        }
    }

    pub(crate) fn ignored(&self) {
        add(&self.ignored);
        self.metrics.ignored.increment(1);
    }

    pub(crate) fn released(&self) {
        add(&self.released);
    }

    pub(crate) fn store_error(&self) {
        add(&self.store_errors);
        self.metrics.set_database(false);
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
