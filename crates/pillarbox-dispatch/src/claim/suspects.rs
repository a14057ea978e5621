//! When a suspect is tried alone. Pure.
//!
//! A row whose lease expired after two attempts may be what killed its workers. It is claimed with nothing else of this
//! worker in flight, so that the next crash is its own. That stops all other work. So the other rows get at least as much
//! time afterwards as the suspect took: a slow destination cannot starve them.

use std::time::Duration;

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
    phase: Phase,
    not_before: Duration,
}

#[derive(Debug, Default, Clone, Copy)]
enum Phase {
    /// All rows are claimed.
    #[default]
    Normal,
    /// Claims stopped at this time, until nothing is in flight.
    Draining(Duration),
    /// Claims stopped at this time, and the suspect is in flight.
    Alone(Duration),
}

impl Suspects {
    /// There is a suspect to be tried alone.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// What to do now, with so many rows in flight.
    pub(crate) fn step(&mut self, in_flight: usize, now: Duration) -> Step {
        if let (Phase::Alone(since), 0) = (self.phase, in_flight) {
            self.phase = Phase::Normal;
            self.not_before = now + now.saturating_sub(since);
        }
        if matches!(self.phase, Phase::Normal) && self.wanted && now >= self.not_before {
            self.phase = Phase::Draining(now);
        }
        match (self.phase, in_flight) {
            (Phase::Normal, _) => Step::Claim,
            (Phase::Draining(_), 0) => Step::ClaimAlone,
            (Phase::Draining(_) | Phase::Alone(_), _) => Step::Wait,
        }
    }

    /// The claim of one suspect found one, or there is none left.
    pub(crate) fn claimed(&mut self, found: bool) {
        self.phase = match self.phase {
            Phase::Draining(since) if found => Phase::Alone(since),
            Phase::Draining(_) | Phase::Normal => Phase::Normal,
            Phase::Alone(since) => Phase::Alone(since),
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
    fn a_suspect_is_claimed_only_with_nothing_in_flight() {
        let mut suspects = Suspects::default();
        assert_eq!(suspects.step(5, s(0)), Step::Claim);
        suspects.want();
        assert_eq!(suspects.step(5, s(1)), Step::Wait);
        assert_eq!(suspects.step(0, s(2)), Step::ClaimAlone);
        suspects.claimed(true);
        assert_eq!(suspects.step(1, s(3)), Step::Wait);
    }

    #[test]
    fn other_rows_get_as_much_time_as_the_suspect_took() {
        let mut suspects = Suspects::default();
        suspects.want();
        assert_eq!(suspects.step(0, s(10)), Step::ClaimAlone);
        suspects.claimed(true);
        assert_eq!(suspects.step(0, s(14)), Step::Claim);
        assert_eq!(suspects.step(9, s(17)), Step::Claim);
        assert_eq!(suspects.step(9, s(18)), Step::Wait);
    }

    #[test]
    fn without_a_suspect_all_rows_are_claimed() {
        let mut suspects = Suspects::default();
        suspects.want();
        assert_eq!(suspects.step(0, s(10)), Step::ClaimAlone);
        suspects.claimed(false);
        assert_eq!(suspects.step(0, s(10)), Step::Claim);
    }
}
