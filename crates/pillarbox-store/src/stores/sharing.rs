//! Which workers share the lanes of a backlog, and how many ranges each of them has. Pure.
//!
//! Every worker decides alone. All of them read the same heartbeats, so they come to the same result within seconds. Until
//! then a range may have no owner. It never has two, because each is leased on its own.

use uuid::Uuid;

use crate::store::{Backlog, LANES, LaneRequest, Scope, Serves, UNROUTED};

/// A live worker, as its last heartbeat describes it.
#[derive(Debug, Clone)]
pub(super) struct LiveWorker {
    pub(super) id: Uuid,
    pub(super) scope: Scope,
    pub(super) serves: Serves,
}

impl LiveWorker {
    /// Can it serve this backlog, now or later?
    pub(super) fn serves(&self, backlog: &Backlog) -> bool {
        let knows = |name: &String| {
            let destinations = self.serves.destinations.as_ref();
            destinations.is_none_or(|destinations| destinations.contains(name))
        };
        self.scope.contains(&backlog.namespace) && backlog.destination.as_ref().is_none_or(knows)
    }

    /// How well it can serve this backlog now: only the best have a share. For rows without a destination it needs routes,
    /// and should reach one of its destinations. Otherwise it must reach the destination.
    fn fitness(&self, backlog: &Backlog) -> u8 {
        let reaches = |name: &String| !self.serves.unreachable.contains(name);
        let reaches_any = || {
            let destinations = self.serves.destinations.as_ref();
            destinations.is_none_or(|destinations| destinations.iter().any(reaches))
        };
        match &backlog.destination {
            Some(name) => u8::from(reaches(name)),
            None if !self.serves.routes => 0,
            None => 1 + u8::from(reaches_any()),
        }
    }
}

/// The backlogs that none of these workers serves. Without a live worker there is none: nothing at all is served then.
pub(super) fn unserved(backlogs: Vec<Backlog>, live: &[LiveWorker]) -> Vec<Backlog> {
    let is_served = |backlog: &Backlog| live.iter().any(|worker| worker.serves(backlog));
    let held = |backlog: &Backlog| backlog.destination.as_deref() == Some(UNROUTED);
    let unserved = |backlog: &Backlog| !live.is_empty() && !held(backlog) && !is_served(backlog);
    backlogs.into_iter().filter(unserved).collect()
}

/// The workers that share the lanes of a backlog.
#[derive(Debug, PartialEq)]
pub(super) struct Sharers {
    /// In the same order for all workers, and in another for each backlog.
    workers: Vec<Uuid>,
    /// Into how many ranges the lanes should be divided.
    pub(super) ranges: u16,
}

impl Sharers {
    /// The sharers among these workers, which are in the order of their start. The worker that asks is one of them even if
    /// its heartbeat was not written yet.
    pub(super) fn of(backlog: &Backlog, live: &[LiveWorker], request: &LaneRequest) -> Self {
        let mut able: Vec<&LiveWorker> = live.iter().filter(|worker| worker.serves(backlog)).collect();
        let newcomer = LiveWorker {
            id: request.worker,
            scope: Scope::All,
            serves: Serves {
                lane_ranges: request.ranges,
                ..Serves::default()
            },
        };
        if !live.iter().any(|worker| worker.id == request.worker) {
            able.push(&newcomer);
        }
        let ranges = able.last().map_or(request.ranges, |last| last.serves.lane_ranges);
        // If none is better than the others, the lanes stay where they are.
        let best = able.iter().map(|worker| worker.fitness(backlog)).max();
        able.retain(|worker| Some(worker.fitness(backlog)) == best);
        let mut workers: Vec<Uuid> = able.iter().map(|worker| worker.id).collect();
        workers.sort_unstable_by_key(|worker| (weight(*worker, backlog), *worker));
        Self {
            workers,
            ranges: ranges.clamp(1, LANES),
        }
    }

    /// A worker's part of so many ranges: an equal share, and one more for the first few.
    pub(super) fn part(&self, worker: Uuid, ranges: u16) -> usize {
        let (ranges, count) = (usize::from(ranges), self.workers.len());
        let rank = self.workers.iter().position(|other| *other == worker);
        rank.map_or(0, |rank| ranges / count + usize::from(rank < ranges % count))
    }

    /// The worker that has the lanes, where they cannot be divided.
    #[cfg(feature = "sqlite")]
    pub(super) fn only(&self) -> Option<Uuid> {
        self.workers.first().copied()
    }
}

