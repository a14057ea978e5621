//! Leases this worker's part of the lanes, so that every lane has one owner.
//!
//! A range that another worker should have is given up as soon as nothing of it is in flight here. Runs about once a
//! second while there are rows with keys. Without them it only renews.
//!
//! **If we die here** the lanes are free when their lease has expired.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox_store::store::{LaneRequest, Range};
use tokio::sync::Notify;

use crate::worker::Worker;
use crate::worker::task::{LONG, Next, Task};

/// How often lanes are leased while there are rows with keys.
const BUSY: Duration = Duration::from_secs(1);
/// How often to see whether a range can be given up.
const LEAVING: Duration = Duration::from_millis(50);
/// How long after the last row with a key was found a worker is idle.
const IDLE_AFTER: Duration = Duration::from_secs(30);

/// The namespaces in which there are rows with a key.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    names: BTreeSet<String>,
    /// When rows with a key were last found.
    found: Duration,
}

impl Namespaces {
    /// The finder found rows with a key in these namespaces.
    pub(crate) fn found<'a>(&self, names: impl Iterator<Item = &'a str>, now: Duration) {
        let mut known = self.known();
        let mut has_changed = false;
        for name in names {
            has_changed |= known.is_idle(now);
            known.found = now;
            if !known.names.contains(name) {
                known.names.insert(name.to_owned());
                has_changed = true;
            }
        }
        drop(known);
        if has_changed {
            self.changed.notify_one();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_idle(&self, now: Duration) -> bool {
        now.saturating_sub(self.found) >= IDLE_AFTER
    }
}

/// See the module.
pub(crate) struct LaneLeases {
    worker: Arc<Worker>,
    namespaces: Arc<Namespaces>,
    ours: Vec<Range>,
    /// Namespaces for which the store knows the number of ranges.
    registered: BTreeSet<String>,
}

impl LaneLeases {
    pub(crate) fn new(worker: Arc<Worker>, namespaces: Arc<Namespaces>) -> Self {
        Self {
            worker,
            namespaces,
            ours: Vec::new(),
            registered: BTreeSet::new(),
        }
    }

    fn request(&self, namespaces: Vec<String>) -> LaneRequest {
        let settings = &self.worker.settings;
        let is_new = namespaces.iter().any(|name| !self.registered.contains(name));
        let is_empty = |range: &&Range| range.leaving && !self.worker.in_flight.has_lanes(range);
        LaneRequest {
            worker: self.worker.id,
            namespaces,
            ranges: is_new.then_some(settings.lane_ranges),
            lease: settings.lease,
            release: self.ours.iter().filter(is_empty).cloned().collect(),
        }
    }

    fn leased(&mut self, ours: Vec<Range>) {
        let staying = |ranges: &[Range]| ranges.iter().filter(|range| !range.leaving).count();
        let (before, now) = (staying(&self.ours), staying(&ours));
        if before != now {
            tracing::info!(ranges = now, before, "lane ranges changed");
        }
        if self.ours != ours {
            self.ours = ours;
            self.worker.backlogs.recheck(true);
        }
    }

    fn interval(&self) -> Duration {
        let lease = self.worker.settings.lease;
        let leaving = self.ours.iter().any(|range| range.leaving);
        if leaving {
            LEAVING
        } else if self.namespaces.known().is_idle(self.worker.now()) {
            lease / 3
        } else {
            BUSY.min(lease / 4)
        }
    }
}

impl Task for LaneLeases {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let namespaces: Vec<String> = self.namespaces.known().names.iter().cloned().collect();
        if namespaces.is_empty() {
            return Ok(Next::Wait(LONG));
        }
        let request = self.request(namespaces);
        let ours = self.worker.store.lease_lanes(&request).await?;
        self.registered.extend(request.namespaces);
        self.leased(ours);
        Ok(Next::Wait(self.interval()))
    }

    async fn listen(&mut self) {
        self.namespaces.changed.notified().await;
    }
}
