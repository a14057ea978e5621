//! Imports the rows of one adopted table, so that the engine finds them among its own.
//!
//! One task per table. Only the worker with the table's lease imports; the others try again later.
//!
//! An error that concerns one table is no outage of the store: it is logged per table, at most once a minute.
//!
//! **If we die here** another worker goes on when the lease has expired. Imported rows are in the outbox.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::{StoreError, Wake, failpoint};
use pillarbox_store::adopt::{Import, ImportRequest, Imported};

use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// How many rows of one table may be in progress. More of them would only wait in the outbox instead of the table.
const MAX_IN_PROGRESS: usize = 10_000;
/// How often changes that others made to imported rows are read.
const CHANGES: Duration = Duration::from_secs(2);
/// How often delivered rows and stale mappings are pruned, and missed write-backs found. Without an index this reads all
/// delivered rows.
const PRUNE: Duration = Duration::from_secs(60);
/// How often the same error of a table is logged.
const COMPLAIN: Duration = Duration::from_secs(60);
/// When to try again while as many rows are in progress as may be.
const FULL: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Importer {
    worker: Arc<Worker>,
    import: Arc<dyn Import>,
    wake: Wake,
    rounds: Rounds,
    /// How many rows with an unknown status were last logged.
    unknown: usize,
}

impl Importer {
    pub(crate) fn new(worker: Arc<Worker>, import: Arc<dyn Import>, wake: Wake) -> Self {
        Self {
            worker,
            import,
            wake,
            rounds: Rounds::default(),
            unknown: 0,
        }
    }

    fn request(&mut self) -> ImportRequest {
        let now = self.worker.now();
        let detect_changes = is_time(&mut self.rounds.changes, now, CHANGES);
        let prune = is_time(&mut self.rounds.pruned, now, PRUNE);
        let table = self.import.table();
        ImportRequest {
            worker: self.worker.id,
            // Longer than the pauses, or the table would change its importer in each of them.
            lease: self.worker.settings.lease.max(table.poll * 2),
            batch: table.batch,
            max_in_progress: MAX_IN_PROGRESS,
            detect_changes,
            prune,
        }
    }

    /// The store is available, but this table cannot be imported from.
    fn table_failed(&mut self, error: &StoreError) {
        self.worker.store_error();
        if is_time(&mut self.rounds.complained, self.worker.now(), COMPLAIN) {
            let table = self.import.table().name.as_str();
            if matches!(error, StoreError::Denied(_)) {
                tracing::error!(table, %error, "import from adopted table failed; retrying");
            } else {
                tracing::warn!(table, %error, "import from adopted table failed; retrying");
            }
        }
    }

    fn log(&mut self, imported: &Imported) {
        let table = self.import.table().name.as_str();
        if imported.reset > 0 {
            tracing::info!(
                table,
                rows = imported.reset,
                "adopted rows reset, they start again"
            );
        }
        if imported.pruned > 0 {
            tracing::info!(table, rows = imported.pruned, "adopted rows pruned");
        }
        if imported.dropped > 0 {
            tracing::info!(
                table,
                rows = imported.dropped,
                "adopted rows deleted or finished by others"
            );
        }
        if let Some(unknown) = imported.unknown_status.filter(|&unknown| unknown != self.unknown) {
            self.unknown = unknown;
            tracing::warn!(
                table,
                rows = unknown,
                "adopted rows with an unknown status ignored"
            );
        }
    }
}

/// When each part of a round was last done.
#[derive(Debug, Default)]
struct Rounds {
    changes: Option<Duration>,
    pruned: Option<Duration>,
    complained: Option<Duration>,
}

impl Rounds {
    fn after(&mut self, imported: &Imported, poll: Duration) -> Next {
        if imported.more_to_prune {
            self.pruned = None;
        }
        if imported.more || imported.more_to_prune {
            Next::Again
        } else if imported.full {
            Next::Wait(FULL)
        } else {
            Next::Wait(poll)
        }
    }
}

/// Has so much time passed since `last`? Then `last` is now.
fn is_time(last: &mut Option<Duration>, now: Duration, every: Duration) -> bool {
    let is_time = last.is_none_or(|then| now.saturating_sub(then) >= every);
    if is_time {
        *last = Some(now);
    }
    is_time
}

impl Task for Importer {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let request = self.request();
        let imported = match self.import.import(&request).await {
            Ok(imported) => imported,
            Err(error @ StoreError::Unavailable(_)) => return Err(error),
            Err(error) => {
                self.table_failed(&error);
                return Ok(Next::Retry);
            }
        };
        failpoint::hit("after_import");
        self.rounds.complained = None;
        self.log(&imported);
        if imported.rows > 0 {
            self.wake.notify();
        }
        Ok(self.rounds.after(&imported, self.import.table().poll))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_pruned_once_a_minute_and_at_once_while_there_is_more() {
        let mut rounds = Rounds::default();
        let poll = Duration::from_secs(5);
        let unfinished = Imported {
            more_to_prune: true,
            ..Imported::default()
        };
        let mut pruned = Vec::new();
        for second in 0..200 {
            let now = Duration::from_secs(second);
            if !is_time(&mut rounds.pruned, now, PRUNE) {
                continue;
            }
            pruned.push(second);
            // The first two leave rows to prune.
            let next = if pruned.len() <= 2 {
                rounds.after(&unfinished, poll)
            } else {
                rounds.after(&Imported::default(), poll)
            };
            assert_eq!(next == Next::Again, pruned.len() <= 2, "{next:?}");
        }
        assert_eq!(pruned, [0, 1, 2, 62, 122, 182]);
    }
}
