//! Writes the worker's heartbeat: what it has done, which breakers are not closed, and which destinations it serves.
//!
//! A destination that becomes unreachable is written within a second, so that other workers get its lanes.
//!
//! **If we die here** other workers count this one as dead after three missed heartbeats, which is at most one lease. By
//! then its lanes are free, and no worker takes more than its part before.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox_store::store::{self, Serves};

use crate::route::route_table::RouteTable;
use crate::send::handle::Breakers;
use crate::side::reachability::Reachability;
use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// How many heartbeats may be missed before a worker counts as dead.
const MISSED: u32 = 3;
/// How many breakers a heartbeat reports, so that its row stays small with many thousand destinations.
const MOST_BREAKERS: usize = 1000;
/// How often to see which destinations are reachable.
const LOOK: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Heartbeat {
    worker: Arc<Worker>,
    routes: Arc<RouteTable>,
    breakers: Breakers,
    host: String,
    reachability: Reachability,
    /// When the next heartbeat is due.
    due_at: Duration,
}

impl Heartbeat {
    pub(crate) fn new(
        worker: Arc<Worker>,
        routes: Arc<RouteTable>,
        breakers: Breakers,
        host: String,
    ) -> Self {
        Self {
            worker,
            routes,
            breakers,
            host,
            reachability: Reachability::default(),
            due_at: Duration::ZERO,
        }
    }

    fn interval(&self) -> Duration {
        let settings = &self.worker.settings;
        settings.heartbeat.min(settings.lease / MISSED)
    }

    /// Has a destination become reachable or unreachable?
    fn look(&mut self) -> bool {
        self.reachability
            .update(self.breakers.are_tripped(), self.worker.now())
    }

    fn serves(&self) -> Serves {
        Serves {
            destinations: Some(self.breakers.names().map(str::to_owned).collect()),
            unreachable: self.reachability.unreachable(self.breakers.names()),
            routes: self.routes.has_routes(),
            lane_ranges: self.worker.settings.lane_ranges,
        }
    }
}

impl Task for Heartbeat {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        if self.look() {
            self.due_at = Duration::ZERO;
        }
        let worker = &self.worker;
        let now = worker.now();
        if now < self.due_at {
            return Ok(Next::Wait(LOOK.min(self.due_at.saturating_sub(now))));
        }
        let done = worker.counters.snapshot();
        let heartbeat = store::Heartbeat {
            worker: worker.id,
            host: self.host.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scope: worker.settings.scope.clone(),
            ttl: self.interval() * MISSED,
            claimed: done.claimed,
            delivered: done.delivered,
            failed: done.failed(),
            breakers: self.breakers.open(MOST_BREAKERS),
            serves: self.serves(),
        };
        worker.store.heartbeat(&heartbeat).await?;
        self.due_at = now + self.interval();
        Ok(Next::Wait(LOOK.min(self.interval())))
    }
}
