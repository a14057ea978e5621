//! The index for fair shares. A fair claim works without fair shares until the index is there.
//!
//! **If we die here** the next start creates it: `event_index.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::event_index::{self, State};
use super::{Inner, Postgres};
use crate::store::StoreError;

/// Its name.
const NAME: &str = "outbox_events_fair";

impl Postgres {
    /// Is the index for fair shares there? If not, fair shares are claimed like others until
    /// [`ensure_fair_index`](Self::ensure_fair_index) has created it.
    ///
    /// # Errors
    /// When the database is unavailable.
    pub async fn has_fair_index(&self) -> Result<bool, StoreError> {
        let inner = self.inner.clone();
        self.run(async move { look(&inner).await }).await
    }

    /// Creates the index for fair shares if it does not exist. It may take as long as other transactions are open, and delays
    /// none of them.
    ///
    /// # Errors
    /// When the role lacks the permission; the error has the statement to run. When the database is unavailable.
    pub async fn ensure_fair_index(&self) -> Result<(), StoreError> {
        self.run_long(ensure(self.inner.clone())).await
    }
}

impl Inner {
    pub(super) fn is_fair(&self) -> bool {
        self.is_fair.load(Ordering::Relaxed)
    }
}

async fn ensure(inner: Arc<Inner>) -> Result<(), StoreError> {
    look(&inner).await?;
    event_index::ensure(&inner, NAME, &inner.sql.fair_index).await?;
    look(&inner).await?;
    Ok(())
}

/// Looks at the index, and lets claims be fair if it is valid.
async fn look(inner: &Inner) -> Result<bool, StoreError> {
    let is_valid = event_index::look(inner, NAME).await? == State::Valid;
    inner.is_fair.store(is_valid, Ordering::Relaxed);
    Ok(is_valid)
}
