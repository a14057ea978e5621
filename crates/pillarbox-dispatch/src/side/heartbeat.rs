//! Writes the worker's heartbeat: what it has done, and which breakers are not closed.
//!
//! **If we die here** other workers count this one as dead after three missed heartbeats, which is at most one lease. By
//! then its lanes are free, and no worker takes more than its part before.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox_store::store;

use crate::send::handle::Breakers;
use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// How many heartbeats may be missed before a worker counts as dead.
const MISSED: u32 = 3;
/// How many breakers a heartbeat reports, so that its row stays small with many thousand destinations.
const MOST_BREAKERS: usize = 1000;

/// See the module.
pub(crate) struct Heartbeat {
    worker: Arc<Worker>,
    breakers: Breakers,
    host: String,
}

impl Heartbeat {
    pub(crate) fn new(worker: Arc<Worker>, breakers: Breakers, host: String) -> Self {
        Self {
            worker,
            breakers,
            host,
        }
    }

    fn interval(&self) -> Duration {
        let settings = &self.worker.settings;
        settings.heartbeat.min(settings.lease / MISSED)
    }
}

impl Task for Heartbeat {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let worker = &self.worker;
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
        };
        worker.store.heartbeat(&heartbeat).await?;
        Ok(Next::Wait(self.interval()))
    }
}
