//! What all tasks of one worker share: who it is, and what it works with.

pub(crate) mod in_flight;
pub(crate) mod store_health;
pub(crate) mod task;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pillarbox::Clock;
use pillarbox_store::Store;
use uuid::Uuid;

use crate::counters::Counters;
use crate::find::backlogs::Backlogs;
use crate::settings::Settings;
use crate::worker::in_flight::InFlight;
use crate::worker::store_health::StoreHealth;

/// One running dispatcher.
pub(crate) struct Worker {
    /// Fresh for every start, so that nothing of an earlier life can be settled.
    pub(crate) id: Uuid,
    pub(crate) settings: Settings,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) store_health: StoreHealth,
    pub(crate) in_flight: InFlight,
    pub(crate) backlogs: Backlogs,
    /// Destinations that are gone, with the reason, until the store knows.
    pub(crate) gone: Mutex<Vec<(String, String)>>,
}

impl Worker {
    /// The time that leases are measured in.
    pub(crate) fn now(&self) -> Duration {
        self.clock.boot()
    }

    /// A destination asked never to be called again: the store is told soon.
    pub(crate) fn is_gone(&self, destination: &str, reason: &str) {
        self.gone
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((destination.to_owned(), reason.to_owned()));
    }

    /// Destinations that the store has to be told of.
    pub(crate) fn take_gone(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.gone.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call to the store failed.
    pub(crate) fn store_failed(&self, task: &'static str, error: &pillarbox::StoreError) {
        self.counters.store_error();
        self.store_health.failed(task, error);
    }
}
