//! Watches for commits, in the same process. A commit is visible at once, so each is a [`Change::Ended`].

use async_trait::async_trait;
use tokio::sync::watch::Receiver;

use crate::store::{Change, StoreError, Watch};

/// See the module.
pub(super) struct Commits(pub(super) Receiver<()>);

#[async_trait]
impl Watch for Commits {
    async fn next(&mut self, until_ended: bool) -> Result<Change, StoreError> {
        if until_ended {
            return Ok(Change::Ended);
        }
        match self.0.changed().await {
            Ok(()) => Ok(Change::Ended),
            Err(_) => Err(StoreError::Unavailable("the outbox was dropped".into())),
        }
    }
}
