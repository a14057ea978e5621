//! Whether a destination may be sent to.
//!
//! ```text
//!                  unavailable, throttled,
//!               five events in a row failed
//!      closed ──────────────────────────────▶ open ◀─────────────────────────┐
//!        ▲                                      │                            │
//!        │                                      │ time over                  │
//!        │ check passes                         ▼            check fails     │
//!        ├───────────────────────────────── (check) ─────────────────────────┤
//!        │                                      │                            │
//!        │                                      │ check passes, and events   │
//!        │ the event arrives                    ▼ failed    the event fails  │
//!        └──────────────────────────────── half-open ────────────────────────┘
//! ```
//!
//! An outcome that concerns the destination, not the event, opens the breaker. While it is open nothing is claimed or sent
//! and no attempt is used. When its time is over, recovery is probed with a health check before an event is risked.
//!
//! A destination may pass every check and fail every event. So if failed events opened the breaker, a passed check makes it
//! half-open: one event is sent, and its attempt counts. Only when that event arrives, the others follow. If it fails, the
//! breaker opens again for twice the time. An event that has just failed as a probe does not open it again: it may be poison,
//! and others have to get their turn.
//!
//! | opened by | first wait | longest | probed with |
//! |---|---|---|---|
//! | unavailable, throttled without a time | 1 s | 30 s | check |
//! | throttled with a time | that time | 24 h | check |
//! | failed events | 10 s | 5 min | check, then one event |
//!
//! A destination may also be disabled, because it asked never to be called again (a 410), or paused by an operator. Both
//! are stored, so that every worker sees them, and last until an operator resumes the destination.
//!
//! Logs when it opens, once a minute while it is open, and when it closes. Pure, except for the log.
//!
//! **If we die here** the next worker finds out for itself.

use std::time::Duration;

use pillarbox::text::error_text;
use pillarbox_store::store::BreakerState;

use crate::send::streak::{Streak, Subject};
use crate::worker::backoff::Backoff;

/// Waits before a health check: the first, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// The same where events failed: the next probe is an event, whose attempt counts.
const FIRST_FAILING: Duration = Duration::from_secs(10);
const LONGEST_FAILING: Duration = Duration::from_secs(300);
/// The longest time that a destination may ask us to wait.
pub(crate) const LONGEST_THROTTLE: Duration = Duration::from_secs(24 * 3600);
/// The shortest: a throttled row uses no attempt, so that zero would loop for ever.
pub(crate) const SHORTEST_THROTTLE: Duration = Duration::from_secs(1);
/// How long a row waits whose destination is paused or disabled.
const PAUSED: Duration = Duration::from_secs(60);
/// The shortest wait of a row that its destination did not take: the health check needs its time too.
const SHORTEST_RELEASE: Duration = Duration::from_secs(1);
/// How often the log repeats that the breaker is open.
const REPEAT: Duration = Duration::from_secs(60);
/// How many characters of the reason are reported.
const MAX_REASON: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    /// Open; from `until` on, a health check is due.
    Open {
        until: Duration,
        cause: Cause,
    },
    /// One event at a time is sent.
    HalfOpen,
    Disabled,
}

/// What opened the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The destination cannot be reached, or asked us to wait.
    Unavailable,
    /// Events failed.
    Failing,
}

/// One destination's breaker. Owned by its sender.
#[derive(Debug)]
pub(crate) struct Breaker {
    destination: String,
    state: State,
    paused: bool,
    streak: Streak,
    /// Did failed events open it, and has none arrived since?
    is_failing: bool,
    /// How often failed events have opened it since an event arrived.
    failing_rounds: u32,
    /// The event that failed last while it was half-open.
    last_probe: Option<Subject>,
    backoff: Backoff,
    /// When it was closed last, and why it is not.
    opened: (Duration, String),
    /// When that was last logged.
    logged: Duration,
}

impl Breaker {
    pub(crate) fn new(destination: String) -> Self {
        Self {
            destination,
            state: State::Closed,
            paused: false,
            streak: Streak::default(),
            is_failing: false,
            failing_rounds: 0,
            last_probe: None,
            backoff: Backoff::new(FIRST, LONGEST),
            opened: Default::default(),
            logged: Duration::ZERO,
        }
    }

