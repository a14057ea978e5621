//! Creates the index for `fair_by` while the dispatcher serves. Until it is there, events are delivered without fair shares.
//!
//! **If we die here** the next start continues.

use std::pin::pin;
use std::time::Duration;

use pillarbox::StoreError;
use tokio_util::sync::CancellationToken;

use crate::database::Database;
use crate::failure::Failure;

/// The first and the longest wait between two tries.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A creation that takes longer is logged.
const SHORT: Duration = Duration::from_secs(1);

/// Creates the index of one database.
pub(crate) struct FairIndex<'a> {
    pub(crate) database: &'a Database,
    pub(crate) name: &'a str,
}

impl FairIndex<'_> {
    /// Returns when the index is there or the daemon stops. Fails if the role lacks the permission.
    #[expect(clippy::disallowed_methods, reason = "the wait between two tries")]
    pub(crate) async fn build(&self, shutdown: &CancellationToken) -> Result<(), Failure> {
        let (mut wait, longest) = WAITS;
        loop {
            // A cancelled creation still runs to its end in the store.
            let built = tokio::select! {
                built = self.try_build() => built,
                () = shutdown.cancelled() => return Ok(()),
            };
            match built {
                Ok(()) => return Ok(()),
                Err(StoreError::Unavailable(error)) => tracing::warn!(
                    database = self.name,
                    error,
                    "index for fair shares not created; retrying"
                ),
                Err(other) => return Err(other.into()),
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(longest),
                () = shutdown.cancelled() => return Ok(()),
            }
        }
    }

    async fn try_build(&self) -> Result<(), StoreError> {
        let database = self.name;
        if self.database.has_fair_index().await? {
            return Ok(());
        }
        let mut creation = pin!(self.database.ensure_fair_index());
        let created = match tokio::time::timeout(SHORT, &mut creation).await {
            Ok(created) => created,
            Err(_) => {
                tracing::info!(
                    database,
                    "creating the index for fair shares; tenants take no turns until it is there"
                );
                creation.await
            }
        };
        created?;
        tracing::info!(database, "index for fair shares created");
        Ok(())
    }
}
