//! Who takes care of which lanes: what is to be written, from what was seen. Pure.
//!
//! Every worker comes to its own conclusion and writes it only where the ranges are still as it saw them. Two that
//! want the same range cannot both get it; the loser looks again.

use uuid::Uuid;

use crate::store::{LANES, LaneRequest, Range};

/// Into how many ranges lanes are divided if nobody says otherwise.
const RANGES: u16 = 32;

/// A range as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    pub(super) number: u16,
    pub(super) ranges: u16,
    pub(super) wanted: u16,
    pub(super) owner: Option<Uuid>,
    /// Does the owner's lease hold?
    pub(super) held: bool,
    pub(super) leaving: bool,
    /// How many seconds of the lease are left.
    pub(super) remaining: f64,
}

/// The lanes of one namespace as they were seen, in their order, and the workers that are alive and take care of it.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    pub(super) seen: Vec<Seen>,
    pub(super) workers: Vec<Uuid>,
}

/// A range as it should be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub(super) was: Seen,
    pub(super) wanted: u16,
    pub(super) owner: Option<Uuid>,
    /// Does the lease begin anew?
    pub(super) is_new: bool,
    pub(super) leaving: bool,
}

/// What is to be done next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// There are no ranges yet: make so many.
    Create(u16),
    /// All are free and another number is wanted.
    Divide(u16),
    /// These are to be given up, so that all are free to be divided.
    GiveUp(Vec<Change>),
    /// These are to be written; none if all is well.
    Write(Vec<Change>),
}

impl Namespace {
    pub(super) fn step(&self, name: &str, request: &LaneRequest) -> Step {
        let asked = request.ranges.map(|ranges| ranges.clamp(1, LANES));
        let Some(first) = self.seen.first() else {
            return Step::Create(asked.unwrap_or(RANGES));
        };
        let wanted = asked.unwrap_or(first.wanted);
        let mut ranges: Vec<Change> = self
            .seen
            .iter()
            .map(|seen| seen.given_up(name, request).keep(wanted))
            .collect();
        let even = wanted == first.ranges;
        if !even && !ranges.iter().any(|range| range.owner.is_some()) {
            if self.seen.iter().any(|seen| seen.held) {
                return Step::GiveUp(changed(ranges));
            }
            return Step::Divide(wanted);
        }
        let part = if even {
            self.part(request.worker, wanted)
        } else {
            0
        };
        share(&mut ranges, request, part);
        Step::Write(changed(ranges))
    }

    /// What is ours, as it was seen.
    pub(super) fn ours(&self, name: &str, worker: Uuid) -> Vec<Range> {
        let mine = |seen: &&Seen| seen.held && seen.owner == Some(worker);
        self.seen
            .iter()
            .filter(mine)
            .map(|seen| seen.range(name))
            .collect()
    }

    /// How many of so many ranges are ours: as many as everybody's, and one more for the first few.
    fn part(&self, worker: Uuid, ranges: u16) -> usize {
        let others: Vec<&Uuid> = self.workers.iter().filter(|other| **other != worker).collect();
        let rank = others.iter().filter(|other| ***other < worker).count();
        let (ranges, count) = (usize::from(ranges), others.len() + 1);
        ranges / count + usize::from(rank < ranges % count)
    }
}

/// Keeps what is ours, and takes or leaves until we have `part` of them.
fn share(ranges: &mut [Change], request: &LaneRequest, part: usize) {
    // Written when a third of the lease is over: an idle system is not to write all the time.
    let lease = request.lease.as_secs_f64();
    let good = lease * 2.0 / 3.0..=lease;
    let mut mine = 0;
    for range in ranges
        .iter_mut()
        .filter(|range| range.owner == Some(request.worker))
    {
        mine += 1;
        range.leaving = mine > part;
        range.is_new = !good.contains(&range.was.remaining);
    }
    for range in ranges.iter_mut().filter(|range| range.owner.is_none()) {
        if mine < part {
            mine += 1;
            range.owner = Some(request.worker);
            range.is_new = true;
            range.leaving = false;
        }
    }
}

fn changed(ranges: Vec<Change>) -> Vec<Change> {
    ranges.into_iter().filter(Change::is_one).collect()
}

