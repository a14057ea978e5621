//! Takes rows of an adopted table over, so that the engine finds them among its own.
//!
//! One for each table. Whether this worker is the one that imports is the store's to say; the others ask again later.
//!
//! **If we die here** another worker goes on when the lease has ended; what was taken over is in the outbox.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{ImportRequest, Imported, Importing};
use pillarbox::{Wake, failpoint};

use crate::outage::Backoff;
use crate::task::{Next, Task};
use crate::worker::Worker;

/// How many rows of one table may be on their way. What waits in the outbox waits in the table just as well.
const MOST: usize = 10_000;
/// How often what people did to a table is heeded.
const HEED: Duration = Duration::from_secs(2);
/// How often old rows are deleted and notes forgotten: without an index on it, that reads everything that was delivered.
const TIDY: Duration = Duration::from_secs(60);
/// When to ask again while as many rows are on their way as may be.
const SOON: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Importer {
    worker: Arc<Worker>,
    from: Importing,
    wake: Wake,
    /// When people were heeded last.
    heeded: Option<Duration>,
    /// When the table was tidied last, unless there was more to do.
    tidied: Option<Duration>,
    strange: usize,
    backoff: Backoff,
}

impl Importer {
    pub(crate) fn new(worker: Arc<Worker>, from: Importing, wake: Wake) -> Self {
        Self {
            worker,
            from,
            wake,
            heeded: None,
            tidied: None,
            strange: 0,
            backoff: Backoff::for_store(),
        }
    }

    fn request(&mut self) -> ImportRequest {
        let now = self.worker.now();
        let heed = is_time(&mut self.heeded, now, HEED);
        let tidy = is_time(&mut self.tidied, now, TIDY);
        ImportRequest {
            source: self.from.source.clone(),
            worker: self.worker.id,
            // Longer than the pauses, or the table would change hands in each of them.
            lease: self.worker.settings.lease.max(self.from.poll * 2),
            batch: self.from.batch,
            most: MOST,
            heed,
            tidy,
        }
    }

    fn tell(&mut self, imported: &Imported) {
        let source = self.from.source.as_str();
        if imported.reset > 0 {
            tracing::info!(
                source,
                rows = imported.reset,
                "rows were reset by a person and begin anew"
            );
        }
        if imported.dropped > 0 {
            tracing::info!(
                source,
                rows = imported.dropped,
                "rows are gone or were ended by somebody else"
            );
        }
        if let Some(strange) = imported.strange.filter(|&strange| strange != self.strange) {
            self.strange = strange;
            tracing::warn!(
                source,
                rows = strange,
                "rows have a status that the layout does not know; left alone"
            );
        }
    }
}

/// Has it been so long? Then it begins anew.
fn is_time(last: &mut Option<Duration>, now: Duration, every: Duration) -> bool {
    let is_time = last.is_none_or(|then| now.saturating_sub(then) >= every);
    if is_time {
        *last = Some(now);
    }
    is_time
}

impl Task for Importer {
    async fn tick(&mut self) -> Next {
        let request = self.request();
        match self.worker.store.import(&request).await {
            Ok(imported) => {
                failpoint::hit("after_import");
                self.worker.outage.worked("importer");
                self.backoff.worked();
                self.tell(&imported);
                if imported.rows > 0 {
                    self.wake.ring();
                }
                if imported.untidy {
                    self.tidied = None;
                }
                match imported {
                    Imported { more: true, .. } | Imported { untidy: true, .. } => Next::Again,
                    Imported { full: true, .. } => Next::Wait(SOON),
                    _ => Next::Wait(self.from.poll),
                }
            }
            Err(error) => {
                self.worker.store_failed("importer", &error);
                Next::Wait(self.backoff.failed(fastrand::f64()))
            }
        }
    }
}
