//! Logs that the database is unavailable: at once, then once a minute while it lasts, and when it is back.
//!
//! All handlers share one database, so its failure is one fact and not one per event.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox::StoreError;
use tokio::time::Instant;

/// How often a failure that lasts is logged again.
const REPEAT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct DatabaseHealth {
    /// When the warning was last logged; none while the database answers.
    warned: Mutex<Option<Instant>>,
}

impl DatabaseHealth {
    /// A call failed.
    pub(crate) fn failed(&self, consumer: &str, error: &StoreError) {
        let mut warned = self.warned();
        if warned.is_some_and(|at| at.elapsed() < REPEAT) {
            tracing::debug!(consumer, %error, "database unavailable; retrying");
            return;
        }
        *warned = Some(Instant::now());
        tracing::warn!(consumer, %error, "database unavailable; retrying");
    }

    /// A call succeeded.
    pub(crate) fn answered(&self, consumer: &str) {
        if self.warned().take().is_some() {
            tracing::info!(consumer, "database available again");
        }
    }

    fn warned(&self) -> MutexGuard<'_, Option<Instant>> {
        self.warned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
