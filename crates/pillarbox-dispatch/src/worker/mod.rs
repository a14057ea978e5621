//! What all tasks of one worker share.

pub(crate) mod backoff;
pub(crate) mod flag;
pub(crate) mod in_flight;
pub(crate) mod store_health;
pub(crate) mod task;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox::Clock;
use pillarbox_store::Store;
use pillarbox_store::archive::Archive;
use uuid::Uuid;

use crate::counters::Counters;
use crate::find::backlogs::Backlogs;
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::side::family_log::DeadEvents;
use crate::worker::in_flight::InFlight;
use crate::worker::store_health::StoreHealth;

/// One running dispatcher.
pub(crate) struct Worker {
    /// New for every start, so that no settlement of an earlier start is accepted.
    pub(crate) id: Uuid,
    pub(crate) settings: Settings,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) metrics: Metrics,
    pub(crate) store_health: StoreHealth,
    pub(crate) in_flight: InFlight,
    pub(crate) backlogs: Backlogs,
    pub(crate) dead_events: DeadEvents,
    /// Where rows go before the pruner deletes them.
    pub(crate) archive: Option<Arc<dyn Archive>>,
    /// Destinations to be disabled in the store, with the reason. The finder writes them.
    pub(crate) to_disable: Mutex<Vec<(String, String)>>,
}

impl Worker {
    /// The time by which leases are measured.
    pub(crate) fn now(&self) -> Duration {
        self.clock.boot()
    }

    /// The leases of so many rows were lost before they were sent or settled.
    pub(crate) fn lost(&self, rows: usize) {
        self.counters.lost(rows);
        self.metrics.lost_leases.increment(rows as u64);
    }

    /// A call to the store failed.
    pub(crate) fn store_error(&self) {
        self.counters.store_error();
        self.metrics.store_errors.increment(1);
    }

    /// A destination asked never to be called again.
    pub(crate) fn disable(&self, destination: &str, reason: &str) {
        self.to_disable()
            .push((destination.to_owned(), reason.to_owned()));
    }

    /// Destinations to be disabled in the store, with the reason.
    pub(crate) fn to_disable(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.to_disable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
