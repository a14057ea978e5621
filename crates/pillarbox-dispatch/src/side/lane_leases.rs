//! Takes care that every lane has one owner, and that this worker has its part of them.
//!
//! A range that is somebody else's turn is given up as soon as nothing of it is in flight here. Asks about once a
//! second while there are rows with keys, and only to keep what it has when there are none.
//!
//! **If we die here** our lanes are free when their lease has ended.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pillarbox_store::store::{LaneRequest, Range};
use tokio::sync::Notify;

use crate::worker::Worker;
use crate::worker::store_health::Backoff;
use crate::worker::task::{LONG, Next, Task};

/// How often to ask while there are rows with keys.
const OFTEN: Duration = Duration::from_secs(1);
/// How often to see whether a range can be given up.
const SOON: Duration = Duration::from_millis(50);
/// How long after the last row with a key was seen it is quiet.
const QUIET: Duration = Duration::from_secs(30);

/// The namespaces in which there are rows with a key.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    seen: Mutex<Seen>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct Seen {
    names: BTreeSet<String>,
    at: Duration,
}

impl Namespaces {
    /// There are rows with a key in these.
    pub(crate) fn saw<'a>(&self, names: impl Iterator<Item = &'a str>, now: Duration) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut news = false;
        for name in names {
            news |= now.saturating_sub(seen.at) >= QUIET;
            seen.at = now;
            if !seen.names.contains(name) {
                seen.names.insert(name.to_owned());
                news = true;
            }
        }
        drop(seen);
        if news {
            self.bell.notify_one();
        }
    }

    fn all(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.names.iter().cloned().collect()
    }

    fn is_quiet(&self, now: Duration) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        now.saturating_sub(seen.at) >= QUIET
    }
}

/// See the module.
pub(crate) struct LaneLeases {
    worker: Arc<Worker>,
    namespaces: Arc<Namespaces>,
    ours: Vec<Range>,
    /// Has the number of ranges been said to the store, for these namespaces?
    said: BTreeSet<String>,
    backoff: Backoff,
}

impl LaneLeases {
    pub(crate) fn new(worker: Arc<Worker>, namespaces: Arc<Namespaces>) -> Self {
        Self {
            worker,
            namespaces,
            ours: Vec::new(),
            said: BTreeSet::new(),
            backoff: Backoff::for_store(),
        }
    }

    fn request(&self, namespaces: Vec<String>) -> LaneRequest {
        let settings = &self.worker.settings;
        let is_new = namespaces.iter().any(|name| !self.said.contains(name));
        let done = |range: &&Range| range.leaving && !self.worker.in_flight.holds(range);
        LaneRequest {
            worker: self.worker.id,
            namespaces,
            ranges: is_new.then_some(settings.lane_ranges),
            lease: settings.lease,
            give_up: self.ours.iter().filter(done).cloned().collect(),
        }
    }

    fn take(&mut self, ours: Vec<Range>) {
        let staying = |ranges: &[Range]| ranges.iter().filter(|range| !range.leaving).count();
        let (before, now) = (staying(&self.ours), staying(&ours));
        if before != now {
            tracing::info!(ranges = now, before, "lanes were shared out anew");
        }
        if self.ours != ours {
            self.ours = ours;
            self.worker.backlogs.stir(true);
        }
    }

    fn rest(&self) -> Duration {
        let lease = self.worker.settings.lease;
        let leaving = self.ours.iter().any(|range| range.leaving);
        if leaving {
            SOON
        } else if self.namespaces.is_quiet(self.worker.now()) {
            lease / 3
        } else {
            OFTEN.min(lease / 4)
        }
    }
}

impl Task for LaneLeases {
    async fn tick(&mut self) -> Next {
        let namespaces = self.namespaces.all();
        if namespaces.is_empty() {
            return Next::Wait(LONG);
        }
        let request = self.request(namespaces);
        match self.worker.store.lease_lanes(&request).await {
            Ok(ours) => {
                self.worker.store_health.worked("lane_leases");
                self.backoff.worked();
                self.said.extend(request.namespaces);
                self.take(ours);
                Next::Wait(self.rest())
            }
            Err(error) => {
                self.worker.store_failed("lane_leases", &error);
                Next::Wait(self.backoff.failed(fastrand::f64()))
            }
        }
    }

    async fn listen(&mut self) {
        self.namespaces.bell.notified().await;
    }
}
