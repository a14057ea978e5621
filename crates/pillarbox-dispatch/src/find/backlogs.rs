//! Where there is work: what the finder saw and the claimer has not used up. Locked briefly, never across an await.
//!
//! Everything here is a hint. A backlog that is missing is found by the next look; one that is named for nothing
//! costs an empty claim.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pillarbox_store::store::{Backlog, Due, Share};
use tokio::sync::Notify;

/// With or without a key: they are claimed in different targets.
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

/// Is there anything to take?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Work {
    #[default]
    None,
    Ready,
    /// A claim took what it could. For keys, there is more when what was taken is done with.
    Taken,
    /// Its destination takes nothing now.
    Closed,
}

#[derive(Debug, Default)]
struct Entry {
    /// From which `seq` on fresh rows are looked for.
    floor: i64,
    free: Work,
    keyed: Work,
}

impl Entry {
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
    book: Mutex<Book>,
    ready: Notify,
    dry: Notify,
}

#[derive(Debug, Default)]
struct Book {
    entries: BTreeMap<Backlog, Entry>,
    /// The backlog that was served last: the next comes first.
    served: Option<Backlog>,
    /// Did a claim find something since the finder looked last?
    found: bool,
    /// How many rows with a key were settled since keys were looked at again.
    settled: usize,
}

/// What a claim took from one backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) rows: usize,
    /// From where to look for fresh rows the next time.
    pub(crate) floor: Option<i64>,
}

