//! Renews the leases of rows that take longer than half of one: those that wait for their turn, and
//! those whose attempt is under target.
//!
//! A row that the store says is somebody else's is not sent, and if it is being sent, the send is
//! dropped.
//!
//! **If we die here** leases end, no send starts after that, and other workers take the rows.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::failpoint;

use crate::worker::Worker;
use crate::worker::store_health::Backoff;
use crate::worker::task::{Next, Task};

/// The most rows in one statement.
const MOST: usize = 2000;

/// See the module.
pub(crate) struct Renewer {
    worker: Arc<Worker>,
    backoff: Backoff,
}

impl Renewer {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        let backoff = Backoff::for_store();
        Self { worker, backoff }
    }

    fn lease(&self) -> Duration {
        self.worker.settings.lease
    }
}

impl Task for Renewer {
    async fn tick(&mut self) -> Next {
        let worker = &self.worker;
        let Some(before) = worker.now().checked_sub(self.lease() / 2) else {
            return Next::Wait(self.lease() / 8);
        };
        let old = worker.in_flight.older_than(before);
        for rows in old.chunks(MOST) {
            let asked = worker.now();
            match worker.store.renew(worker.id, rows, self.lease()).await {
                Ok(lost) => {
                    failpoint::hit("after_renew");
                    let gone = worker.in_flight.renewed(rows, &lost, asked, self.lease());
                    if gone > 0 {
                        tracing::warn!(
                            rows = gone,
                            "rows were no longer ours when their lease was renewed"
                        );
                    }
                }
                Err(error) => {
                    worker.store_failed("renewer", &error);
                    return Next::Wait(self.backoff.failed(fastrand::f64()));
                }
            }
        }
        worker.store_health.worked("renewer");
        self.backoff.worked();
        // Between a half and five eighths of a lease: there is time left to try again.
        Next::Wait(self.lease() / 8)
    }
}
