//! Logs what the worker has done, once a minute and only if there was something.
//!
//! **If we die here** nothing is lost: the counts are in the heartbeat too.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::StoreError;

use crate::counters::Snapshot;
use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// How long between two lines.
const INTERVAL: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct Reporter {
    worker: Arc<Worker>,
    /// The counts when the last line was due.
    before: Option<Snapshot>,
}

impl Reporter {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        Self { worker, before: None }
    }
}

impl Task for Reporter {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let worker = &self.worker;
        let now = worker.counters.snapshot();
        let before = self.before.unwrap_or(now);
        let processed = now.delivered - before.delivered;
        let failed = now.failed() - before.failed();
        if processed + failed > 0 {
            // Bounded: a store counts up to a cap, whatever the backlog.
            let pending = worker.store.pending(&worker.settings.scope).await?;
            tracing::info!(worker_id = %worker.id, processed, failed, pending, "events processed");
        }
        self.before = Some(now);
        Ok(Next::Wait(INTERVAL))
    }
}
