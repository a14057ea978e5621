//! Whether a destination may be sent to.
//!
//! ```text
//!            unavailable, throttled
//!   closed ─────────────────────────▶ open ◀──────┐
//!     ▲                                │ time over│
//!     │ check passes                   ▼          │ check fails
//!     └──────────────────────────── half-open ────┘
//! ```
//!
//! An outcome that concerns the destination, not the event, opens the breaker. While it is open nothing is sent and no
//! attempt is used. When its time is over it is half-open: recovery is probed with a health check before an event is
//! risked.
//!
//! A destination may also be disabled, because it asked never to be called again (a 410), or paused by an operator. Both
//! are stored, so that every worker sees them, and last until an operator resumes the destination.
//!
//! Logs once when it opens and once when it closes. Pure, except for the log.
//!
//! **If we die here** the next worker finds out for itself.

use std::time::Duration;

use pillarbox::text::error_text;
use pillarbox_store::store::BreakerState;

use crate::worker::backoff::Backoff;

/// Waits before a health check: the first, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// The longest time that a destination may ask us to wait.
pub(crate) const LONGEST_THROTTLE: Duration = Duration::from_secs(24 * 3600);
/// The shortest: a throttled row uses no attempt, so that zero would loop for ever.
pub(crate) const SHORTEST_THROTTLE: Duration = Duration::from_secs(1);
/// How long a row waits whose destination is paused or disabled.
const PAUSED: Duration = Duration::from_secs(60);
/// The shortest wait of a row that its destination did not take: the health check needs its time too.
const SHORTEST_RELEASE: Duration = Duration::from_secs(1);
/// How many characters of the reason are reported.
const MAX_REASON: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    /// Open, and from `until` on half-open.
    Open {
        until: Duration,
    },
    Disabled,
}

/// One destination's breaker. Owned by its sender.
#[derive(Debug)]
pub(crate) struct Breaker {
    destination: String,
    state: State,
    paused: bool,
    backoff: Backoff,
    /// When it opened last, and why.
    opened: (Duration, String),
}

impl Breaker {
    pub(crate) fn new(destination: String) -> Self {
        Self {
            destination,
            state: State::Closed,
            paused: false,
            backoff: Backoff::new(FIRST, LONGEST),
            opened: Default::default(),
        }
    }

