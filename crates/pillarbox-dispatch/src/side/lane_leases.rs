//! Leases this worker's part of the lanes of every backlog, so that every lane has one owner.
//!
//! A range that another worker should have is given up as soon as nothing of it is in flight here. A busy backlog is asked
//! for about once a second. One without due rows is only renewed. After a lease without any it is dropped: nothing renews
//! its lanes, and their rows are pruned when the leases have expired.
//!
//! **If we die here** the lanes are free when their lease has expired.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox_store::store::{Backlog, Due, LaneRequest, Range};
use tokio::sync::Notify;

use crate::worker::Worker;
use crate::worker::in_flight::LanesInUse;
use crate::worker::task::{LONG, Next, Task};

/// How often the lanes of a busy backlog are asked for.
const BUSY: Duration = Duration::from_secs(1);
/// How often to see whether a range can be given up.
const LEAVING: Duration = Duration::from_millis(50);
/// The shortest wait between two requests, unless there is a new backlog.
const SHORTEST: Duration = Duration::from_millis(10);
/// How long after rows with a key were last found in it a backlog is idle.
const IDLE_AFTER: Duration = Duration::from_secs(10);
/// How many backlogs one request has.
const PAGE: usize = 256;
/// About how many ranges the lanes of all known backlogs are divided into. With many backlogs each has few.
const MOST_RANGES: usize = 2048;

/// The backlogs of this worker that have rows with a key, and when the finder last found some.
#[derive(Debug, Default)]
pub(crate) struct KeyedBacklogs {
    known: Mutex<BTreeMap<Backlog, Duration>>,
    changed: Notify,
}