    /// How many attempts may run at once, of at most so many.
    pub(crate) fn concurrency(&self, most: usize) -> usize {
        match self.state {
            _ if self.paused => 0,
            State::Closed => most,
            State::HalfOpen => 1,
            State::Open { .. } | State::Disabled => 0,
        }
    }

    /// Does it let nothing through: open, disabled or paused?
    pub(crate) fn holds(&self) -> bool {
        self.concurrency(1) == 0
    }

    /// Is it open, or the destination disabled?
    pub(crate) fn is_tripped(&self) -> bool {
        matches!(self.state, State::Open { .. } | State::Disabled)
    }

    pub(crate) fn is_half_open(&self) -> bool {
        self.state == State::HalfOpen
    }

    /// Does it remember failures? Then it matters which events arrive.
    pub(crate) fn remembers(&self) -> bool {
        !self.streak.is_empty() || self.state != State::Closed
    }

    /// The state that the heartbeat reports, and since when; `None` if it is closed. A disabled destination is stored
    /// apart.
    pub(crate) fn state(&self) -> Option<(BreakerState, Duration)> {
        let state = match self.state {
            State::Closed | State::Disabled => return None,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen => BreakerState::HalfOpen,
        };
        Some((state, self.opened.0))
    }

    /// Why it is not closed.
    pub(crate) fn reason(&self) -> &str {
        &self.opened.1
    }

    /// How long a row waits that its destination did not take; `None` if it may be sent again now.
    pub(crate) fn wait(&self, now: Duration) -> Option<Duration> {
        match self.state {
            _ if self.paused => Some(PAUSED),
            State::Closed | State::HalfOpen => None,
            State::Disabled => Some(PAUSED),
            State::Open { until, .. } => Some(until.saturating_sub(now).max(SHORTEST_RELEASE)),
        }
    }

    /// When the next health check is due, if one is needed.
    pub(crate) fn check_at(&self) -> Option<Duration> {
        match self.state {
            State::Open { until, .. } if !self.paused => Some(until),
            State::Open { .. } | State::Closed | State::HalfOpen | State::Disabled => None,
        }
    }

    /// When [`remind`](Self::remind) is due. Never while it is half-open, which lasts until there is an event to send.
    pub(crate) fn remind_at(&self) -> Option<Duration> {
        let is_open = matches!(self.state, State::Open { .. });
        (is_open && !self.paused).then(|| self.logged + REPEAT)
    }

    /// Logs once a minute that it is still open.
    pub(crate) fn remind(&mut self, now: Duration) {
        if self.remind_at().is_some_and(|at| at <= now) {
            self.logged = now;
            tracing::warn!(
                destination = self.destination,
                reason = self.opened.1,
                open_for = ?now.saturating_sub(self.opened.0),
                "breaker still open"
            );
        }
    }

    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// An operator resumed the destination, whether it was paused or disabled.
    pub(crate) fn resumed(&mut self) {
        tracing::info!(destination = self.destination, "destination resumed");
        if self.state == State::Disabled {
            self.state = State::Closed;
            self.recovered();
        }
    }

    /// The destination cannot be reached. Attempts that were running when the breaker opened add nothing.
    pub(crate) fn unavailable(&mut self, reason: &str, now: Duration, random: f64) {
        if matches!(self.state, State::Closed | State::HalfOpen) {
            let wait = self.backoff.failed(random);
            self.open(now + wait, Cause::Unavailable, reason, now);
        }
    }

    /// The destination asks us to wait, perhaps for a given time.
    pub(crate) fn throttled(&mut self, reason: &str, after: Option<Duration>, now: Duration, random: f64) {
        match after {
            Some(after) => {
                let until = now + after.min(LONGEST_THROTTLE);
                self.open(until, Cause::Unavailable, reason, now);
            }
            None => self.unavailable(reason, now, random),
        }
    }