impl Change {
    fn is_one(&self) -> bool {
        // A lease that ran out needs no writing down.
        let freed = self.owner.is_none() && self.was.held;
        let taken = self.owner.is_some() && (self.owner != self.was.owner || !self.was.held);
        let other = self.owner.is_some() && (self.leaving != self.was.leaving || self.is_new);
        freed || taken || other || self.wanted != self.was.wanted
    }

    /// As it is after it was written.
    pub(super) fn range(&self, name: &str) -> Range {
        Range {
            leaving: self.leaving,
            ..self.was.range(name)
        }
    }
}

impl Seen {
    pub(super) fn range(&self, name: &str) -> Range {
        let start = |number: u16| {
            let start = u32::from(number) * u32::from(LANES) / u32::from(self.ranges.max(1));
            u16::try_from(start).unwrap_or(LANES)
        };
        Range {
            namespace: name.to_owned(),
            first: start(self.number),
            last: start(self.number + 1).saturating_sub(1),
            leaving: self.leaving,
        }
    }

    /// Is it ours and to be given up?
    fn given_up<'a>(&'a self, name: &str, request: &LaneRequest) -> Kept<'a> {
        let range = self.range(name);
        let same =
            |given: &Range| given.namespace == name && given.first == range.first && given.last == range.last;
        let given = self.owner == Some(request.worker) && request.give_up.iter().any(same);
        Kept(self, self.owner.filter(|_| self.held && !given))
    }
}

/// A range and who keeps it.
struct Kept<'a>(&'a Seen, Option<Uuid>);

impl Kept<'_> {
    fn keep(&self, wanted: u16) -> Change {
        Change {
            was: self.0.clone(),
            wanted,
            owner: self.1,
            is_new: false,
            leaving: self.0.leaving && self.1.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const ME: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn request() -> LaneRequest {
        LaneRequest {
            worker: ME,
            namespaces: vec!["shop".into()],
            ranges: None,
            lease: Duration::from_secs(60),
            give_up: Vec::new(),
        }
    }

    fn lanes(owners: &[Option<Uuid>], remaining: f64) -> Namespace {
        let ranges = u16::try_from(owners.len()).expect("few");
        let seen = |(number, owner): (usize, &Option<Uuid>)| Seen {
            number: u16::try_from(number).expect("few"),
            ranges,
            wanted: ranges,
            owner: *owner,
            held: owner.is_some() && remaining >= 0.0,
            leaving: false,
            remaining,
        };
        Namespace {
            seen: owners.iter().enumerate().map(seen).collect(),
            workers: Vec::new(),
        }
    }

    fn written(lanes: &Namespace) -> Vec<(u16, Option<Uuid>, bool, bool)> {
        match lanes.step("shop", &request()) {
            Step::Write(changes) => changes
                .iter()
                .map(|change| (change.was.number, change.owner, change.is_new, change.leaving))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_is_written_while_two_thirds_of_the_lease_are_left() {
        assert_eq!(written(&lanes(&[Some(ME); 2], 45.0)), []);
        let renewed = [(0, Some(ME), true, false), (1, Some(ME), true, false)];
        assert_eq!(written(&lanes(&[Some(ME); 2], 35.0)), renewed);
    }

    #[test]
    fn what_is_free_or_over_is_taken_and_what_is_held_is_not() {
        let free = lanes(&[None, Some(OTHER)], 50.0);
        assert_eq!(written(&free), [(0, Some(ME), true, false)]);
        let over = lanes(&[None, Some(OTHER)], -1.0);
        assert_eq!(written(&over).len(), 2);
    }

    #[test]
    fn what_is_too_much_is_to_be_left() {
        let mut all = lanes(&[Some(ME); 4], 50.0);
        all.workers = vec![OTHER, ME];
        let left = [(2, Some(ME), false, true), (3, Some(ME), false, true)];
        assert_eq!(written(&all), left);
    }

    #[test]
    fn a_new_number_waits_for_the_last_lease() {
        let ask = |lanes: &Namespace| {
            let request = LaneRequest {
                ranges: Some(8),
                ..request()
            };
            lanes.step("shop", &request)
        };
        assert_eq!(ask(&Namespace::default()), Step::Create(8));
        assert_eq!(ask(&lanes(&[None, None], 0.0)), Step::Divide(8));
        assert!(matches!(ask(&lanes(&[None, Some(OTHER)], 5.0)), Step::Write(_)));
        assert_eq!(ask(&lanes(&[None, Some(OTHER)], -5.0)), Step::Divide(8));
    }
}