/// Spreads backlogs with few ranges over the workers: each backlog has another order of them. FNV-1a, 64 bits, mixed.
///
/// It must not change. Workers that disagree on the order may leave a range without an owner.
fn weight(worker: Uuid, backlog: &Backlog) -> u64 {
    let destination = backlog.destination.as_deref().unwrap_or_default();
    let bytes = worker
        .into_bytes()
        .into_iter()
        .chain(destination.bytes())
        .chain([0])
        .chain(backlog.namespace.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // The last bytes hardly reach the high bits, by which the order is decided.
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

/// The first and the last lane of a range.
pub(super) fn lanes(number: u16, ranges: u16) -> (u16, u16) {
    let start = |number: u16| {
        let start = u32::from(number) * u32::from(LANES) / u32::from(ranges.max(1));
        u16::try_from(start).unwrap_or(LANES)
    };
    (start(number), start(number + 1).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    const ME: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn worker(id: Uuid, destinations: &[&str], unreachable: &[&str]) -> LiveWorker {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        LiveWorker {
            id,
            scope: Scope::All,
            serves: Serves {
                destinations: Some(names(destinations)),
                unreachable: names(unreachable),
                ..Serves::default()
            },
        }
    }

    fn backlog(destination: Option<&str>, namespace: &str) -> Backlog {
        Backlog {
            destination: destination.map(str::to_owned),
            namespace: namespace.to_owned(),
        }
    }

    fn sharers(live: &[LiveWorker], backlog: &Backlog) -> Vec<Uuid> {
        let request = LaneRequest {
            worker: ME,
            backlogs: Vec::new(),
            ranges: 32,
            new_ranges: 32,
            lease: Duration::from_secs(60),
            release: Vec::new(),
        };
        let mut workers = Sharers::of(backlog, live, &request).workers;
        workers.sort_unstable();
        workers
    }

    #[test]
    fn only_workers_that_serve_the_destination_share_its_lanes() {
        let live = [worker(ME, &["mail"], &[]), worker(OTHER, &["mail", "chat"], &[])];
        assert_eq!(sharers(&live, &backlog(Some("mail"), "shop")), [ME, OTHER]);
        assert_eq!(sharers(&live, &backlog(Some("chat"), "shop")), [OTHER]);
        assert_eq!(sharers(&live, &backlog(None, "shop")), [ME, OTHER]);
        assert_eq!(sharers(&[], &backlog(Some("mail"), "shop")), [ME]);
    }

    #[test]
    fn a_worker_that_cannot_reach_the_destination_has_no_share_while_another_can() {
        let mail = backlog(Some("mail"), "shop");
        let cut_off = worker(ME, &["mail"], &["mail"]);
        let fit = worker(OTHER, &["mail"], &[]);
        assert_eq!(sharers(&[cut_off.clone(), fit], &mail), [OTHER]);
        let also_cut_off = worker(OTHER, &["mail"], &["mail"]);
        assert_eq!(sharers(&[cut_off, also_cut_off], &mail), [ME, OTHER]);
    }

    #[test]
    fn rows_without_a_destination_need_a_worker_with_routes_if_there_is_one() {
        let new = backlog(None, "shop");
        let mut without = worker(ME, &["mail"], &[]);
        without.serves.routes = false;
        let with = worker(OTHER, &["chat"], &["chat"]);
        assert_eq!(sharers(&[without.clone(), with], &new), [OTHER]);
        assert_eq!(sharers(&[without], &new), [ME]);
    }

    /// It would not try rows again that were in flight when another worker died.
    #[test]
    fn a_worker_that_reaches_nothing_has_no_share_of_rows_without_a_destination() {
        let new = backlog(None, "shop");
        let cut_off = worker(ME, &["mail", "chat"], &["mail", "chat"]);
        let half = worker(OTHER, &["mail", "chat"], &["mail"]);
        assert_eq!(sharers(&[cut_off.clone(), half], &new), [OTHER]);
        assert_eq!(sharers(&[cut_off], &new), [ME]);
    }

    #[test]
    fn the_worker_that_started_last_decides_the_number_of_ranges() {
        let mut live = [worker(OTHER, &["mail"], &[]), worker(ME, &["mail"], &["mail"])];
        live[1].serves.lane_ranges = 8;
        let request = LaneRequest {
            worker: OTHER,
            backlogs: Vec::new(),
            ranges: 32,
            new_ranges: 32,
            lease: Duration::from_secs(60),
            release: Vec::new(),
        };
        let sharers = Sharers::of(&backlog(Some("mail"), "shop"), &live, &request);
        assert_eq!(
            (sharers.ranges, sharers.part(ME, 8), sharers.part(OTHER, 8)),
            (8, 0, 8)
        );
    }

    #[test]
    fn backlogs_with_one_range_are_spread_over_the_workers() {
        let live: Vec<LiveWorker> = (1..=4)
            .map(|id| worker(Uuid::from_u128(id), &["mail"], &[]))
            .collect();
        let request = LaneRequest {
            worker: ME,
            backlogs: Vec::new(),
            ranges: 1,
            new_ranges: 1,
            lease: Duration::from_secs(60),
            release: Vec::new(),
        };
        let mut parts: BTreeMap<Uuid, usize> = BTreeMap::new();
        for number in 0..1_000 {
            let sharers = Sharers::of(
                &backlog(Some("mail"), &format!("tenant-{number}")),
                &live,
                &request,
            );
            let sum: usize = live.iter().map(|worker| sharers.part(worker.id, 1)).sum();
            assert_eq!(sum, 1);
            for worker in &live {
                *parts.entry(worker.id).or_default() += sharers.part(worker.id, 1);
            }
        }
        assert!(parts.values().all(|part| (150..350).contains(part)), "{parts:?}");
    }
}
