//! Failures in a row: when they say that the destination fails, and not its events. Pure.
//!
//! Five different events in a row have to fail. An event that fails again counts once. So one poison event is never enough,
//! nor is one poison key: where events have a key, it is the key that counts, unless only first attempts are ordered. Where
//! an event chooses its part of the destination, such as a path of a URL, it is the part.
//!
//! Events that failed while others were delivered are remembered, and count no more until they are delivered. Otherwise the
//! retries of a few poison events would look like an outage as soon as no other event is due.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::send::key_queues::Ticket;

/// How many different events have to fail in a row.
pub(crate) const MANY: usize = 5;
/// How many events that fail by themselves are remembered, the latest ones.
const MOST_POISON: usize = 1024;

/// What a failure concerns: a part of the destination, a key or a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Subject(pub(super) u64);

impl Subject {
    /// The subject of a row, sent to this part of the destination.
    pub(crate) fn of(ticket: &Ticket, part: Option<Part>) -> Self {
        match (part, &ticket.key) {
            (Some(part), _) => Self(part.0),
            // Otherwise a row would count twice: it has its key at the first attempt only.
            (None, Some(key)) if !ticket.policy.first_attempts_only => Self(hash(key)),
            (None, _) => Self(hash(&ticket.id)),
        }
    }
}

/// A part of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Part(u64);

impl Part {
    pub(crate) fn named(name: &str) -> Self {
        Self(hash(name))
    }
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Streak {
    /// Different subjects that failed since the last delivery.
    failed: Vec<Subject>,
    /// Subjects that failed while others were delivered, the oldest first.
    poison: VecDeque<Subject>,
    is_poison: HashSet<Subject>,
}

impl Streak {
    /// Is there nothing to remember? Then a delivery changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.is_poison.is_empty()
    }

    /// One more failure. Returns whether so many different subjects have failed in a row that the destination fails.
    pub(crate) fn failed(&mut self, subject: Subject) -> bool {
        let counts = !self.is_poison.contains(&subject) && !self.failed.contains(&subject);
        if counts && self.failed.len() < MANY {
            self.failed.push(subject);
        }
        counts && self.failed.len() >= MANY
    }

    /// An event arrived while the breaker was closed: what failed before it failed by itself.
    pub(crate) fn arrived(&mut self, subject: Subject) {
        if self.is_empty() {
            return;
        }
        for failed in std::mem::take(&mut self.failed) {
            if self.is_poison.insert(failed) {
                self.poison.push_back(failed);
            }
        }
        if self.is_poison.remove(&subject) {
            self.poison.retain(|poison| *poison != subject);
        }
        while self.poison.len() > MOST_POISON {
            if let Some(oldest) = self.poison.pop_front() {
                self.is_poison.remove(&oldest);
            }
        }
    }

    /// The destination has recovered: what failed before failed with it.
    pub(crate) fn recovered(&mut self) {
        self.failed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(number: u64) -> Subject {
        Subject(number)
    }

    /// Feeds a script: `+n` arrived, `-n` failed. Returns after which step the streak was long enough.
    fn run(script: impl IntoIterator<Item = i64>) -> Option<usize> {
        let mut streak = Streak::default();
        script.into_iter().position(|step| {
            let subject = subject(step.unsigned_abs());
            if step < 0 {
                streak.failed(subject)
            } else {
                streak.arrived(subject);
                false
            }
        })
    }

    #[test]
    fn the_table() {
        for (script, opens) in [
            (&[-1, -2, -3, -4, -5][..], Some(4)),
            (&[-1, -2, -3, -4], None),
            (&[-1, -1, -1, -1, -1, -1, -1], None),
            (&[-1, -2, -1, -3, -2, -4, -1, -5], Some(7)),
            (&[-1, -2, -3, -4, 9, -5, -6, -7, -8], None),
            (&[-1, -2, -3, -4, 9, -5, -6, -7, -8, -10], Some(9)),
            // Retries of what failed beside a delivery.
            (&[-1, -2, -3, -4, 9, -1, -2, -3, -4, -5], None),
            // They were delivered, and fail later.
            (&[-1, 9, 1, -1, -2, -3, -4, -5], Some(7)),
        ] {
            assert_eq!(run(script.iter().copied()), opens, "{script:?}");
        }
    }

    #[test]
    fn one_in_a_hundred_never_looks_like_an_outage_even_when_only_they_are_left() {
        let poison: Vec<i64> = (0..100).map(|n| n * 100 + 1).collect();
        let first = (1..=10_000).map(|n| if n % 100 == 1 { -n } else { n });
        let retries = std::iter::repeat_n(poison, 25).flatten().map(|n| -n);
        assert_eq!(run(first.chain(retries)), None);
    }

    #[test]
    fn what_failed_in_an_outage_counts_in_the_next_one() {
        let mut streak = Streak::default();
        for _ in 0..2 {
            let opened: Vec<bool> = (1..=5).map(|n| streak.failed(subject(n))).collect();
            assert_eq!(opened, [false, false, false, false, true]);
            streak.recovered();
        }
        assert!(streak.is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut streak = Streak::default();
        for n in 0..10_000 {
            streak.failed(subject(n));
            streak.arrived(subject(1_000_000));
        }
        assert_eq!(
            (streak.poison.len(), streak.is_poison.len()),
            (MOST_POISON, MOST_POISON)
        );
    }
}
