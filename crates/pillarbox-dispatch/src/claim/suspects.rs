//! When suspects are tried alone. Pure.
//!
//! A row whose lease expired after two attempts may be what killed its workers. Its attempt begins in a quiet time: no new
//! attempt begins beside it, and waiting rows are released, so that the next crash is its own. Attempts that were running
//! before are awaited for a moment. Those of a slow destination go on: a crash costs them one attempt, once.
//!
//! A quiet time serves many suspects, one after another, and is short. Afterwards the other rows get at least as much time.
//! On its third attempt a suspect that takes longer than a window no longer delays the next one. After that, or on its last
//! attempt, it is the only suspect from the beginning to the end: what crashes late is found too, and no row can be the
//! victim of another suspect more than once.

use std::time::Duration;

use uuid::Uuid;

/// How long attempts are awaited that were running before.
pub(crate) const MOMENT: Duration = Duration::from_millis(500);
/// How long a suspect on its third attempt is alone, if it takes so long.
const WINDOW: Duration = Duration::from_millis(50);
/// The longest quiet time. A fresh event of another destination waits little longer.
const QUIET: Duration = Duration::from_secs(2);
/// The shortest time between two quiet times.
const REST: Duration = Duration::from_secs(1);

/// What the claimer should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Claim as usual.
    Claim,
    /// Claim nothing until something ends, or until this time.
    Wait(Duration),
    /// Claim one row alone.
    ClaimAlone,
}

/// A suspect that was claimed alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tried {
    pub(crate) claim: Uuid,
    /// Must it be the only suspect to its end?
    pub(crate) strict: bool,
}

