//! Which backlogs have work: the finder adds them, the claimer claims from them. Locked briefly, never across an await.
//!
//! Everything here is a hint. The next search finds a missing backlog, and one without work costs an empty claim.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox_store::store::{Backlog, Due, Share};
use tokio::sync::Notify;

/// How many backlogs a probe claims from. With more of them a search costs less than empty claims.
const MOST_RECENT: usize = 16;
/// For how long a backlog that had rows is probed.
const RECENT: Duration = Duration::from_secs(60);

/// Rows without or with a key: they are claimed by different statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Free,
    Keyed,
}

impl Kind {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Free => Self::Keyed,
            Self::Keyed => Self::Free,
        }
    }
}

/// Is there anything to claim?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Work {
    #[default]
    None,
    Ready,
    /// A claim took what it could. Keys have more when their claimed rows are settled.
    Claimed,
    /// Its destination has no room or is unavailable, or this worker owns none of its lanes.
    NoRoom,
}

#[derive(Debug, Default)]
struct Entry {
    /// The `seq` from which fresh rows are searched.
    floor: i64,
    /// May the next claim of rows with a key go on where the last one ended? Not after a search, which may have seen rows behind
    /// it.
    resume: bool,
    free: Work,
    keyed: Work,
}

impl Entry {
    fn get(&self, kind: Kind) -> &Work {
        match kind {
            Kind::Free => &self.free,
            Kind::Keyed => &self.keyed,
        }
    }

