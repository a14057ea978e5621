//! What retention deleted.

use std::time::Duration;

use metrics::{Counter, Histogram, SharedString, counter, histogram};
use pillarbox_store::retention::Pruned;

/// See the module.
pub(crate) struct PrunedMetrics {
    delivered: Counter,
    dead: Counter,
    inbox: Counter,
    saga: Counter,
    seconds: Histogram,
}

impl PrunedMetrics {
    pub(crate) fn new(database: &SharedString) -> Self {
        let rows = |what: &'static str| counter!("pillarbox_pruned_total", "database" => database.clone(), "what" => what);
        Self {
            delivered: rows("delivered"),
            dead: rows("dead"),
            inbox: rows("inbox"),
            saga: rows("saga"),
            seconds: histogram!("pillarbox_prune_seconds", "database" => database.clone()),
        }
    }

    pub(crate) fn record(&self, pruned: &Pruned, took: Duration) {
        self.delivered.increment(pruned.delivered);
        self.dead.increment(pruned.dead);
        self.inbox.increment(pruned.marks);
        self.saga.increment(pruned.sagas);
        self.seconds.record(took);
    }
}