impl KeyedBacklogs {
    /// A search found these backlogs, after `after` and up to the end, or up to the last of them if there are `more`. Of
    /// the backlogs that it covered, it drops those without rows with a key since `quiet_before`.
    pub(crate) fn found(
        &self,
        after: Option<&Backlog>,
        (due, more): (&[Due], bool),
        serves: impl Fn(&Backlog) -> bool,
        (now, quiet_before): (Duration, Option<Duration>),
    ) {
        let mut known = self.known();
        let mut is_new = false;
        for due in due.iter().filter(|due| due.keyed && serves(&due.backlog)) {
            match known.get_mut(&due.backlog) {
                Some(found) => *found = now,
                None => {
                    known.insert(due.backlog.clone(), now);
                    is_new = true;
                }
            }
        }
        if let Some(before) = quiet_before {
            let begin = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
            let end = match (more, due.last()) {
                (true, Some(last)) => Bound::Included(last.backlog.clone()),
                (true, None) | (false, _) => Bound::Unbounded,
            };
            let quiet: Vec<Backlog> = known
                .range((begin, end))
                .filter(|(_, found)| **found < before)
                .map(|(backlog, _)| backlog.clone())
                .collect();
            for backlog in quiet {
                known.remove(&backlog);
            }
        }
        drop(known);
        if is_new {
            self.changed.notify_one();
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Backlog, Duration>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was last leased of a backlog.
#[derive(Debug)]
struct Leased {
    asked: Duration,
    ranges: Vec<Range>,
}

impl Leased {
    fn is_leaving(&self) -> bool {
        self.ranges.iter().any(|range| range.leaving)
    }

    /// Ranges to be given up of which nothing is in flight.
    fn unused<'a>(&'a self, in_use: &'a LanesInUse) -> impl Iterator<Item = &'a Range> {
        self.ranges
            .iter()
            .filter(|range| range.leaving && !in_use.has(range))
    }
}

/// See the module.
pub(crate) struct LaneLeases {
    worker: Arc<Worker>,
    backlogs: Arc<KeyedBacklogs>,
    leased: BTreeMap<Backlog, Leased>,
    /// How many ranges this worker had, without those that it is leaving.
    staying: usize,
    /// When to prune: a lease after the start, and after backlogs were dropped.
    prune_at: Option<Duration>,
}

impl LaneLeases {
    pub(crate) fn new(worker: Arc<Worker>, backlogs: Arc<KeyedBacklogs>) -> Self {
        let prune_at = Some(worker.now() + worker.settings.lease);
        Self {
            worker,
            backlogs,
            leased: BTreeMap::new(),
            staying: 0,
            prune_at,
        }
    }

    /// Asks for the lanes of these backlogs.
    async fn lease(&mut self, page: &[Backlog], known: usize, in_use: &LanesInUse) -> Result<(), StoreError> {
        let settings = &self.worker.settings;
        let few = u16::try_from(MOST_RANGES / known.max(1)).unwrap_or(u16::MAX);
        let leased = page.iter().filter_map(|backlog| self.leased.get(backlog));
        let request = LaneRequest {
            worker: self.worker.id,
            backlogs: page.to_vec(),
            ranges: settings.lane_ranges,
            new_ranges: settings.lane_ranges.min(few).max(1),
            lease: settings.lease,
            release: leased.flat_map(|leased| leased.unused(in_use)).cloned().collect(),
        };
        let asked = self.worker.now();
        let ranges = self.worker.store.lease_lanes(&request).await?;
        let mut by_backlog: HashMap<Backlog, Vec<Range>> = HashMap::new();
        for range in ranges {
            by_backlog.entry(range.backlog.clone()).or_default().push(range);
        }
        let mut changed = Vec::new();
        for backlog in page {
            let ranges = by_backlog.remove(backlog).unwrap_or_default();
            let before = self.leased.get(backlog).map(|leased| leased.ranges.as_slice());
            if before.unwrap_or_default() != ranges {
                changed.push((backlog.clone(), ranges.iter().any(|range| !range.leaving)));
            }
            self.leased.insert(backlog.clone(), Leased { asked, ranges });
        }
        self.worker.backlogs.leased(changed);
        Ok(())
    }

    fn log_change(&mut self) {
        let ranges = self.leased.values().flat_map(|leased| &leased.ranges);
        let now = ranges.filter(|range| !range.leaving).count();
        let before = std::mem::replace(&mut self.staying, now);
        if before != now {
            tracing::info!(ranges = now, before, "lane ranges changed");
        }
    }

    /// When the lanes of a backlog are to be asked for, if rows with a key were last found at `found`.
    fn due_at(&self, backlog: &Backlog, found: Duration, now: Duration, in_use: &LanesInUse) -> Duration {
        let lease = self.worker.settings.lease;
        let Some(leased) = self.leased.get(backlog) else {
            return Duration::ZERO;
        };
        if leased.unused(in_use).next().is_some() {
            return Duration::ZERO;
        }
        let is_idle = now.saturating_sub(found) >= IDLE_AFTER;
        leased.asked + if is_idle { lease / 3 } else { BUSY.min(lease / 4) }
    }

    /// Drops what the finder has dropped.
    fn drop_quiet(&mut self, known: &BTreeMap<Backlog, Duration>, now: Duration) {
        let dropped: Vec<Backlog> = self
            .leased
            .extract_if(.., |backlog, _| !known.contains_key(backlog))
            .map(|(backlog, _)| backlog)
            .collect();
        if !dropped.is_empty() {
            // Their leases have expired by then.
            let lease = self.worker.settings.lease;
            self.prune_at = Some(now + lease + lease / 10);
            let dropped = dropped.into_iter().map(|backlog| (backlog, false));
            self.worker.backlogs.leased(dropped);
        }
    }

    async fn prune(&mut self, now: Duration) -> Result<(), StoreError> {
        if self.prune_at.is_some_and(|at| at <= now) {
            let pruned = self.worker.store.prune_lanes().await?;
            // A bounded number at a time.
            self.prune_at = (pruned > 0).then_some(now + BUSY);
        }
        Ok(())
    }
}

impl Task for LaneLeases {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let now = self.worker.now();
        let known = self.backlogs.known().clone();
        self.drop_quiet(&known, now);
        let is_leaving = self.leased.values().any(Leased::is_leaving);
        let in_use = if is_leaving {
            self.worker.in_flight.lanes_in_use()
        } else {
            LanesInUse::default()
        };
        let due_at = |leases: &Self, backlog, found: &Duration| leases.due_at(backlog, *found, now, &in_use);
        let due: Vec<Backlog> = known
            .iter()
            .filter(|(backlog, found)| due_at(self, backlog, found) <= now)
            .map(|(backlog, _)| backlog.clone())
            .collect();
        for page in due.chunks(PAGE) {
            self.lease(page, known.len(), &in_use).await?;
        }
        self.log_change();
        self.prune(now).await?;
        let ended = self.worker.now();
        // Many backlogs must not keep the database busy: it rests four times as long as the requests took.
        let rest = (ended.saturating_sub(now) * 4).min(self.worker.settings.lease / 4);
        let next = known
            .iter()
            .map(|(backlog, found)| due_at(self, backlog, found).max(now + rest))
            .chain(self.prune_at)
            .min();
        let wait = next.map_or(LONG, |next| next.saturating_sub(ended));
        let is_leaving = self.leased.values().any(Leased::is_leaving);
        let wait = if is_leaving { wait.min(LEAVING) } else { wait };
        Ok(Next::Wait(wait.max(SHORTEST)))
    }

    async fn listen(&mut self) {
        self.backlogs.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(name: &str, keyed: bool) -> Due {
        Due {
            backlog: backlog(name),
            lowest: None,
            waited: false,
            keyed,
        }
    }

    fn backlog(name: &str) -> Backlog {
        Backlog {
            destination: Some("there".to_owned()),
            namespace: name.to_owned(),
        }
    }

    fn names(backlogs: &KeyedBacklogs) -> Vec<String> {
        let known = backlogs.known();
        known.keys().map(|backlog| backlog.namespace.clone()).collect()
    }

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_backlog_is_dropped_when_a_search_has_not_found_it_for_a_lease() {
        let backlogs = KeyedBacklogs::default();
        let all = |_: &Backlog| true;
        let found = [due("a", true), due("b", true), due("c", true), due("free", false)];
        backlogs.found(None, (&found, false), all, (s(0), None));
        assert_eq!(names(&backlogs), ["a", "b", "c"]);
        backlogs.found(None, (&[due("b", true)], true), all, (s(70), Some(s(10))));
        assert_eq!(names(&backlogs), ["b", "c"], "the search ended at b");
        backlogs.found(Some(&backlog("b")), (&[], false), all, (s(70), Some(s(10))));
        assert_eq!(names(&backlogs), ["b"]);
        backlogs.found(None, (&[], false), all, (s(79), Some(s(19))));
        assert_eq!(names(&backlogs), ["b"], "not for a whole lease");
    }

    #[test]
    fn a_backlog_of_a_destination_that_this_worker_does_not_serve_is_left() {
        let backlogs = KeyedBacklogs::default();
        let found = [due("a", true), due("b", true)];
        let serves = |backlog: &Backlog| backlog.namespace == "b";
        backlogs.found(None, (&found, false), serves, (s(0), None));
        assert_eq!(names(&backlogs), ["b"]);
    }
}
