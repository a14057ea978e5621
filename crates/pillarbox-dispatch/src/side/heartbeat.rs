//! Says that this worker is alive, and what it has done.
//!
//! **If we die here** others count us out when we have not been heard of for three beats, which is never longer than a
//! lease: our lanes are free by then, and nobody takes more than its part while we count.

use std::sync::Arc;
use std::time::Duration;

use pillarbox_store::store;

use crate::worker::Worker;
use crate::worker::store_health::Backoff;
use crate::worker::task::{Next, Task};

/// How many beats may be missed before a worker counts as gone.
const MISSED: u32 = 3;

/// See the module.
pub(crate) struct Heartbeat {
    worker: Arc<Worker>,
    host: String,
    backoff: Backoff,
}

impl Heartbeat {
    pub(crate) fn new(worker: Arc<Worker>, host: String) -> Self {
        Self {
            worker,
            host,
            backoff: Backoff::for_store(),
        }
    }

    fn pause(&self) -> Duration {
        let settings = &self.worker.settings;
        settings.heartbeat.min(settings.lease / MISSED)
    }
}

impl Task for Heartbeat {
    async fn tick(&mut self) -> Next {
        let worker = &self.worker;
        let done = worker.counters.snapshot();
        let heartbeat = store::Heartbeat {
            worker: worker.id,
            host: self.host.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scope: worker.settings.scope.clone(),
            ttl: self.pause() * MISSED,
            claimed: done.claimed,
            delivered: done.delivered,
            failed: done.failed(),
        };
        match worker.store.heartbeat(&heartbeat).await {
            Ok(()) => {
                worker.store_health.worked("heartbeat");
                self.backoff.worked();
                Next::Wait(self.pause())
            }
            Err(error) => {
                worker.store_failed("heartbeat", &error);
                Next::Wait(self.backoff.failed(fastrand::f64()))
            }
        }
    }
}
