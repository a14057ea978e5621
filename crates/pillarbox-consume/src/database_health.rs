//! Logs that the database is unavailable: at once, then once a minute while it lasts, and when it is back.
//!
//! All handlers share one database, so its failure is one fact and not one per event. A database that answers and refuses, such
//! as for a missing permission, is another fact: waiting does not mend it, so it is an error from its first line.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox::StoreError;
use tokio::time::Instant;

/// How often a failure that lasts is logged again.
const REPEAT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct DatabaseHealth {
    /// How the database fails, and when that was last logged; none while it answers.
    failing: Mutex<Option<(Failure, Instant)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Unavailable,
    Refused,
}

impl DatabaseHealth {
    /// A call failed.
    pub(crate) fn failed(&self, consumer: &str, error: &StoreError) {
        let failure = match error {
            StoreError::Unavailable(_) => Failure::Unavailable,
            StoreError::Missing(_)
            | StoreError::Outdated { .. }
            | StoreError::Newer { .. }
            | StoreError::OtherBuild { .. }
            | StoreError::Denied(_)
            | StoreError::Unsafe(_)
            | StoreError::Invalid(_)
            | StoreError::Other(_) => Failure::Refused,
        };
        let mut failing = self.failing();
        if failing.is_some_and(|(known, logged)| known == failure && logged.elapsed() < REPEAT) {
            tracing::debug!(consumer, %error, "database call failed");
            return;
        }
        *failing = Some((failure, Instant::now()));
        match failure {
            Failure::Unavailable => tracing::warn!(consumer, %error, "database unavailable; retrying"),
            Failure::Refused => tracing::error!(consumer, %error, "database rejects statements; retrying"),
        }
    }

    /// A call succeeded.
    pub(crate) fn answered(&self, consumer: &str) {
        match self.failing().take() {
            Some((Failure::Unavailable, _)) => tracing::info!(consumer, "database available again"),
            Some((Failure::Refused, _)) => tracing::info!(consumer, "database accepts statements again"),
            None => {}
        }
    }

    fn failing(&self) -> MutexGuard<'_, Option<(Failure, Instant)>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use pillarbox_testkit::CapturedLogs;
    use tracing::Level;

    use super::*;

    #[tokio::test]
    async fn a_missing_permission_is_an_error_and_no_outage() {
        let logs = CapturedLogs::start();
        let health = DatabaseHealth::default();
        health.failed("billing", &StoreError::Unavailable("no route".to_owned()));
        let denied = StoreError::Denied("permission denied for table inbox (42501)".to_owned());
        health.failed("billing", &denied);
        health.failed("billing", &denied);
        health.answered("billing");
        let lines = logs.lines().into_iter().filter(|line| line.level <= Level::INFO);
        let lines: Vec<_> = lines.map(|line| (line.level, line.message)).collect();
        let expected = [
            (Level::WARN, "database unavailable; retrying"),
            (Level::ERROR, "database rejects statements; retrying"),
            (Level::INFO, "database accepts statements again"),
        ];
        assert_eq!(
            lines,
            expected.map(|(level, message)| (level, message.to_owned()))
        );
    }
}