impl Tried {
    /// A suspect on this attempt, of so many.
    pub(crate) fn new(claim: Uuid, attempts: u32, max_attempts: u32) -> Self {
        Self {
            claim,
            strict: attempts > 3 || attempts >= max_attempts,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    wanted: bool,
    phase: Phase,
    not_before: Duration,
    /// Suspects that are not settled, and when each was claimed.
    tried: Vec<(Tried, Duration)>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Phase {
    /// All rows are claimed.
    #[default]
    Normal,
    /// Claims stopped at this time. Running attempts are awaited.
    Draining(Duration),
    /// Claims stopped at this time, and suspects are tried.
    Quiet(Duration),
}

impl Suspects {
    /// There is a suspect to be tried alone.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// What to do now. `is_still`: no attempt is worth being awaited. `is_unsettled` tells of a claim.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        is_still: impl Fn() -> bool,
        is_unsettled: impl Fn(Uuid) -> bool,
    ) -> Step {
        self.tried.retain(|(tried, _)| is_unsettled(tried.claim));
        let is_strict = self.tried.iter().any(|(tried, _)| tried.strict);
        if let Phase::Normal = self.phase {
            if !self.wanted || is_strict || now < self.not_before {
                return Step::Claim;
            }
            self.phase = Phase::Draining(now);
        }
        if let Phase::Draining(since) = self.phase {
            if now < since + MOMENT && !is_still() {
                return Step::Wait(since + MOMENT);
            }
            self.phase = Phase::Quiet(since);
        }
        let Phase::Quiet(since) = self.phase else {
            return Step::Claim;
        };
        let ends = since + QUIET;
        let alone_until = self.tried.iter().map(|(tried, claimed)| match tried.strict {
            true => ends,
            false => *claimed + WINDOW,
        });
        let alone_until = alone_until.max().unwrap_or(now).min(ends);
        if now >= ends || (!self.wanted && now >= alone_until) {
            self.end(since, now);
            return Step::Claim;
        }
        if now < alone_until {
            return Step::Wait(alone_until);
        }
        Step::ClaimAlone
    }

    /// When a quiet time may begin without a further signal.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.wanted.then_some(self.not_before)
    }

    /// One suspect was claimed.
    pub(crate) fn claimed(&mut self, tried: Tried, now: Duration) {
        self.tried.push((tried, now));
    }

    /// No suspect was found. Others may wait until those that are being tried have ended. Whatever else keeps a
    /// destination from taking suspects may last for ever, and the sweeper tells of its suspects again.
    pub(crate) fn found_none(&mut self, now: Duration) {
        self.wanted = !self.tried.is_empty();
        if let Phase::Quiet(since) = self.phase {
            self.end(since, now);
        }
    }

    fn end(&mut self, since: Duration, now: Duration) {
        self.phase = Phase::Normal;
        self.not_before = now + now.saturating_sub(since).max(REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn suspects() -> Suspects {
        let mut suspects = Suspects::default();
        suspects.want();
        suspects
    }

    fn tried(n: u128, strict: bool) -> Tried {
        let claim = Uuid::from_u128(n);
        Tried { claim, strict }
    }

    /// The step at this time: nothing runs, and the claims that are given are not settled.
    fn step(suspects: &mut Suspects, now: u64, unsettled: &[u128]) -> Step {
        suspects.step(ms(now), || true, |claim| unsettled.contains(&claim.as_u128()))
    }

    #[test]
    fn without_a_suspect_all_rows_are_claimed() {
        assert_eq!(step(&mut Suspects::default(), 0, &[]), Step::Claim);
        let mut suspects = suspects();
        assert_eq!(step(&mut suspects, 0, &[]), Step::ClaimAlone);
        suspects.found_none(ms(0));
        assert_eq!((step(&mut suspects, 0, &[]), suspects.due()), (Step::Claim, None));
    }

    #[test]
    fn running_attempts_are_awaited_for_a_moment() {
        let mut suspects = suspects();
        let mut step = |now, is_still| suspects.step(ms(now), || is_still, |_| true);
        assert_eq!(step(0, false), Step::Wait(MOMENT));
        assert_eq!(step(499, false), Step::Wait(MOMENT));
        assert_eq!(step(500, false), Step::ClaimAlone);
    }

    #[test]
    fn suspects_are_tried_one_after_another() {
        let mut suspects = suspects();
        for now in [0, 10, 20] {
            assert_eq!(step(&mut suspects, now, &[]), Step::ClaimAlone);
            suspects.claimed(tried(1, false), ms(now));
            assert_eq!(step(&mut suspects, now, &[1]), Step::Wait(ms(now + 50)));
        }
        assert_eq!(step(&mut suspects, 30, &[]), Step::ClaimAlone);
    }

    #[test]
    fn a_slow_suspect_on_its_third_attempt_delays_others_for_a_window() {
        let mut suspects = suspects();
        assert_eq!(step(&mut suspects, 0, &[]), Step::ClaimAlone);
        suspects.claimed(tried(1, false), ms(0));
        assert_eq!(step(&mut suspects, 49, &[1]), Step::Wait(ms(50)));
        assert_eq!(step(&mut suspects, 50, &[1]), Step::ClaimAlone);
    }

    #[test]
    fn a_later_or_last_attempt_is_the_only_suspect_to_its_end() {
        let strict = |attempts, max| Tried::new(Uuid::nil(), attempts, max).strict;
        assert!(!strict(3, 25) && strict(4, 25) && strict(3, 3));
        let mut suspects = suspects();
        assert_eq!(step(&mut suspects, 0, &[]), Step::ClaimAlone);
        suspects.claimed(tried(1, true), ms(0));
        assert_eq!(step(&mut suspects, 100, &[1]), Step::Wait(QUIET));
        // The others go on beside it, the other suspects do not.
        assert_eq!(step(&mut suspects, 2_000, &[1]), Step::Claim);
        assert_eq!(step(&mut suspects, 9_000, &[1]), Step::Claim);
        assert_eq!(step(&mut suspects, 9_001, &[]), Step::ClaimAlone);
    }

    #[test]
    fn other_rows_get_as_much_time_as_a_quiet_time_took() {
        let mut suspects = suspects();
        assert_eq!(step(&mut suspects, 0, &[]), Step::ClaimAlone);
        suspects.claimed(tried(1, false), ms(1_990));
        assert_eq!(step(&mut suspects, 2_000, &[1]), Step::Claim);
        assert_eq!(suspects.due(), Some(ms(4_000)));
        assert_eq!(step(&mut suspects, 3_999, &[1]), Step::Claim);
        assert_eq!(step(&mut suspects, 4_000, &[1]), Step::ClaimAlone);
        suspects.found_none(ms(4_001));
        assert_eq!(
            suspects.due(),
            Some(ms(5_001)),
            "a short one too is followed by a rest"
        );
        assert_eq!(step(&mut suspects, 5_001, &[]), Step::ClaimAlone);
        suspects.found_none(ms(5_002));
        assert_eq!(suspects.due(), None, "none is left that others wait for");
    }
}
