//! Renews the leases of rows that need more than half of one: waiting rows, and rows that are being sent.
//!
//! A row that another worker claimed is not sent. If it is being sent, the attempt is dropped.
//!
//! **If we die here** leases expire, no send starts after that, and other workers claim the rows.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::{StoreError, failpoint};

use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// The most rows in one statement.
const MOST: usize = 2000;

/// See the module.
pub(crate) struct Renewer {
    worker: Arc<Worker>,
}

impl Renewer {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        Self { worker }
    }

    fn lease(&self) -> Duration {
        self.worker.settings.lease
    }
}

impl Task for Renewer {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let worker = &self.worker;
        // Leases are renewed at between a half and five eighths of their time: there is time left to retry.
        let interval = self.lease() / 8;
        let Some(before) = worker.now().checked_sub(self.lease() / 2) else {
            return Ok(Next::Wait(interval));
        };
        let old = worker.in_flight.older_than(before);
        for rows in old.chunks(MOST) {
            let asked = worker.now();
            let lost = worker.store.renew(worker.id, rows, self.lease()).await?;
            failpoint::hit("after_renew");
            let lost = worker.in_flight.renewed(rows, &lost, asked, self.lease());
            if lost > 0 {
                tracing::warn!(rows = lost, "lease lost before renewal, events may be sent again");
            }
        }
        Ok(Next::Wait(interval))
    }
}
