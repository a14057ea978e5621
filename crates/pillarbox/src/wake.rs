//! A hint that there is something to claim.
//!
//! The application notifies it after a commit, in the same process. A lost wake delays an event by one poll and never loses
//! it. A wake without an event costs one query.

use std::sync::Arc;

use tokio::sync::Notify;

/// Wakes the dispatcher in the same process. Clones share one signal.
#[derive(Debug, Clone, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    /// Wakes the dispatcher. Call it after the commit: before it, there is nothing to claim.
    pub fn notify(&self) {
        self.0.notify_one();
    }

    /// Waits for a notification. An earlier one that woke no dispatcher counts. Safe to cancel.
    pub async fn notified(&self) {
        self.0.notified().await;
    }
}
