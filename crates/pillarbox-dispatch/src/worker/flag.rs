//! A flag that one task raises and another takes.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    is_raised: AtomicBool,
    notify: Notify,
}

impl Flag {
    pub(crate) fn raise(&self) {
        self.is_raised.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Was it raised since the last call?
    pub(crate) fn take(&self) -> bool {
        self.is_raised.swap(false, Ordering::AcqRel)
    }

    /// Waits until it is raised. Safe to cancel.
    pub(crate) async fn raised(&self) {
        self.notify.notified().await;
    }
}
