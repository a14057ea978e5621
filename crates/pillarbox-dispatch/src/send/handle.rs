//! The target to one destination's lanes: what the claimer and the router may know of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::send::backpressure::Notice;
use crate::send::breaker::Sign;
use crate::send::key_queues::Row;

/// How many rows wait at a destination, on their target there included.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue(Arc<AtomicUsize>);

impl Queue {
    pub(crate) fn came(&self, rows: usize) {
        self.0.fetch_add(rows, Ordering::AcqRel);
    }

    pub(crate) fn went(&self, rows: usize) {
        self.0.fetch_sub(rows, Ordering::AcqRel);
    }

    fn len(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// See the module.
pub(crate) struct Entrance {
    pub(crate) name: String,
    pub(crate) sign: Sign,
    pub(crate) crowd: Notice,
    pub(crate) queue: Queue,
    /// How many rows may wait here.
    pub(crate) capacity: usize,
    /// Does every tenant get its turn?
    pub(crate) fair: bool,
    pub(crate) rows: UnboundedSender<Vec<Row>>,
}

/// The names of those that take nothing now.
pub(crate) fn closed(entrances: &[Entrance], now: Duration) -> Vec<String> {
    let closed = entrances.iter().filter(|entrance| !entrance.is_open(now));
    closed.map(|entrance| entrance.name.clone()).collect()
}

impl Entrance {
    fn is_open(&self, now: Duration) -> bool {
        self.sign.closed(now).is_none()
    }

    /// How many more rows it takes.
    pub(crate) fn room(&self, now: Duration) -> usize {
        if !self.is_open(now) || self.crowd.is_crowded() {
            return 0;
        }
        self.capacity.saturating_sub(self.queue.len())
    }

    /// Lets rows in, as many as there is room for. Returns the others, to be given back unsent.
    ///
    /// Whatever comes after a row that is turned away is turned away too, so that keys keep their order.
    pub(crate) fn admit(&self, mut rows: Vec<Row>, now: Duration) -> Vec<Row> {
        // A destination that is fair to its tenants takes from its own source, in which every tenant has a turn.
        if self.fair {
            rows.sort_by_key(|row| !row.ticket.knows_destination);
        }
        let own = rows.iter().filter(|row| row.ticket.knows_destination).count();
        let most = if self.fair { own } else { rows.len() };
        let turned_away = rows.split_off(most.min(self.room(now)));
        self.queue.came(rows.len());
        if !rows.is_empty() && self.rows.send(rows).is_err() {
            // Only when a task of ours has panicked, which ends the worker; the leases run out.
            tracing::error!("a task of this worker is gone; rows wait for their leases to end");
        }
        turned_away
    }
}
