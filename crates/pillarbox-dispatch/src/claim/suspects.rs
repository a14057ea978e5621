//! Whose turn it is: everybody's, or that of a row that is to be alone. Pure.
//!
//! A row that had two attempts and whose lease ran out may be what killed its workers. It is taken
//! with nothing else of this worker in flight, so that the next crash is its own. That stops all other
//! work, so that after such a turn everybody else has at least as much time as it took: a slow
//! destination cannot starve the rest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Word from the sweeper that a row wants to be alone.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    asked: AtomicBool,
    bell: Notify,
}

impl Asked {
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.bell.notify_one();
    }

    /// Was it asked since the last time?
    pub(crate) fn take(&self) -> bool {
        self.asked.swap(false, Ordering::AcqRel)
    }

    /// Waits until it is asked. Safe to cancel.
    pub(crate) async fn heard(&self) {
        self.bell.notified().await;
    }
}

/// What the claimer should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Claim as usual.
    Claim,
    /// Claim nothing until nothing is in flight.
    Wait,
    /// Claim one row alone.
    ClaimAlone,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    wanted: bool,
    turn: Turn,
    not_before: Duration,
}

#[derive(Debug, Default, Clone, Copy)]
enum Turn {
    #[default]
    Everybody,
    /// Stopped claiming at this time; waiting for silence.
    Hush(Duration),
    /// Stopped claiming at this time; the one row is under target.
    Alone(Duration),
}

impl Suspects {
    /// A row wants to be alone.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// What to do now, with so many rows in flight.
    pub(crate) fn step(&mut self, in_flight: usize, now: Duration) -> Step {
        if let (Turn::Alone(since), 0) = (self.turn, in_flight) {
            self.turn = Turn::Everybody;
            self.not_before = now + now.saturating_sub(since);
        }
        if matches!(self.turn, Turn::Everybody) && self.wanted && now >= self.not_before {
            self.turn = Turn::Hush(now);
        }
        match (self.turn, in_flight) {
            (Turn::Everybody, _) => Step::Claim,
            (Turn::Hush(_), 0) => Step::ClaimAlone,
            (Turn::Hush(_) | Turn::Alone(_), _) => Step::Wait,
        }
    }

    /// The claim for one row found one, or did not: then nobody wants to be alone any more.
    pub(crate) fn claimed(&mut self, found: bool) {
        self.turn = match self.turn {
            Turn::Hush(since) if found => Turn::Alone(since),
            Turn::Hush(_) | Turn::Everybody => Turn::Everybody,
            Turn::Alone(since) => Turn::Alone(since),
        };
        self.wanted &= found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_row_is_claimed_alone_only_in_silence() {
        let mut suspects = Suspects::default();
        assert_eq!(suspects.step(5, s(0)), Step::Claim);
        suspects.want();
        assert_eq!(suspects.step(5, s(1)), Step::Wait);
        assert_eq!(suspects.step(0, s(2)), Step::ClaimAlone);
        suspects.claimed(true);
        assert_eq!(suspects.step(1, s(3)), Step::Wait);
    }

    #[test]
    fn everybody_else_has_as_much_time_as_the_turn_took() {
        let mut suspects = Suspects::default();
        suspects.want();
        assert_eq!(suspects.step(0, s(10)), Step::ClaimAlone);
        suspects.claimed(true);
        assert_eq!(suspects.step(0, s(14)), Step::Claim);
        assert_eq!(suspects.step(9, s(17)), Step::Claim);
        assert_eq!(suspects.step(9, s(18)), Step::Wait);
    }

    #[test]
    fn when_there_is_none_everything_goes_on() {
        let mut suspects = Suspects::default();
        suspects.want();
        assert_eq!(suspects.step(0, s(10)), Step::ClaimAlone);
        suspects.claimed(false);
        assert_eq!(suspects.step(0, s(10)), Step::Claim);
    }
}
