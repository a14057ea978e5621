//! Forgets what was handled long ago, so that the inbox does not grow for ever.
//!
//! **If we die here** the next one does it.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox::outbox::Transaction;
use tokio::time::sleep;

use crate::attempt::Attempts;
use crate::database::Database;
use crate::work::Work;

/// How often to look. At 1,000 events a second this is 300,000 marks, forgotten a few thousand at a time.
const EVERY: Duration = Duration::from_secs(300);
/// Between two chunks, so that whoever handles events hardly notices.
const PAUSE: Duration = Duration::from_millis(50);

/// Prunes until it is dropped or the consumer stops, which does not wait for a database that is silent: the transaction is
/// rolled back, and what was not forgotten is the next one's.
#[expect(clippy::disallowed_methods, reason = "the wait between two rounds")]
pub(crate) async fn keep<D: Database>(work: Arc<Work<D>>) {
    loop {
        let Some(pruned) = work.stop.run_until_cancelled(prune(&work.attempts)).await else {
            return;
        };
        let wait = match pruned {
            Ok(0) => EVERY,
            Ok(marks) => {
                tracing::debug!(marks, "marks in the inbox were forgotten");
                PAUSE
            }
            Err(error) => {
                work.counters.store_error();
                tracing::warn!(%error, "the inbox was not pruned; trying again later");
                EVERY
            }
        };
        tokio::select! {
            biased;
            () = work.stop.cancelled() => return,
            () = sleep(wait) => {}
        }
    }
}

async fn prune<D: Database>(attempts: &Attempts<D>) -> Result<u64, StoreError> {
    let mut transaction = attempts.database.begin().await?;
    let marks = (attempts.inbox)
        .prune(&mut transaction, &attempts.consumer)
        .await?;
    transaction.commit().await?;
    Ok(marks)
}
