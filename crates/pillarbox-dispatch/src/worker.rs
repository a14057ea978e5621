//! What all tasks of one worker share: who it is, and what it works with.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::{Clock, Store};
use uuid::Uuid;

use crate::counters::Counters;
use crate::held::Held;
use crate::outage::Outage;
use crate::settings::Settings;

/// One running dispatcher.
pub(crate) struct Worker {
    /// Fresh for every start, so that nothing of an earlier life can be settled.
    pub(crate) id: Uuid,
    pub(crate) settings: Settings,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) outage: Outage,
    pub(crate) held: Held,
}

impl Worker {
    /// The time that leases are measured in.
    pub(crate) fn now(&self) -> Duration {
        self.clock.boot()
    }

    /// A call to the store failed.
    pub(crate) fn store_failed(&self, task: &'static str, error: &pillarbox::StoreError) {
        self.counters.store_error();
        self.outage.failed(task, error);
    }
}
