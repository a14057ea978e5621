//! How the engine works, and which combinations cannot work.

use std::time::Duration;

use pillarbox_store::Scope;
use pillarbox_store::store::LANES;

/// How a dispatcher works. The defaults suit most; [`validate`](Self::validate) refuses what cannot work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// For how long a claim holds. Renewed at half of it.
    pub lease: Duration,
    /// How long an attempt may take, for destinations that do not say.
    pub timeout: Duration,
    /// The longest wait between two looks when there is nothing to do.
    pub poll_interval: Duration,
    /// How many rows a claim asks for at the most; twice as many if they have keys, and of a few hot keys as many as
    /// there is room for.
    pub batch: usize,
    /// How many rows may be claimed and not settled.
    pub max_in_flight: usize,
    /// How many bytes of payload may be claimed and not settled. One row may go over it, because a row
    /// that is larger than the whole has to be sent too.
    pub max_bytes: usize,
    /// How long attempts may go on after a shutdown began.
    pub grace: Duration,
    /// How often rows whose attempts are used up are looked for.
    pub sweep_interval: Duration,
    /// Which rows are ours.
    pub scope: Scope,
    /// How many attempts a row has that does not know its destination yet.
    pub max_attempts: u32,
    /// Into how many ranges the lanes of a namespace are divided, among which workers share: at least as many as
    /// there are workers.
    pub lane_ranges: u16,
    /// What becomes of events that no route leads anywhere.
    pub unrouted: Unrouted,
    /// How often this worker says that it is alive: so often, and three times in a lease if that is more often.
    pub heartbeat: Duration,
}

/// What becomes of events that no route leads anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unrouted {
    /// They wait, visibly, until there is a route.
    #[default]
    Hold,
    /// They are deleted: nobody wants them.
    Delete,
    /// They are dead, with a reason.
    Dead,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(60),
            timeout: Duration::from_secs(20),
            poll_interval: Duration::from_millis(500),
            batch: 1000,
            max_in_flight: 4000,
            max_bytes: 32 * 1024 * 1024,
            grace: Duration::from_secs(20),
            sweep_interval: Duration::from_secs(10),
            scope: Scope::All,
            max_attempts: 25,
            lane_ranges: 32,
            unrouted: Unrouted::Hold,
            heartbeat: Duration::from_secs(5),
        }
    }
}

/// A setting that cannot work, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct SettingsError {
    /// Which.
    pub field: &'static str,
    /// A sentence that says what to do.
    pub message: String,
}

impl SettingsError {
    pub(crate) fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self {
            field,
            message: message.into(),
        }
    }
}

impl Settings {
    /// Refuses what cannot work.
    ///
    /// # Errors
    /// The first setting that cannot work, with a sentence.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let refuse = |field, message: &str| Err(SettingsError::new(field, message));
        if self.lease.is_zero() {
            return refuse("lease", "must not be zero: nothing could be sent within it");
        }
        // An idle worker looks once in that time; a lost lease has to be found before the next is over.
        if self.poll_interval > self.lease / 3 {
            return refuse("poll_interval", "must be at most a third of `lease`");
        }
        if self.poll_interval.is_zero() {
            return refuse(
                "poll_interval",
                "must not be zero: an idle worker would never rest",
            );
        }
        if self.sweep_interval.is_zero() {
            return refuse("sweep_interval", "must not be zero: the sweeper would never rest");
        }
        self.validate_timeout(self.timeout)?;
        if self.batch == 0 {
            return refuse("batch", "must be at least 1");
        }
        if self.max_in_flight == 0 {
            return refuse("max_in_flight", "must be at least 1");
        }
        if self.max_bytes == 0 {
            return refuse("max_bytes", "must be at least 1");
        }
        if self.max_attempts == 0 {
            return refuse("max_attempts", "must be at least 1: nothing could be tried");
        }
        if self.lane_ranges == 0 || self.lane_ranges > LANES {
            return refuse("lane_ranges", "must be at least 1 and at most 4096");
        }
        if self.heartbeat.is_zero() {
            return refuse("heartbeat", "must not be zero: the worker would do nothing else");
        }
        Ok(())
    }

    /// Refuses a destination's timeout that does not fit into the lease.
    pub(crate) fn validate_timeout(&self, timeout: Duration) -> Result<(), SettingsError> {
        if timeout.is_zero() {
            return Err(SettingsError::new(
                "timeout",
                "must not be zero: no attempt could be answered within it",
            ));
        }
        // A lease shorter than an attempt means that two workers deliver the same event.
        if self.lease < timeout.saturating_mul(2) {
            let message = format!("must be at least twice `timeout`, which is {timeout:?}");
            return Err(SettingsError::new("lease", message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Settings)) -> &'static str {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.validate().expect_err("cannot work").field
    }

    #[test]
    fn the_defaults_work() {
        assert_eq!(Settings::default().validate(), Ok(()));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert_eq!(refused(|s| s.lease = Duration::ZERO), "lease");
        assert_eq!(refused(|s| s.lease = Duration::from_secs(39)), "lease");
        assert_eq!(
            refused(|s| s.poll_interval = Duration::from_secs(21)),
            "poll_interval"
        );
        assert_eq!(refused(|s| s.poll_interval = Duration::ZERO), "poll_interval");
        assert_eq!(refused(|s| s.sweep_interval = Duration::ZERO), "sweep_interval");
        assert_eq!(refused(|s| s.timeout = Duration::ZERO), "timeout");
        assert_eq!(refused(|s| s.batch = 0), "batch");
        assert_eq!(refused(|s| s.max_in_flight = 0), "max_in_flight");
        assert_eq!(refused(|s| s.max_bytes = 0), "max_bytes");
        assert_eq!(refused(|s| s.max_attempts = 0), "max_attempts");
        assert_eq!(refused(|s| s.lane_ranges = 0), "lane_ranges");
        assert_eq!(refused(|s| s.lane_ranges = 4097), "lane_ranges");
        assert_eq!(refused(|s| s.heartbeat = Duration::ZERO), "heartbeat");
    }

    #[test]
    fn a_refusal_is_a_sentence() {
        let error = Settings::default()
            .validate_timeout(Duration::from_secs(31))
            .expect_err("does not fit");
        assert_eq!(
            error.to_string(),
            "lease: must be at least twice `timeout`, which is 31s"
        );
    }
}
