//! Decides which lane ranges a worker leases, renews and releases. Pure.
//!
//! Every worker decides alone, and its change is written only if the ranges have not changed since it read them. If two
//! want the same range, one of them loses and reads again.

use uuid::Uuid;

use crate::store::{LANES, LaneRequest, Range};

/// The default number of lane ranges.
const RANGES: u16 = 32;

/// A range as it was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    pub(super) number: u16,
    pub(super) ranges: u16,
    pub(super) wanted: u16,
    pub(super) owner: Option<Uuid>,
    /// Is the owner's lease valid?
    pub(super) held: bool,
    pub(super) leaving: bool,
    /// How many seconds of the lease are left.
    pub(super) remaining: f64,
}

/// The ranges of one namespace, in order, and the live workers that have it in their scope.
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
    /// Does the lease begin now?
    pub(super) is_new: bool,
    pub(super) leaving: bool,
}

/// What is to be done next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// There are no ranges yet: create this many.
    Create(u16),
    /// All ranges are free, and another number of them is wanted.
    Divide(u16),
    /// Release these, so that all are free to be divided.
    Release(Vec<Change>),
    /// Write these changes; none if nothing changes.
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
            .map(|seen| seen.after_release(name, request).unchanged(wanted))
            .collect();
        let even = wanted == first.ranges;
        if !even && !ranges.iter().any(|range| range.owner.is_some()) {
            if self.seen.iter().any(|seen| seen.held) {
                return Step::Release(changed(ranges));
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

    /// This worker's ranges, as they were read.
    pub(super) fn ours(&self, name: &str, worker: Uuid) -> Vec<Range> {
        let mine = |seen: &&Seen| seen.held && seen.owner == Some(worker);
        self.seen
            .iter()
            .filter(mine)
            .map(|seen| seen.range(name))
            .collect()
    }

    /// This worker's part of the ranges: an equal share, and one more for the first few workers.
    fn part(&self, worker: Uuid, ranges: u16) -> usize {
        let others: Vec<&Uuid> = self.workers.iter().filter(|other| **other != worker).collect();
        let rank = others.iter().filter(|other| ***other < worker).count();
        let (ranges, count) = (usize::from(ranges), others.len() + 1);
        ranges / count + usize::from(rank < ranges % count)
    }
}

/// Renews this worker's ranges, and leases or leaves some until it has `part` of them.
fn share(ranges: &mut [Change], request: &LaneRequest, part: usize) {
    // Renewed when a third of the lease is over, so that an idle worker writes rarely.
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
        // An expired lease need not be written.
        let freed = self.owner.is_none() && self.was.held;
        let taken = self.owner.is_some() && (self.owner != self.was.owner || !self.was.held);
        let other = self.owner.is_some() && (self.leaving != self.was.leaving || self.is_new);
        freed || taken || other || self.wanted != self.was.wanted
    }

    /// The range after the change.
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

    /// The range without an owner, if this worker releases it.
    fn after_release<'a>(&'a self, name: &str, request: &LaneRequest) -> Owned<'a> {
        let range = self.range(name);
        let same =
            |other: &Range| other.namespace == name && other.first == range.first && other.last == range.last;
        let released = self.owner == Some(request.worker) && request.release.iter().any(same);
        Owned(self, self.owner.filter(|_| self.held && !released))
    }
}

/// A range and its owner.
struct Owned<'a>(&'a Seen, Option<Uuid>);

impl Owned<'_> {
    fn unchanged(&self, wanted: u16) -> Change {
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
            release: Vec::new(),
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
    fn no_lease_is_renewed_in_its_first_third() {
        assert_eq!(written(&lanes(&[Some(ME); 2], 45.0)), []);
        let renewed = [(0, Some(ME), true, false), (1, Some(ME), true, false)];
        assert_eq!(written(&lanes(&[Some(ME); 2], 35.0)), renewed);
    }

    #[test]
    fn free_and_expired_ranges_are_leased_and_others_are_not() {
        let free = lanes(&[None, Some(OTHER)], 50.0);
        assert_eq!(written(&free), [(0, Some(ME), true, false)]);
        let over = lanes(&[None, Some(OTHER)], -1.0);
        assert_eq!(written(&over).len(), 2);
    }

    #[test]
    fn ranges_beyond_the_share_are_left() {
        let mut all = lanes(&[Some(ME); 4], 50.0);
        all.workers = vec![OTHER, ME];
        let left = [(2, Some(ME), false, true), (3, Some(ME), false, true)];
        assert_eq!(written(&all), left);
    }

    #[test]
    fn another_number_of_ranges_waits_for_the_last_lease() {
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
