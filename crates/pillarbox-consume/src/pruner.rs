//! Prunes old marks, so that the inbox stays bounded.
//!
//! **If we die here** the next pruner continues.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox::Transaction;
use tokio::time::sleep;

use crate::attempt::Attempts;
use crate::database::Database;
use crate::processor::Processor;

/// Wait between two runs. At 1,000 events a second a run prunes 300,000 marks, a few thousand at a time.
const INTERVAL: Duration = Duration::from_secs(300);
/// Wait between two chunks, so that handlers hardly notice.
const PAUSE: Duration = Duration::from_millis(50);

/// Prunes until the consumer stops. A stop does not wait for a silent database: the transaction rolls back.
#[expect(clippy::disallowed_methods, reason = "the wait between two rounds")]
pub(crate) async fn run<D: Database>(processor: Arc<Processor<D>>) {
    loop {
        let pruning = prune(&processor.attempts);
        let Some(pruned) = processor.stop.run_until_cancelled(pruning).await else {
            return;
        };
        let wait = match pruned {
            Ok(0) => INTERVAL,
            Ok(marks) => {
                tracing::debug!(marks, "inbox pruned");
                PAUSE
            }
            Err(error) => {
                processor.counters.store_error();
                tracing::warn!(%error, retry_in = ?INTERVAL, "inbox not pruned, will retry");
                INTERVAL
            }
        };
        tokio::select! {
            biased;
            () = processor.stop.cancelled() => return,
            () = sleep(wait) => {}
        }
    }
}

async fn prune<D: Database>(attempts: &Attempts<D>) -> Result<u64, StoreError> {
    let mut transaction = attempts.database.begin(attempts.settings.timeout).await?;
    let marks = (attempts.inbox)
        .prune(&mut transaction, &attempts.consumer)
        .await?;
    transaction.commit().await?;
    Ok(marks)
}