    fn work(&mut self, kind: Kind) -> &mut Work {
        match kind {
            Kind::Free => &mut self.free,
            Kind::Keyed => &mut self.keyed,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Backlogs {
    entries: Mutex<Entries>,
    ready: Notify,
    exhausted: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    by_backlog: BTreeMap<Backlog, Entry>,
    /// The backlog that was claimed from last: the one after it comes first.
    last: Option<Backlog>,
    /// How many rows were claimed for the first time since the finder last asked.
    found_rows: u64,
    /// The backlogs that rows were claimed from last, and when. The latest is last.
    recent: VecDeque<(Backlog, Kind, Duration)>,
    /// How many rows with a key were settled since keys were last made ready.
    settled: usize,
    /// Backlogs of which this worker owns lanes. A claim of keys from the others would find nothing.
    owned: HashSet<Backlog>,
}

/// How much a claim took from one backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) rows: usize,
    /// How many of them were claimed for the first time. The others are no sign of new events.
    pub(crate) fresh: usize,
    /// From which `seq` to search fresh rows the next time.
    pub(crate) floor: Option<i64>,
}

impl Backlogs {
    /// A search found these backlogs, after `after` and up to the end, or up to the last of them if there are `more`.
    pub(crate) fn found(&self, after: Option<&Backlog>, due: Vec<Due>, more: bool) {
        let mut entries = self.entries();
        let begin = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        let end = match (more, due.last()) {
            (true, Some(last)) => Bound::Included(last.backlog.clone()),
            (true, None) | (false, _) => Bound::Unbounded,
        };
        let searched: Vec<Backlog> = entries
            .by_backlog
            .range((begin, end))
            .map(|(backlog, _)| backlog.clone())
            .collect();
        let mut before: BTreeMap<Backlog, Entry> = searched
            .into_iter()
            .filter_map(|backlog| entries.by_backlog.remove_entry(&backlog))
            .collect();
        for due in due {
            let mut entry = before.remove(&due.backlog).unwrap_or_default();
            entry.floor = due.lowest.unwrap_or(entry.floor);
            entry.free = if due.lowest.is_some() || due.waited {
                Work::Ready
            } else {
                Work::None
            };
            entry.keyed = if due.keyed { Work::Ready } else { Work::None };
            entry.resume = false;
            entries.by_backlog.insert(due.backlog, entry);
        }
        // A probe needs the floor of a backlog that has no due rows now.
        for (backlog, entry) in before {
            if entries.recent.iter().any(|(recent, ..)| *recent == backlog) {
                let entry = Entry {
                    floor: entry.floor,
                    resume: entry.resume,
                    ..Entry::default()
                };
                entries.by_backlog.insert(backlog, entry);
            }
        }
        drop(entries);
        self.ready.notify_one();
    }

    /// Did backlogs have rows lately, so that a probe can claim from them?
    pub(crate) fn can_probe(&self, now: Duration) -> bool {
        let entries = self.entries();
        let mut recent = entries.recent.iter();
        recent.any(|(backlog, kind, at)| {
            let work = entries.by_backlog.get(backlog).map(|entry| *entry.get(*kind));
            now.saturating_sub(*at) < RECENT && matches!(work, Some(Work::None | Work::Claimed))
        })
    }

    /// Makes the backlogs ready that had rows lately. There may be new ones.
    pub(crate) fn probe(&self, now: Duration) {
        let mut entries = self.entries();
        entries.recent.retain(|(.., at)| now.saturating_sub(*at) < RECENT);
        let Entries {
            by_backlog, recent, ..
        } = &mut *entries;
        for (backlog, kind, _) in recent {
            let work = by_backlog.get_mut(backlog).map(|entry| entry.work(*kind));
            if let Some(work) = work.filter(|work| matches!(work, Work::None | Work::Claimed)) {
                *work = Work::Ready;
            }
        }
        drop(entries);
        self.ready.notify_one();
    }

    /// What to claim: from at most `most` backlogs, in rotation, about `rows` in all. `room` returns how many rows a
    /// backlog's destination takes, and whether it is fair to tenants.
    pub(crate) fn shares(
        &self,
        kind: Kind,
        most: usize,
        rows: usize,
        room: impl Fn(&Backlog) -> Option<(usize, bool)>,
    ) -> Vec<Share> {
        let mut entries = self.entries();
        let last = entries.last.clone();
        let is_later = |backlog: &Backlog| last.as_ref().is_none_or(|last| backlog > last);
        let mut shares: Vec<Share> = Vec::new();
        let Entries {
            by_backlog, owned, ..
        } = &mut *entries;
        for (backlog, entry) in by_backlog.iter_mut() {
            if *entry.work(kind) != Work::Ready {
                continue;
            }
            let is_owned = kind == Kind::Free || owned.contains(backlog);
            match room(backlog).filter(|_| is_owned) {
                Some((limit, fair)) if limit > 0 => shares.push(Share {
                    backlog: backlog.clone(),
                    limit,
                    floor: entry.floor,
                    fair,
                    resume: entry.resume,
                }),
                Some(_) | None => *entry.work(kind) = Work::NoRoom,
            }
        }
        shares.sort_by_key(|share| !is_later(&share.backlog));
        shares.truncate(most.min(rows));
        let each = rows / shares.len().max(1);
        for share in &mut shares {
            share.limit = share.limit.min(each.max(1));
            if let Some(entry) = by_backlog.get_mut(&share.backlog).filter(|_| kind == Kind::Keyed) {
                entry.resume = true;
            }
        }
        match shares.last() {
            Some(last) => entries.last = Some(last.backlog.clone()),
            None => self.notify_exhausted(entries),
        }
        shares
    }

    /// A claim took this from these shares, one for each.
    pub(crate) fn claimed(&self, kind: Kind, shares: &[Share], taken: &[Taken], now: Duration) {
        let mut entries = self.entries();
        for (share, taken) in shares.iter().zip(taken) {
            let rows = taken.rows;
            if rows > 0 {
                entries.note_rows(&share.backlog, kind, taken.fresh, now);
            }
            let Some(entry) = entries.by_backlog.get_mut(&share.backlog) else {
                continue;
            };
            // A claim takes only so many rows of a key. There may be more keys, although fewer rows came than were asked for.
            let enough = match kind {
                Kind::Free => share.limit,
                Kind::Keyed => share.limit.div_ceil(4),
            };
            if rows < enough {
                *entry.work(kind) = Work::Claimed;
            }
            entry.floor = taken.floor.unwrap_or(entry.floor);
        }
        self.notify_exhausted(entries);
    }

    /// Rows were settled: `keyed` of them have a key, and `left` with a key are in flight.
    ///
    /// Destinations may have room again. Keys are ready when about half of their rows in flight are settled: before that
    /// most keys still have a row in flight, and a claim would find little.
    pub(crate) fn settled(&self, keyed: usize, left: usize) {
        let mut entries = self.entries();
        entries.settled += keyed;
        let again = entries.settled > 0 && entries.settled >= left;
        if again {
            entries.settled = 0;
        }
        drop(entries);
        self.recheck(again);
    }

    /// Destinations may have room again. With `keys`, keys that were claimed from are ready too.
    pub(crate) fn recheck(&self, keys: bool) {
        let mut entries = self.entries();
        let mut is_ready = false;
        for entry in entries.by_backlog.values_mut() {
            for kind in [Kind::Free, Kind::Keyed] {
                let work = entry.work(kind);
                let again = *work == Work::NoRoom || (keys && kind == Kind::Keyed && *work == Work::Claimed);
                if again {
                    *work = Work::Ready;
                    is_ready = true;
                }
            }
        }
        drop(entries);
        if is_ready {
            self.ready.notify_one();
        }
    }

    /// This worker owns lanes of these backlogs now, or does not.
    pub(crate) fn leased(&self, backlogs: impl IntoIterator<Item = (Backlog, bool)>) {
        let mut entries = self.entries();
        let mut is_ready = false;
        for (backlog, is_owned) in backlogs {
            if let Some(entry) = entries.by_backlog.get_mut(&backlog) {
                entry.resume = false;
                if is_owned && entry.keyed != Work::None {
                    entry.keyed = Work::Ready;
                    is_ready = true;
                }
            }
            if is_owned {
                entries.owned.insert(backlog);
            } else {
                entries.owned.remove(&backlog);
            }
        }
        drop(entries);
        if is_ready {
            self.ready.notify_one();
        }
    }

    /// Is there anything to claim?
    pub(crate) fn has_work(&self) -> bool {
        self.entries().has_work()
    }

    /// How many rows were claimed for the first time since this was last called.
    pub(crate) fn take_found_rows(&self) -> u64 {
        std::mem::take(&mut self.entries().found_rows)
    }

    /// Waits until there may be work. Safe to cancel.
    pub(crate) async fn ready(&self) {
        self.ready.notified().await;
    }

    /// Waits until all work is claimed. Safe to cancel.
    pub(crate) async fn exhausted(&self) {
        self.exhausted.notified().await;
    }

    fn notify_exhausted(&self, entries: MutexGuard<'_, Entries>) {
        let is_exhausted = !entries.has_work();
        drop(entries);
        if is_exhausted {
            self.exhausted.notify_one();
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn note_rows(&mut self, backlog: &Backlog, kind: Kind, fresh: usize, now: Duration) {
        self.found_rows += u64::try_from(fresh).unwrap_or(u64::MAX);
        let same = |(recent, other, _): &(Backlog, Kind, Duration)| recent == backlog && *other == kind;
        let noted = self
            .recent
            .iter()
            .position(same)
            .and_then(|at| self.recent.remove(at));
        let backlog = noted.map_or_else(|| backlog.clone(), |(backlog, ..)| backlog);
        self.recent.push_back((backlog, kind, now));
        if self.recent.len() > MOST_RECENT {
            self.recent.pop_front();
        }
    }

    fn has_work(&self) -> bool {
        self.by_backlog
            .values()
            .any(|entry| entry.free == Work::Ready || entry.keyed == Work::Ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backlog(name: &str) -> Backlog {
        Backlog {
            destination: Some(name.to_owned()),
            namespace: "n".to_owned(),
        }
    }

    fn due(name: &str, lowest: i64) -> Due {
        Due {
            backlog: backlog(name),
            lowest: Some(lowest),
            waited: false,
            keyed: true,
        }
    }

    const NOW: Duration = Duration::from_secs(1000);
    const NOTHING: Taken = Taken {
        rows: 0,
        fresh: 0,
        floor: None,
    };

    fn names(shares: &[Share]) -> Vec<&str> {
        shares
            .iter()
            .filter_map(|share| share.backlog.destination.as_deref())
            .collect()
    }

    fn backlogs(names: &[&str]) -> Backlogs {
        let backlogs = Backlogs::default();
        backlogs.found(None, names.iter().map(|name| due(name, 1)).collect(), false);
        backlogs.leased(names.iter().map(|name| (backlog(name), true)));
        backlogs
    }

    #[test]
    fn backlogs_are_claimed_from_in_rotation() {
        let backlogs = backlogs(&["a", "b", "c", "d", "e"]);
        let mut claimed = Vec::new();
        for _ in 0..3 {
            let shares = backlogs.shares(Kind::Free, 2, 100, |_| Some((10, false)));
            claimed.extend(names(&shares).into_iter().map(str::to_owned));
        }
        assert_eq!(claimed, ["a", "b", "c", "d", "e", "a"]);
    }

    #[test]
    fn a_claim_resumes_only_after_one_that_began_at_the_bottom() {
        let backlogs = backlogs(&["a", "b", "c"]);
        let ask = || {
            let shares = backlogs.shares(Kind::Keyed, 2, 100, |_| Some((10, false)));
            shares.iter().map(|share| share.resume).collect::<Vec<_>>()
        };
        assert_eq!(ask(), [false, false]);
        assert_eq!(ask(), [false, true], "the third was left out at first");
        backlogs.found(None, vec![due("a", 1)], true);
        assert_eq!(ask(), [true, true]);
        assert_eq!(ask(), [false, true], "a search may have seen more");
    }

    #[test]
    fn a_backlog_without_room_is_skipped_and_the_others_share_the_rows() {
        let backlogs = backlogs(&["a", "b", "c"]);
        let room = |backlog: &Backlog| (backlog.destination.as_deref() != Some("b")).then_some((50, false));
        let shares = backlogs.shares(Kind::Free, 10, 60, room);
        assert_eq!(names(&shares), ["a", "c"]);
        assert!(shares.iter().all(|share| share.limit == 30));
    }

    #[test]
    fn a_backlog_with_fewer_rows_than_asked_is_left_until_it_is_found_again() {
        let backlogs = backlogs(&["a"]);
        let ask = || backlogs.shares(Kind::Free, 10, 5, |_| Some((5, false)));
        let shares = ask();
        let took = |rows, floor| {
            [Taken {
                rows,
                fresh: rows,
                floor,
            }]
        };
        backlogs.claimed(Kind::Free, &shares, &took(5, Some(40)), NOW);
        assert_eq!(ask()[0].floor, 40);
        backlogs.claimed(Kind::Free, &shares, &took(4, None), NOW);
        assert!(ask().is_empty());
        assert_eq!([backlogs.take_found_rows(), backlogs.take_found_rows()], [9, 0]);
        backlogs.found(None, vec![due("a", 7)], false);
        assert_eq!(ask()[0].floor, 7, "a late commit is found below the floor");
    }

    #[test]
    fn a_row_that_was_tried_before_is_no_new_event() {
        let backlogs = backlogs(&["a"]);
        let shares = backlogs.shares(Kind::Free, 10, 5, |_| Some((5, false)));
        let taken = Taken {
            rows: 3,
            fresh: 1,
            floor: None,
        };
        backlogs.claimed(Kind::Free, &shares, &[taken], NOW);
        assert_eq!(backlogs.take_found_rows(), 1);
    }

    #[test]
    fn a_claim_of_some_keys_leaves_the_others_ready() {
        let backlogs = backlogs(&["a"]);
        let ask = || backlogs.shares(Kind::Keyed, 10, 100, |_| Some((100, false)));
        let took = |rows| [Taken { rows, ..NOTHING }];
        backlogs.claimed(Kind::Keyed, &ask(), &took(25), NOW);
        assert_eq!(ask().len(), 1);
        backlogs.claimed(Kind::Keyed, &ask(), &took(24), NOW);
        assert!(ask().is_empty());
    }

    #[test]
    fn keys_are_claimed_only_from_backlogs_of_which_this_worker_owns_lanes() {
        let backlogs = backlogs(&["a", "b"]);
        let ask = |kind| backlogs.shares(kind, 10, 100, |_| Some((100, false)));
        backlogs.leased([(backlog("a"), false)]);
        assert_eq!(names(&ask(Kind::Keyed)), ["b"]);
        assert_eq!(names(&ask(Kind::Free)), ["a", "b"]);
        backlogs.leased([(backlog("a"), true)]);
        assert_eq!(ask(Kind::Keyed).len(), 2);
    }

    #[test]
    fn keys_are_ready_again_when_their_rows_are_settled() {
        let backlogs = backlogs(&["a"]);
        let shares = backlogs.shares(Kind::Keyed, 10, 5, |_| Some((5, false)));
        backlogs.claimed(Kind::Keyed, &shares, &[NOTHING], NOW);
        assert!(
            backlogs
                .shares(Kind::Keyed, 10, 5, |_| Some((5, false)))
                .is_empty()
        );
        backlogs.recheck(false);
        assert!(
            backlogs
                .shares(Kind::Keyed, 10, 5, |_| Some((5, false)))
                .is_empty()
        );
        backlogs.recheck(true);
        assert_eq!(backlogs.shares(Kind::Keyed, 10, 5, |_| Some((5, false))).len(), 1);
    }

    #[test]
    fn keys_are_ready_again_when_half_of_their_rows_are_settled() {
        let backlogs = backlogs(&["a"]);
        let ask = || backlogs.shares(Kind::Keyed, 10, 5, |_| Some((5, false)));
        backlogs.claimed(Kind::Keyed, &ask(), &[NOTHING], NOW);
        backlogs.settled(30, 70);
        assert!(ask().is_empty());
        backlogs.settled(20, 50);
        assert_eq!(ask().len(), 1);
        backlogs.claimed(Kind::Keyed, &ask(), &[NOTHING], NOW);
        backlogs.settled(0, 0);
        assert!(ask().is_empty(), "rows without a key make no key ready");
    }

    #[test]
    fn a_destination_without_room_is_no_work_until_a_recheck() {
        let backlogs = backlogs(&["a"]);
        assert!(backlogs.shares(Kind::Free, 10, 5, |_| None).is_empty());
        assert!(
            backlogs
                .shares(Kind::Keyed, 10, 5, |_| Some((0, false)))
                .is_empty()
        );
        assert!(!backlogs.has_work());
        backlogs.recheck(false);
        assert!(backlogs.has_work());
    }

    #[test]
    fn a_page_of_a_search_leaves_other_pages_as_they_are() {
        let backlogs = backlogs(&["a", "b", "c"]);
        backlogs.found(Some(&backlog("a")), vec![due("b", 1)], true);
        backlogs.found(Some(&backlog("b")), vec![], false);
        let shares = backlogs.shares(Kind::Free, 10, 100, |_| Some((5, false)));
        assert_eq!(names(&shares), ["a", "b"]);
    }
}
