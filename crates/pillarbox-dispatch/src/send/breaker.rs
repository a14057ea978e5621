//! Whether a destination may be sent to: open, closed for a while, or disabled.
//!
//! Closed by what a sink says of the place, not of the event: nobody is there, or not now. While it is
//! closed nothing is sent and no attempt is used up. When the time is over `check()` is the probe, not
//! an event. A destination that is gone is paused in the store, and stays so until a person resumes it.
//!
//! A person may pause a destination at any time; that is written in the store, and every worker sees it.
//!
//! Says so once when it closes and once when it opens.
//!
//! **If we die here** the next worker finds out for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::worker::store_health::Backoff;

/// Waits before the next check: the first, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// The longest that we believe a destination that asks to be left alone.
pub(crate) const LONGEST_THROTTLE: Duration = Duration::from_secs(24 * 3600);
/// The shortest: attempts are given back, so that "again at once" would never end.
pub(crate) const SHORTEST_THROTTLE: Duration = Duration::from_secs(1);
/// How long a row waits that goes to a disabled destination.
pub(crate) const DISABLED: Duration = Duration::from_secs(60);
/// A row that is given back waits at least so long: the check needs its time too.
const SHORTEST_RELEASE: Duration = Duration::from_secs(1);

const OPEN: u64 = 0;
const NEVER: u64 = u64::MAX;

/// What the gate shows to those who do not own it, and where they hang a pause.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sign(Arc<Board>);

#[derive(Debug, Default)]
struct Board {
    until: AtomicU64,
    paused: AtomicBool,
    resumed: AtomicBool,
    changed: Notify,
}

