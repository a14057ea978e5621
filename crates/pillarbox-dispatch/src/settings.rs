//! How a dispatcher works, and which settings are rejected.

use std::time::Duration;

use pillarbox_store::Scope;
use pillarbox_store::retention::Retention;
use pillarbox_store::store::LANES;

/// How a dispatcher works. The defaults suit most applications. [`validate`](Self::validate) rejects impossible values.
///
/// ```
/// # use std::time::Duration;
/// use pillarbox_dispatch::Settings;
///
/// let settings = Settings {
///     poll_interval: Duration::from_millis(100),
///     ..Settings::default()
/// };
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a claim is valid. Renewed after half of it.
    pub lease: Duration,
    /// How long an attempt may take, for destinations without their own timeout.
    pub timeout: Duration,
    /// How the worker learns of new events of other processes.
    pub wake: WakeBy,
    /// The longest time between two searches of an idle worker. Twice as long while the database reports new events.
    pub poll_interval: Duration,
    /// The most rows of one claim. Rows with keys are claimed in twice that number, and as many as there is room for if
    /// they have few keys.
    pub batch: usize,
    /// How many rows may be in flight.
    pub max_in_flight: usize,
    /// How many bytes of payload may be in flight. One row may exceed it, so that a larger row is sent too.
    pub max_bytes: usize,
    /// How long attempts may go on after a shutdown began.
    pub grace: Duration,
    /// How often rows whose attempts are used up are swept.
    pub sweep_interval: Duration,
    /// The namespaces that this dispatcher serves.
    pub scope: Scope,
    /// How many attempts a row has that has no destination yet.
    pub max_attempts: u32,
    /// The number of lane ranges of a namespace, which workers share: at least as many as there are workers.
    pub lane_ranges: u16,
    /// What happens to events that no route matches.
    pub unrouted: Unrouted,
    /// How long rows are kept after their end. By default for ever: a program that embeds a dispatcher deletes nothing
    /// unasked. [`Retention::usual`] is what the daemon does by default.
    pub retention: Retention,
    /// How often it looks for rows that were kept long enough.
    pub prune_interval: Duration,
    /// How many of them it reads at once. Each time it rests longer than that took.
    pub prune_batch: usize,
    /// The longest time between two heartbeats. There are at least three per lease.
    pub heartbeat: Duration,
}

/// How a worker learns of new events of other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WakeBy {
    /// It waits in the database, on a connection of its own. It polls where the store cannot do that, such as behind a
    /// pooler.
    #[default]
    Server,
    /// It polls: every few milliseconds after events, less and less often up to the poll interval.
    Poll,
}

/// What happens to events that no route matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unrouted {
    /// They are held, visibly, until a route matches.
    #[default]
    Hold,
    /// They are deleted.
    Delete,
    /// They are dead, with a reason.
    Dead,
}

impl Unrouted {
    /// As the configuration writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Delete => "delete",
            Self::Dead => "dead",
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(60),
            timeout: Duration::from_secs(20),
            wake: WakeBy::Server,
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
            retention: Retention::default(),
            prune_interval: Duration::from_secs(60),
            prune_batch: 1000,
            heartbeat: Duration::from_secs(5),
        }
    }
}

/// An impossible setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct SettingsError {
    /// The name of the setting.
    pub field: &'static str,
    /// Why it is rejected, and what to do.
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
    /// Checks the settings.
    ///
    /// # Errors
    /// The first impossible setting.
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.errors().into_iter().next().map_or(Ok(()), Err)
    }

    /// Every impossible setting.
    pub fn errors(&self) -> Vec<SettingsError> {
        let rules = [
            (
                self.lease.is_zero(),
                "lease",
                "must not be zero: no event could be sent within it",
            ),
            // An idle worker searches once per interval, and has to find an expired lease before the next one expires.
            (
                self.poll_interval > self.lease / 3,
                "poll_interval",
                "must be at most a third of `lease`",
            ),
            (
                self.poll_interval.is_zero(),
                "poll_interval",
                "must not be zero: an idle worker would never rest",
            ),
            (
                self.sweep_interval.is_zero(),
                "sweep_interval",
                "must not be zero: the sweeper would never rest",
            ),
            (self.batch == 0, "batch", "must be at least 1"),
            (self.max_in_flight == 0, "max_in_flight", "must be at least 1"),
            (self.max_bytes == 0, "max_bytes", "must be at least 1"),
            (
                self.max_attempts == 0,
                "max_attempts",
                "must be at least 1: no event could be sent",
            ),
            (
                self.lane_ranges == 0 || self.lane_ranges > LANES,
                "lane_ranges",
                "must be at least 1 and at most 4096",
            ),
            (
                self.prune_interval.is_zero(),
                "prune_interval",
                "must not be zero: the pruner would never rest",
            ),
            (self.prune_batch == 0, "prune_batch", "must be at least 1"),
            (
                self.heartbeat.is_zero(),
                "heartbeat",
                "must not be zero: the worker would do nothing else",
            ),
        ];
        let broken = rules.into_iter().filter(|(is_broken, ..)| *is_broken);
        let broken = broken.map(|(_, field, message)| SettingsError::new(field, message));
        broken.chain(self.validate_timeout(self.timeout).err()).collect()
    }

    /// Checks that a destination's timeout fits into the lease.
    pub(crate) fn validate_timeout(&self, timeout: Duration) -> Result<(), SettingsError> {
        if timeout.is_zero() {
            return Err(SettingsError::new(
                "timeout",
                "must not be zero: no attempt could be answered within it",
            ));
        }
        // A lease shorter than an attempt means that two workers send the same event.
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

    fn rejected(change: impl FnOnce(&mut Settings)) -> &'static str {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.validate().expect_err("impossible").field
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Settings::default().validate(), Ok(()));
    }

    #[test]
    fn impossible_settings_are_rejected() {
        assert_eq!(rejected(|s| s.lease = Duration::ZERO), "lease");
        assert_eq!(rejected(|s| s.lease = Duration::from_secs(39)), "lease");
        assert_eq!(
            rejected(|s| s.poll_interval = Duration::from_secs(21)),
            "poll_interval"
        );
        assert_eq!(rejected(|s| s.poll_interval = Duration::ZERO), "poll_interval");
        assert_eq!(rejected(|s| s.sweep_interval = Duration::ZERO), "sweep_interval");
        assert_eq!(rejected(|s| s.timeout = Duration::ZERO), "timeout");
        assert_eq!(rejected(|s| s.batch = 0), "batch");
        assert_eq!(rejected(|s| s.max_in_flight = 0), "max_in_flight");
        assert_eq!(rejected(|s| s.max_bytes = 0), "max_bytes");
        assert_eq!(rejected(|s| s.max_attempts = 0), "max_attempts");
        assert_eq!(rejected(|s| s.lane_ranges = 0), "lane_ranges");
        assert_eq!(rejected(|s| s.lane_ranges = 4097), "lane_ranges");
        assert_eq!(rejected(|s| s.prune_interval = Duration::ZERO), "prune_interval");
        assert_eq!(rejected(|s| s.prune_batch = 0), "prune_batch");
        assert_eq!(rejected(|s| s.heartbeat = Duration::ZERO), "heartbeat");
    }

    #[test]
    fn an_error_names_the_setting_and_what_to_do() {
        let error = Settings::default()
            .validate_timeout(Duration::from_secs(31))
            .expect_err("too long for the lease");
        assert_eq!(
            error.to_string(),
            "lease: must be at least twice `timeout`, which is 31s"
        );
    }
}