    /// An attempt failed.
    pub(crate) fn failed(&mut self, subject: Subject, reason: &str, now: Duration, random: f64) {
        let opens = match self.state {
            State::Closed => self.streak.failed(subject),
            State::HalfOpen => self.last_probe.replace(subject) != Some(subject),
            // Attempts that were running when it opened add nothing.
            State::Open { .. } | State::Disabled => false,
        };
        if opens {
            let wait = failing_wait(self.failing_rounds, random);
            self.failing_rounds = self.failing_rounds.saturating_add(1);
            self.is_failing = true;
            let reason = format!("several events in a row failed, the last with: {reason}");
            self.open(now + wait, Cause::Failing, &reason, now);
        }
    }

    /// The destination took an event, or rejected it: it works.
    pub(crate) fn arrived(&mut self, subject: Subject) {
        match self.state {
            State::Closed => return self.streak.arrived(subject),
            State::Disabled => return,
            // Also an attempt that was running when it opened.
            State::HalfOpen
            | State::Open {
                cause: Cause::Failing,
                ..
            } => self.close(),
            State::Open {
                cause: Cause::Unavailable,
                ..
            } => {}
        }
        self.recovered();
    }

    /// Ends the count of failed events.
    fn recovered(&mut self) {
        self.is_failing = false;
        self.failing_rounds = 0;
        self.last_probe = None;
        self.streak.recovered();
    }

    /// An event was delivered. Only this ends the doubling of waits between checks: a destination that passes checks and
    /// accepts no event would otherwise be tried every second.
    pub(crate) fn delivered(&mut self) {
        self.backoff.worked();
    }

    /// The destination asks never to be called again. Returns whether that is new.
    pub(crate) fn disable(&mut self, reason: &str) -> bool {
        let is_new = self.state != State::Disabled;
        if is_new {
            tracing::error!(
                destination = self.destination,
                reason,
                "destination disabled (change its configuration, then run `pillarbox destinations resume`)"
            );
            self.state = State::Disabled;
        }
        is_new
    }

    /// A health check ended.
    pub(crate) fn checked(&mut self, answer: Result<(), String>, now: Duration, random: f64) {
        let State::Open { until, cause } = self.state else {
            return;
        };
        match answer {
            Err(error) => {
                let wait = self.backoff.failed(random);
                tracing::debug!(
                    destination = self.destination,
                    error,
                    ?wait,
                    "health check failed"
                );
                let until = until.max(now + wait);
                self.state = State::Open { until, cause };
            }
            // The destination asked for a longer wait while the check was running.
            Ok(()) if until > now => {}
            Ok(()) if self.is_failing => {
                tracing::info!(destination = self.destination, "breaker half-open");
                self.state = State::HalfOpen;
            }
            Ok(()) => self.close(),
        }
    }

    fn close(&mut self) {
        tracing::info!(destination = self.destination, "breaker closed");
        self.state = State::Closed;
    }

    fn open(&mut self, until: Duration, cause: Cause, reason: &str, now: Duration) {
        match self.state {
            State::Disabled => return,
            State::Open { until: before, .. } if before >= until => return,
            State::Open { .. } => {}
            State::HalfOpen => self.opened.1 = cut(reason),
            State::Closed => {
                self.opened = (now, cut(reason));
                self.logged = now;
                tracing::warn!(
                    destination = self.destination,
                    reason = self.opened.1,
                    wait = ?until.saturating_sub(now),
                    "breaker opened"
                );
            }
        }
        self.state = State::Open { until, cause };
    }
}

/// How long it stays open in this round. The jitter keeps workers from sending their probes at the same moment.
fn failing_wait(round: u32, random: f64) -> Duration {
    let factor = 1u32.checked_shl(round).unwrap_or(u32::MAX);
    let wait = FIRST_FAILING.saturating_mul(factor).min(LONGEST_FAILING);
    wait + (wait / 10).mul_f64(random)
}

fn cut(reason: &str) -> String {
    error_text(reason).chars().take(MAX_REASON).collect()
}

#[cfg(test)]
mod tests;