impl Backlogs {
    /// The finder saw these, in the part that begins after `after` and goes on to the end unless there is `more`.
    pub(crate) fn saw(&self, after: Option<&Backlog>, due: Vec<Due>, more: bool) {
        let mut book = self.book();
        let begin = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        let end = match (more, due.last()) {
            (true, Some(last)) => Bound::Included(last.backlog.clone()),
            (true, None) | (false, _) => Bound::Unbounded,
        };
        let looked_at: Vec<Backlog> = book
            .entries
            .range((begin, end))
            .map(|(backlog, _)| backlog.clone())
            .collect();
        let mut before: BTreeMap<Backlog, Entry> = looked_at
            .into_iter()
            .filter_map(|backlog| book.entries.remove_entry(&backlog))
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
            book.entries.insert(due.backlog, entry);
        }
        drop(book);
        self.ready.notify_one();
    }

    /// What to take: from `most` backlogs at the most, beginning after the one served last, of each as much as
    /// `room` says and all together about `rows`.
    pub(crate) fn shares(
        &self,
        kind: Kind,
        most: usize,
        rows: usize,
        room: impl Fn(&Backlog) -> Option<(usize, bool)>,
    ) -> Vec<Share> {
        let mut book = self.book();
        let served = book.served.clone();
        let later = |backlog: &Backlog| served.as_ref().is_none_or(|served| backlog > served);
        let mut shares: Vec<Share> = Vec::new();
        for (backlog, entry) in &mut book.entries {
            if *entry.work(kind) != Work::Ready {
                continue;
            }
            match room(backlog) {
                Some((limit, fair)) if limit > 0 => shares.push(Share {
                    backlog: backlog.clone(),
                    limit,
                    floor: entry.floor,
                    fair,
                }),
                Some(_) | None => *entry.work(kind) = Work::Closed,
            }
        }
        shares.sort_by_key(|share| !later(&share.backlog));
        shares.truncate(most.min(rows));
        let each = rows / shares.len().max(1);
        for share in &mut shares {
            share.limit = share.limit.min(each.max(1));
        }
        match shares.last() {
            Some(last) => book.served = Some(last.backlog.clone()),
            None => self.is_dry(book),
        }
        shares
    }

    /// A claim took this from these shares, one for each.
    pub(crate) fn took(&self, kind: Kind, shares: &[Share], taken: &[Taken]) {
        let mut book = self.book();
        for (share, taken) in shares.iter().zip(taken) {
            let rows = taken.rows;
            book.found |= rows > 0;
            let Some(entry) = book.entries.get_mut(&share.backlog) else {
                continue;
            };
            // Of a key only so much is taken at once: there may be more keys, also where less came than was asked for.
            let enough = match kind {
                Kind::Free => share.limit,
                Kind::Keyed => share.limit.div_ceil(4),
            };
            if rows < enough {
                *entry.work(kind) = Work::Taken;
            }
            entry.floor = taken.floor.unwrap_or(entry.floor);
        }
        self.is_dry(book);
    }

    /// Rows were settled, so many of them with a key; so many with a key are left in flight.
    ///
    /// A destination may take more. The next of a key may go, but most keys still have a row in flight until about
    /// half of them are done; asking after every few would be for nothing.
    pub(crate) fn settled(&self, keyed: usize, left: usize) {
        let mut book = self.book();
        book.settled += keyed;
        let again = book.settled > 0 && book.settled >= left;
        if again {
            book.settled = 0;
        }
        drop(book);
        self.stir(again);
    }

    /// A destination may take more; with `keys`, so may keys of which rows were taken.
    pub(crate) fn stir(&self, keys: bool) {
        let mut book = self.book();
        let mut stirred = false;
        for entry in book.entries.values_mut() {
            for kind in [Kind::Free, Kind::Keyed] {
                let work = entry.work(kind);
                let again = *work == Work::Closed || (keys && kind == Kind::Keyed && *work == Work::Taken);
                if again {
                    *work = Work::Ready;
                    stirred = true;
                }
            }
        }
        drop(book);
        if stirred {
            self.ready.notify_one();
        }
    }

    /// Is there anything left to take?
    pub(crate) fn has_work(&self) -> bool {
        self.book().has_work()
    }

    /// Did a claim find something since this was asked last?
    pub(crate) fn found(&self) -> bool {
        std::mem::take(&mut self.book().found)
    }

    /// Waits until there may be work. Safe to cancel.
    pub(crate) async fn ready(&self) {
        self.ready.notified().await;
    }

    /// Waits until everything is taken. Safe to cancel.
    pub(crate) async fn dry(&self) {
        self.dry.notified().await;
    }

    fn is_dry(&self, book: MutexGuard<'_, Book>) {
        let dry = !book.has_work();
        drop(book);
        if dry {
            self.dry.notify_one();
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn has_work(&self) -> bool {
        self.entries
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

    const NOTHING: Taken = Taken { rows: 0, floor: None };

    fn names(shares: &[Share]) -> Vec<&str> {
        shares
            .iter()
            .filter_map(|share| share.backlog.destination.as_deref())
            .collect()
    }

    fn seen(names: &[&str]) -> Backlogs {
        let backlogs = Backlogs::default();
        backlogs.saw(None, names.iter().map(|name| due(name, 1)).collect(), false);
        backlogs
    }

    #[test]
    fn backlogs_are_served_in_rotation() {
        let backlogs = seen(&["a", "b", "c", "d", "e"]);
        let mut served = Vec::new();
        for _ in 0..3 {
            let shares = backlogs.shares(Kind::Free, 2, 100, |_| Some((10, false)));
            served.extend(names(&shares).into_iter().map(str::to_owned));
        }
        assert_eq!(served, ["a", "b", "c", "d", "e", "a"]);
    }

    #[test]
    fn one_without_room_is_passed_over_and_the_others_share_the_rows() {
        let backlogs = seen(&["a", "b", "c"]);
        let room = |backlog: &Backlog| (backlog.destination.as_deref() != Some("b")).then_some((50, false));
        let shares = backlogs.shares(Kind::Free, 10, 60, room);
        assert_eq!(names(&shares), ["a", "c"]);
        assert!(shares.iter().all(|share| share.limit == 30));
    }

    #[test]
    fn what_gave_less_than_asked_is_left_until_it_is_seen_again() {
        let backlogs = seen(&["a"]);
        let ask = || backlogs.shares(Kind::Free, 10, 5, |_| Some((5, false)));
        let shares = ask();
        let took = |rows, floor| [Taken { rows, floor }];
        backlogs.took(Kind::Free, &shares, &took(5, Some(40)));
        assert_eq!(ask()[0].floor, 40);
        backlogs.took(Kind::Free, &shares, &took(4, None));
        assert!(ask().is_empty() && backlogs.found() && !backlogs.found());
        backlogs.saw(None, vec![due("a", 7)], false);
        assert_eq!(ask()[0].floor, 7, "a late commit is found below the floor");
    }

    #[test]
    fn a_claim_of_some_keys_does_not_say_that_there_are_no_others() {
        let backlogs = seen(&["a"]);
        let ask = || backlogs.shares(Kind::Keyed, 10, 100, |_| Some((100, false)));
        let took = |rows| [Taken { rows, floor: None }];
        backlogs.took(Kind::Keyed, &ask(), &took(25));
        assert_eq!(ask().len(), 1);
        backlogs.took(Kind::Keyed, &ask(), &took(24));
        assert!(ask().is_empty());
    }

    #[test]
    fn keys_go_on_when_what_was_taken_is_done_with() {
        let backlogs = seen(&["a"]);
        let shares = backlogs.shares(Kind::Keyed, 10, 5, |_| Some((5, false)));
        backlogs.took(Kind::Keyed, &shares, &[NOTHING]);
        assert!(
            backlogs
                .shares(Kind::Keyed, 10, 5, |_| Some((5, false)))
                .is_empty()
        );
        backlogs.stir(false);
        assert!(
            backlogs
                .shares(Kind::Keyed, 10, 5, |_| Some((5, false)))
                .is_empty()
        );
        backlogs.stir(true);
        assert_eq!(backlogs.shares(Kind::Keyed, 10, 5, |_| Some((5, false))).len(), 1);
    }

    #[test]
    fn keys_are_looked_at_again_when_half_of_what_was_taken_is_done() {
        let backlogs = seen(&["a"]);
        let ask = || backlogs.shares(Kind::Keyed, 10, 5, |_| Some((5, false)));
        backlogs.took(Kind::Keyed, &ask(), &[NOTHING]);
        backlogs.settled(30, 70);
        assert!(ask().is_empty());
        backlogs.settled(20, 50);
        assert_eq!(ask().len(), 1);
        backlogs.took(Kind::Keyed, &ask(), &[NOTHING]);
        backlogs.settled(0, 0);
        assert!(ask().is_empty(), "rows without a key free none");
    }

    #[test]
    fn a_destination_that_takes_nothing_is_no_work_until_something_has_ended() {
        let backlogs = seen(&["a"]);
        assert!(backlogs.shares(Kind::Free, 10, 5, |_| None).is_empty());
        assert!(
            backlogs
                .shares(Kind::Keyed, 10, 5, |_| Some((0, false)))
                .is_empty()
        );
        assert!(!backlogs.has_work());
        backlogs.stir(false);
        assert!(backlogs.has_work());
    }

    #[test]
    fn a_page_of_a_look_says_nothing_of_other_pages() {
        let backlogs = seen(&["a", "b", "c"]);
        backlogs.saw(Some(&backlog("a")), vec![due("b", 1)], true);
        backlogs.saw(Some(&backlog("b")), vec![], false);
        let shares = backlogs.shares(Kind::Free, 10, 100, |_| Some((5, false)));
        assert_eq!(names(&shares), ["a", "b"]);
    }
}
