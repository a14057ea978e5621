//! Decides which lane ranges a worker leases, renews and releases. Pure.
//!
//! Every worker decides alone, and its change is written only if the ranges have not changed since it read them. If two
//! want the same range, one of them loses and reads again.

use uuid::Uuid;

use crate::store::{Backlog, LaneRequest, Range};
use crate::stores::sharing::{Sharers, lanes};

/// A range as it was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    pub(super) number: u16,
    pub(super) ranges: u16,
    /// The setting that the division follows.
    pub(super) wanted: u16,
    pub(super) owner: Option<Uuid>,
    /// Is the owner's lease valid?
    pub(super) held: bool,
    pub(super) leaving: bool,
    /// How many seconds of the lease are left.
    pub(super) remaining: f64,
}

/// The ranges of one backlog, in order.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    pub(super) seen: Vec<Seen>,
}

/// A range as it should be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub(super) was: Seen,
    pub(super) owner: Option<Uuid>,
    /// Does the lease begin now?
    pub(super) is_new: bool,
    pub(super) leaving: bool,
}

/// What is to be done next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// There are no ranges yet: create this many, for this setting.
    Create(u16, u16),
    /// All ranges are free, and another number of them is wanted: delete them, to create the new ones.
    Delete,
    /// Release these, so that all are free to be divided.
    Release(Vec<Change>),
    /// Write these changes; none if nothing changes.
    Write(Vec<Change>),
}

impl Ranges {
    pub(super) fn step(&self, backlog: &Backlog, sharers: &Sharers, request: &LaneRequest) -> Step {
        let Some(first) = self.seen.first() else {
            return Step::Create(sharers.ranges.min(request.new_ranges.max(1)), sharers.ranges);
        };
        let mut ranges: Vec<Change> = self
            .seen
            .iter()
            .map(|seen| seen.after_release(backlog, request))
            .collect();
        let even = sharers.ranges == first.wanted;
        if !even && !ranges.iter().any(|range| range.owner.is_some()) {
            if self.seen.iter().any(|seen| seen.held) {
                return Step::Release(changed(ranges));
            }
            return Step::Delete;
        }
        let part = if even {
            sharers.part(request.worker, first.ranges)
        } else {
            0
        };
        share(&mut ranges, request, part);
        Step::Write(changed(ranges))
    }

    /// This worker's ranges, as they were read.
    pub(super) fn ours(&self, backlog: &Backlog, worker: Uuid) -> Vec<Range> {
        let mine = |seen: &&Seen| seen.held && seen.owner == Some(worker);
        self.seen
            .iter()
            .filter(mine)
            .map(|seen| seen.range(backlog))
            .collect()
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
        freed || taken || other
    }

    /// The range after the change.
    pub(super) fn range(&self, backlog: &Backlog) -> Range {
        Range {
            leaving: self.leaving,
            ..self.was.range(backlog)
        }
    }
}

impl Seen {
    pub(super) fn range(&self, backlog: &Backlog) -> Range {
        let (first, last) = lanes(self.number, self.ranges);
        Range {
            backlog: backlog.clone(),
            first,
            last,
            leaving: self.leaving,
        }
    }

    /// The range as it is, without an owner if this worker releases it.
    fn after_release(&self, backlog: &Backlog, request: &LaneRequest) -> Change {
        let (first, last) = lanes(self.number, self.ranges);
        let same = |other: &Range| other.backlog == *backlog && other.first == first && other.last == last;
        let released = self.owner == Some(request.worker) && request.release.iter().any(same);
        let owner = self.owner.filter(|_| self.held && !released);
        Change {
            was: self.clone(),
            owner,
            is_new: false,
            leaving: self.leaving && owner.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::store::{Scope, Serves};
    use crate::stores::sharing::LiveWorker;

    const ME: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn request() -> LaneRequest {
        LaneRequest {
            worker: ME,
            backlogs: vec![backlog()],
            ranges: 4,
            new_ranges: 4,
            lease: Duration::from_secs(60),
            release: Vec::new(),
        }
    }

    fn backlog() -> Backlog {
        Backlog {
            destination: None,
            namespace: "shop".into(),
        }
    }

    fn lanes(owners: &[Option<Uuid>], remaining: f64) -> Ranges {
        let ranges = u16::try_from(owners.len()).expect("few");
        let seen = |(number, owner): (usize, &Option<Uuid>)| Seen {
            number: u16::try_from(number).expect("few"),
            ranges,
            wanted: 4,
            owner: *owner,
            held: owner.is_some() && remaining >= 0.0,
            leaving: false,
            remaining,
        };
        Ranges {
            seen: owners.iter().enumerate().map(seen).collect(),
        }
    }

    fn step(lanes: &Ranges, live: &[Uuid], request: &LaneRequest) -> Step {
        let live: Vec<LiveWorker> = live
            .iter()
            .map(|id| LiveWorker {
                id: *id,
                scope: Scope::All,
                serves: Serves {
                    lane_ranges: request.ranges,
                    ..Serves::default()
                },
            })
            .collect();
        lanes.step(&backlog(), &Sharers::of(&backlog(), &live, request), request)
    }

    fn written(lanes: &Ranges, live: &[Uuid]) -> Vec<(u16, Option<Uuid>, bool, bool)> {
        match step(lanes, live, &request()) {
            Step::Write(changes) => changes
                .iter()
                .map(|change| (change.was.number, change.owner, change.is_new, change.leaving))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_lease_is_renewed_in_its_first_third() {
        assert_eq!(written(&lanes(&[Some(ME); 2], 45.0), &[]), []);
        let renewed = [(0, Some(ME), true, false), (1, Some(ME), true, false)];
        assert_eq!(written(&lanes(&[Some(ME); 2], 35.0), &[]), renewed);
    }

    #[test]
    fn free_and_expired_ranges_are_leased_and_others_are_not() {
        let free = lanes(&[None, Some(OTHER)], 50.0);
        assert_eq!(written(&free, &[]), [(0, Some(ME), true, false)]);
        let over = lanes(&[None, Some(OTHER)], -1.0);
        assert_eq!(written(&over, &[]).len(), 2);
    }

    #[test]
    fn ranges_beyond_the_share_are_left() {
        let all = lanes(&[Some(ME); 4], 50.0);
        let left = [(2, Some(ME), false, true), (3, Some(ME), false, true)];
        assert_eq!(written(&all, &[OTHER, ME]), left);
    }

    #[test]
    fn another_number_of_ranges_waits_for_the_last_lease() {
        let ask = |lanes: &Ranges| {
            let request = LaneRequest {
                ranges: 8,
                ..request()
            };
            step(lanes, &[ME], &request)
        };
        assert_eq!(ask(&Ranges::default()), Step::Create(4, 8));
        assert_eq!(ask(&lanes(&[None, None], 0.0)), Step::Delete);
        assert!(matches!(ask(&lanes(&[None, Some(OTHER)], 5.0)), Step::Write(_)));
        assert_eq!(ask(&lanes(&[None, Some(OTHER)], -5.0)), Step::Delete);
    }

    #[test]
    fn few_ranges_of_a_new_backlog_are_not_divided_again() {
        let one = lanes(&[Some(ME)], 50.0);
        assert_eq!(written(&one, &[ME]), []);
    }
}
