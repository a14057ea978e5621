//! Takes rows of an adopted table over, so that the engine finds them among its own.
//!
//! One for each table. Whether this worker is the one that imports is the store's to say; the others ask again later.
//!
//! **If we die here** another worker goes on when the lease has ended; what was taken over is in the outbox.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::{StoreError, Wake, failpoint};
use pillarbox_store::store::{ImportRequest, Imported, Importing};

use crate::worker::Worker;
use crate::worker::store_health::Backoff;
use crate::worker::task::{Next, Task};

/// How many rows of one table may be on their target. What waits in the outbox waits in the table just as well.
const MOST: usize = 10_000;
/// How often what people did to a table is heeded.
const HEED: Duration = Duration::from_secs(2);
/// How often old rows are deleted, notes forgotten, and ends noticed that nobody told: without an index the first reads
/// everything that was delivered.
const TIDY: Duration = Duration::from_secs(60);
/// When to ask again while as many rows are on their target as may be.
const SOON: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Importer {
    worker: Arc<Worker>,
    from: Importing,
    wake: Wake,
    rounds: Rounds,
    strange: usize,
    backoff: Backoff,
}

impl Importer {
    pub(crate) fn new(worker: Arc<Worker>, from: Importing, wake: Wake) -> Self {
        Self {
            worker,
            from,
            wake,
            rounds: Rounds::default(),
            strange: 0,
            backoff: Backoff::for_store(),
        }
    }

    fn request(&mut self) -> ImportRequest {
        let now = self.worker.now();
        let heed = is_time(&mut self.rounds.heeded, now, HEED);
        let tidy = is_time(&mut self.rounds.tidied, now, TIDY);
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

    /// What is wrong with one table is no outage, and is said again while it lasts.
    fn failed(&mut self, error: &StoreError) {
        if matches!(error, StoreError::Unavailable(_)) {
            return self.worker.store_failed("importer", error);
        }
        self.worker.counters.store_error();
        if is_time(&mut self.rounds.complained, self.worker.now(), TIDY) {
            let source = self.from.source.as_str();
            tracing::warn!(source, %error, "the table cannot be worked on; trying again until it can");
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

/// What is done in some rounds only: when it was done last.
#[derive(Debug, Default)]
struct Rounds {
    heeded: Option<Duration>,
    tidied: Option<Duration>,
    /// Said that the table cannot be worked on.
    complained: Option<Duration>,
}

impl Rounds {
    fn after(&mut self, imported: &Imported, poll: Duration) -> Next {
        if imported.untidy {
            self.tidied = None;
        }
        if imported.more || imported.untidy {
            Next::Again
        } else if imported.full {
            Next::Wait(SOON)
        } else {
            Next::Wait(poll)
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
                self.worker.store_health.worked("importer");
                self.backoff.worked();
                self.rounds.complained = None;
                self.tell(&imported);
                if imported.rows > 0 {
                    self.wake.ring();
                }
                self.rounds.after(&imported, self.from.poll)
            }
            Err(error) => {
                self.failed(&error);
                Next::Wait(self.backoff.failed(fastrand::f64()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_tidied_once_a_minute_and_at_once_again_while_there_is_more() {
        let mut rounds = Rounds::default();
        let poll = Duration::from_secs(5);
        let untidy = Imported {
            untidy: true,
            ..Imported::default()
        };
        let mut tidied = Vec::new();
        for second in 0..200 {
            let now = Duration::from_secs(second);
            if !is_time(&mut rounds.tidied, now, TIDY) {
                continue;
            }
            tidied.push(second);
            // The first two leave something over.
            let next = if tidied.len() <= 2 {
                rounds.after(&untidy, poll)
            } else {
                rounds.after(&Imported::default(), poll)
            };
            assert_eq!(next == Next::Again, tidied.len() <= 2, "{next:?}");
        }
        assert_eq!(tidied, [0, 1, 2, 62, 122, 182]);
    }
}