    /// May rows be sent?
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed && !self.paused
    }

    /// Is it open, or the destination disabled?
    pub(crate) fn is_tripped(&self) -> bool {
        self.state != State::Closed
    }

    /// The state that the heartbeat reports, and since when; `None` if it is closed. A disabled destination is stored
    /// apart.
    pub(crate) fn state(&self) -> Option<(BreakerState, Duration)> {
        match self.state {
            State::Closed | State::Disabled => None,
            State::Open { .. } => Some((BreakerState::Open, self.opened.0)),
        }
    }

    /// Why it opened last.
    pub(crate) fn reason(&self) -> &str {
        &self.opened.1
    }

    /// How long a row waits that its destination did not take; `None` if it may be sent again now.
    pub(crate) fn wait(&self, now: Duration) -> Option<Duration> {
        match self.state {
            _ if self.paused => Some(PAUSED),
            State::Closed => None,
            State::Disabled => Some(PAUSED),
            State::Open { until } => Some(until.saturating_sub(now).max(SHORTEST_RELEASE)),
        }
    }

    /// When the next health check is due, if one is needed.
    pub(crate) fn check_at(&self) -> Option<Duration> {
        match self.state {
            State::Open { until } if !self.paused => Some(until),
            State::Open { .. } | State::Closed | State::Disabled => None,
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
        }
    }

    /// The destination cannot be reached. Attempts that were running when the breaker opened add nothing.
    pub(crate) fn unavailable(&mut self, reason: &str, now: Duration, random: f64) {
        if self.state == State::Closed {
            let wait = self.backoff.failed(random);
            self.open(now + wait, reason, now);
        }
    }

    /// The destination asks us to wait, perhaps for a given time.
    pub(crate) fn throttled(&mut self, reason: &str, after: Option<Duration>, now: Duration, random: f64) {
        match after {
            Some(after) => self.open(now + after.min(LONGEST_THROTTLE), reason, now),
            None => self.unavailable(reason, now, random),
        }
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
        let State::Open { until } = self.state else {
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
                self.state = State::Open {
                    until: until.max(now + wait),
                };
            }
            // The destination asked for a longer wait while the check was running.
            Ok(()) if until > now => {}
            Ok(()) => {
                tracing::info!(destination = self.destination, "breaker closed");
                self.state = State::Closed;
            }
        }
    }

    /// An event was delivered. Only this ends the doubling of waits: a destination that passes checks and accepts no
    /// event would otherwise be tried every second.
    pub(crate) fn delivered(&mut self) {
        self.backoff.worked();
    }

    fn open(&mut self, until: Duration, reason: &str, now: Duration) {
        match self.state {
            State::Disabled => return,
            State::Open { until: before } if before >= until => return,
            State::Open { .. } => {}
            State::Closed => {
                tracing::warn!(
                    destination = self.destination,
                    reason,
                    wait = ?until.saturating_sub(now),
                    "breaker opened"
                );
                self.opened = (now, error_text(reason).chars().take(MAX_REASON).collect());
            }
        }
        self.state = State::Open { until };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn breaker() -> Breaker {
        Breaker::new("partner".to_owned())
    }

    #[test]
    fn many_failures_at_once_open_it_once() {
        let mut breaker = breaker();
        for _ in 0..100 {
            breaker.unavailable("refused", s(10), 1.0);
        }
        assert_eq!(breaker.check_at(), Some(s(11)));
        assert_eq!(breaker.wait(s(10)), Some(s(1)));
    }

    #[test]
    fn failed_checks_double_the_wait_up_to_the_longest() {
        let mut breaker = breaker();
        breaker.unavailable("refused", s(0), 1.0);
        let mut waits = Vec::new();
        for _ in 0..7 {
            let now = breaker.check_at().expect("open");
            breaker.checked(Err("refused".into()), now, 1.0);
            waits.push((breaker.check_at().expect("open") - now).as_secs());
        }
        assert_eq!(waits, [2, 4, 8, 16, 30, 30, 30]);
    }

    #[test]
    fn a_check_closes_it_and_only_a_delivery_ends_the_doubling() {
        let mut breaker = breaker();
        breaker.unavailable("refused", s(0), 1.0);
        breaker.checked(Ok(()), s(1), 1.0);
        assert!(breaker.is_closed() && breaker.wait(s(1)).is_none());
        breaker.unavailable("refused", s(1), 1.0);
        assert_eq!(breaker.check_at(), Some(s(3)));
        breaker.checked(Ok(()), s(3), 1.0);
        breaker.delivered();
        breaker.unavailable("refused", s(3), 1.0);
        assert_eq!(breaker.check_at(), Some(s(4)));
    }

    #[test]
    fn the_longest_throttle_counts_up_to_a_day() {
        let mut breaker = breaker();
        breaker.throttled("slow", Some(s(50)), s(0), 0.0);
        breaker.throttled("slow", Some(s(20)), s(0), 0.0);
        assert_eq!(breaker.check_at(), Some(s(50)));
        breaker.throttled("slow", Some(s(1_000_000)), s(0), 0.0);
        assert_eq!(breaker.check_at(), Some(LONGEST_THROTTLE));
    }

    #[test]
    fn an_earlier_check_does_not_shorten_a_throttle() {
        let mut breaker = breaker();
        breaker.unavailable("refused", s(0), 1.0);
        breaker.throttled("slow", Some(s(60)), s(1), 0.0);
        breaker.checked(Ok(()), s(2), 0.0);
        assert_eq!(breaker.check_at(), Some(s(61)));
    }

    #[test]
    fn a_disabled_destination_stays_disabled() {
        let mut breaker = breaker();
        breaker.disable("410");
        breaker.checked(Ok(()), s(1), 0.0);
        breaker.unavailable("refused", s(1), 0.0);
        breaker.throttled("slow", Some(s(5)), s(1), 0.0);
        assert_eq!(
            (breaker.is_closed(), breaker.check_at(), breaker.wait(s(9))),
            (false, None, Some(PAUSED))
        );
    }

    #[test]
    fn a_pause_stops_sending_and_needs_no_check() {
        let mut breaker = breaker();
        breaker.unavailable("refused", s(0), 1.0);
        breaker.set_paused(true);
        assert!(!breaker.is_closed() && breaker.check_at().is_none());
        breaker.set_paused(false);
        breaker.resumed();
        assert_eq!(breaker.check_at(), Some(s(1)), "it is still open");
    }

    #[test]
    fn a_disabled_destination_is_sent_to_again_when_an_operator_resumes_it() {
        let mut breaker = breaker();
        assert!(breaker.disable("410") && !breaker.disable("410"));
        breaker.set_paused(true);
        assert!(!breaker.is_closed());
        breaker.set_paused(false);
        assert!(!breaker.is_closed());
        breaker.resumed();
        assert!(breaker.is_closed());
    }
}
