//! Counts what is pending of roles and tenants with a quota, so that the database can reject what exceeds it.
//!
//! Every five seconds, and for at most a tenth of the time: with many quotas and much pending, a pass over all of them takes
//! longer.
//!
//! **If we die here** another worker counts. Until then counts are outdated, and after ten minutes they reject nothing.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox::internal::LineLimit;
use pillarbox_store::quotas::{Counted, Holder};

use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// How long between two passes over all quotas.
const INTERVAL: Duration = Duration::from_secs(5);
/// How many times as long as a count the wait after it is.
const REST: u32 = 9;

/// See the module.
pub(crate) struct QuotaCounter {
    worker: Arc<Worker>,
    /// After whom the pass goes on.
    after: Option<Holder>,
    lines: LineLimit,
}

impl QuotaCounter {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        Self {
            worker,
            after: None,
            lines: LineLimit::default(),
        }
    }

    fn log(&mut self, counted: &Counted) {
        let now = self.worker.now();
        for (holder, max_pending) in &counted.exceeded {
            if let Some(suppressed) = self.lines.allow(now) {
                let suppressed = (suppressed > 0).then_some(suppressed);
                tracing::warn!(
                    holder = holder.to_string(),
                    max_pending,
                    suppressed,
                    "quota exceeded; its events are rejected"
                );
            }
        }
        for (holder, max_pending) in &counted.within {
            if let Some(suppressed) = self.lines.allow(now) {
                let suppressed = (suppressed > 0).then_some(suppressed);
                tracing::info!(
                    holder = holder.to_string(),
                    max_pending,
                    suppressed,
                    "quota no longer exceeded"
                );
            }
        }
    }
}

impl Task for QuotaCounter {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let worker = Arc::clone(&self.worker);
        let began = worker.now();
        let counted = worker.store.count_quotas(worker.id, self.after.as_ref()).await?;
        let Some(mut counted) = counted else {
            return Ok(Next::Done);
        };
        self.log(&counted);
        self.after = counted.after.take();
        let rest = worker.now().saturating_sub(began) * REST;
        Ok(Next::Wait(match self.after {
            Some(_) => rest,
            None => rest.max(INTERVAL),
        }))
    }
}
