//! A hint that there is something to claim.
//!
//! Rung by the application after its commit, in the same process. A lost wake makes an event late
//! by one poll, never lost; a wake for nothing costs one look.

use std::sync::Arc;

use tokio::sync::Notify;

/// A bell between those who enqueue and the dispatcher in the same process.
#[derive(Debug, Clone, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    /// Rings. To be called after the commit: before it there is nothing to see.
    pub fn ring(&self) {
        self.0.notify_one();
    }

    /// Waits for a ring. One that came before is remembered. Safe to cancel.
    pub async fn rung(&self) {
        self.0.notified().await;
    }
}