impl Sign {
    /// How long a row that comes to the gate now has to wait; `None` if it is open.
    pub(crate) fn closed(&self, now: Duration) -> Option<Duration> {
        if self.is_paused() {
            return Some(DISABLED);
        }
        match self.0.until.load(Ordering::Acquire) {
            OPEN => None,
            NEVER => Some(DISABLED),
            until => Some(
                Duration::from_nanos(until)
                    .saturating_sub(now)
                    .max(SHORTEST_RELEASE),
            ),
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.0.paused.load(Ordering::Acquire)
    }

    /// The store says whether it is paused.
    pub(crate) fn pause(&self, paused: bool) {
        if self.0.paused.swap(paused, Ordering::AcqRel) != paused {
            self.0.resumed.store(!paused, Ordering::Release);
            self.0.changed.notify_one();
        }
    }

    /// Waits until a pause begins or ends. Safe to cancel.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed { until: Duration },
    Disabled,
}

/// One destination's gate. Owned by its lanes.
#[derive(Debug)]
pub(crate) struct Gate {
    name: String,
    state: State,
    backoff: Backoff,
    sign: Sign,
}

impl Gate {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            state: State::Open,
            backoff: Backoff::new(FIRST, LONGEST),
            sign: Sign::default(),
        }
    }

    pub(crate) fn sign(&self) -> Sign {
        self.sign.clone()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open && !self.sign.is_paused()
    }

    /// When the next check is due, if one is wanted.
    pub(crate) fn check_at(&self) -> Option<Duration> {
        match self.state {
            State::Closed { until } if !self.sign.is_paused() => Some(until),
            State::Closed { .. } | State::Open | State::Disabled => None,
        }
    }

    /// A pause may have ended, and with it what led to it.
    pub(crate) fn look_at_sign(&mut self) {
        if self.sign.0.resumed.swap(false, Ordering::AcqRel) {
            tracing::info!(destination = self.name, "the destination is resumed");
            if self.state == State::Disabled {
                self.show(State::Open);
            }
        }
    }

    /// Nobody is there. Those who were under target when it closed say the same, and are not news.
    pub(crate) fn unavailable(&mut self, reason: &str, now: Duration, random: f64) {
        if self.state == State::Open {
            let wait = self.backoff.failed(random);
            self.close(now + wait, reason, now);
        }
    }

    /// It wants to be left alone, for a time that it may have said.
    pub(crate) fn throttled(&mut self, reason: &str, after: Option<Duration>, now: Duration, random: f64) {
        match after {
            Some(after) => self.close(now + after.min(LONGEST_THROTTLE), reason, now),
            None => self.unavailable(reason, now, random),
        }
    }

    /// It is no more. Says whether that is news.
    pub(crate) fn gone(&mut self, reason: &str) -> bool {
        let news = self.state != State::Disabled;
        if news {
            tracing::error!(
                destination = self.name,
                reason,
                "the destination is gone and is paused; change its configuration, then `pillarbox destinations resume`"
            );
            self.show(State::Disabled);
        }
        news
    }

    /// A check that the gate asked for was answered.
    pub(crate) fn checked(&mut self, answer: Result<(), String>, now: Duration, random: f64) {
        let State::Closed { until } = self.state else {
            return;
        };
        match answer {
            Err(reason) => {
                let wait = self.backoff.failed(random);
                tracing::debug!(
                    destination = self.name,
                    reason,
                    ?wait,
                    "the destination is still away"
                );
                self.show(State::Closed {
                    until: until.max(now + wait),
                });
            }
            // Closed for longer while the check was under target.
            Ok(()) if until > now => {}
            Ok(()) => {
                tracing::info!(destination = self.name, "the destination is back");
                self.show(State::Open);
            }
        }
    }

    /// An event was confirmed. Only this ends the doubling: a place whose check passes and that takes
    /// nothing would otherwise be asked every second.
    pub(crate) fn delivered(&mut self) {
        self.backoff.worked();
    }

    fn close(&mut self, until: Duration, reason: &str, now: Duration) {
        match self.state {
            State::Disabled => return,
            State::Closed { until: before } if before >= until => return,
            State::Closed { .. } => {}
            State::Open => tracing::warn!(
                destination = self.name,
                reason,
                wait = ?until.saturating_sub(now),
                "the destination is closed for a while; nothing is sent and no attempt is used up"
            ),
        }
        self.show(State::Closed { until });
    }

    fn show(&mut self, state: State) {
        self.state = state;
        let shown = match state {
            State::Open => OPEN,
            State::Disabled => NEVER,
            State::Closed { until } => u64::try_from(until.as_nanos()).unwrap_or(NEVER - 1).max(1),
        };
        self.sign.0.until.store(shown, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn gate() -> (Gate, Sign) {
        let gate = Gate::new("there".to_owned());
        let sign = gate.sign();
        (gate, sign)
    }

    #[test]
    fn many_who_find_nobody_close_it_once() {
        let (mut gate, sign) = gate();
        for _ in 0..100 {
            gate.unavailable("refused", s(10), 1.0);
        }
        assert_eq!(gate.check_at(), Some(s(11)));
        assert_eq!(sign.closed(s(10)), Some(s(1)));
    }

    #[test]
    fn failed_checks_double_the_wait_up_to_the_longest() {
        let (mut gate, _) = gate();
        gate.unavailable("refused", s(0), 1.0);
        let mut waits = Vec::new();
        for _ in 0..7 {
            let now = gate.check_at().expect("closed");
            gate.checked(Err("refused".into()), now, 1.0);
            waits.push((gate.check_at().expect("closed") - now).as_secs());
        }
        assert_eq!(waits, [2, 4, 8, 16, 30, 30, 30]);
    }

    #[test]
    fn a_check_opens_it_and_only_a_delivery_ends_the_doubling() {
        let (mut gate, sign) = gate();
        gate.unavailable("refused", s(0), 1.0);
        gate.checked(Ok(()), s(1), 1.0);
        assert!(gate.is_open() && sign.closed(s(1)).is_none());
        gate.unavailable("refused", s(1), 1.0);
        assert_eq!(gate.check_at(), Some(s(3)));
        gate.checked(Ok(()), s(3), 1.0);
        gate.delivered();
        gate.unavailable("refused", s(3), 1.0);
        assert_eq!(gate.check_at(), Some(s(4)));
    }

    #[test]
    fn the_longest_wish_to_be_left_alone_counts_up_to_a_day() {
        let (mut gate, _) = gate();
        gate.throttled("slow", Some(s(50)), s(0), 0.0);
        gate.throttled("slow", Some(s(20)), s(0), 0.0);
        assert_eq!(gate.check_at(), Some(s(50)));
        gate.throttled("slow", Some(s(1_000_000)), s(0), 0.0);
        assert_eq!(gate.check_at(), Some(LONGEST_THROTTLE));
    }

    #[test]
    fn a_check_from_before_does_not_shorten_a_wish() {
        let (mut gate, _) = gate();
        gate.unavailable("refused", s(0), 1.0);
        gate.throttled("slow", Some(s(60)), s(1), 0.0);
        gate.checked(Ok(()), s(2), 0.0);
        assert_eq!(gate.check_at(), Some(s(61)));
    }

    #[test]
    fn what_is_gone_stays_disabled() {
        let (mut gate, sign) = gate();
        gate.gone("410");
        gate.checked(Ok(()), s(1), 0.0);
        gate.unavailable("refused", s(1), 0.0);
        gate.throttled("slow", Some(s(5)), s(1), 0.0);
        assert_eq!(
            (gate.is_open(), gate.check_at(), sign.closed(s(9))),
            (false, None, Some(DISABLED))
        );
    }

    #[test]
    fn a_pause_closes_it_and_asks_for_no_check() {
        let (mut gate, sign) = gate();
        gate.unavailable("refused", s(0), 1.0);
        sign.pause(true);
        assert!(!gate.is_open() && gate.check_at().is_none());
        sign.pause(false);
        gate.look_at_sign();
        assert_eq!(gate.check_at(), Some(s(1)), "what it was closed for is not over");
    }

    #[test]
    fn what_is_gone_is_open_again_when_a_person_resumes_it() {
        let (mut gate, sign) = gate();
        assert!(gate.gone("410") && !gate.gone("410"));
        sign.pause(true);
        gate.look_at_sign();
        assert!(!gate.is_open());
        sign.pause(false);
        gate.look_at_sign();
        assert!(gate.is_open());
    }
}
