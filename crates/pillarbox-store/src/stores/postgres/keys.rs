//! Where the claims of fresh rows with a key go on, backlog by backlog.
//!
//! The lanes of a backlog are read in buckets of 128, each in the order of insertion. A claim begins with the bucket after the
//! last that the claim before read, whose keys are still in flight. In each bucket it goes on at a floor. So no claim
//! reads the index entries of finished rows again, which a snapshot of another transaction keeps.
//!
//! Hints of this process only. A claim that does not [resume](crate::store::Share::resume) begins at the bottom, and finds what
//! the hints miss: rows that were committed late, and lanes that another worker had. **If we die here** the next worker begins
//! at the bottom.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::store::{Backlog, LANES, Share};

/// The lanes of one bucket; `lane >> 7` in the index.
const BUCKET: u16 = 128;
/// How many buckets there are.
const BUCKETS: u16 = LANES / BUCKET;
/// A floor for each of them.
type Floors = [i64; BUCKETS as usize];
/// How many buckets a claim reads at least if all are full, and at most. The rows of a key are sent one by one, so a claim needs
/// rows of many keys. But each key costs a question.
const FEWEST: usize = 4;
const MOST_PARTS: usize = BUCKETS as usize;
/// How often a claim begins below everything, at most.
const SEARCH: Duration = Duration::from_secs(60);
/// Of how many backlogs the floors are kept. Claims of the others begin below everything.
const MOST: usize = 1024;
/// A look is slow from here on: 0.2 s from below 100,000 finished rows that a snapshot keeps, 1.3 s from below 400,000.
/// Measured on 2026-11-19.
const SLOW: Duration = Duration::from_millis(100);
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Keys {
    known: Mutex<Known>,
    /// For barriers of whole backlogs. Without it a claim asks about every key, which costs 6 µs each.
    pub(super) barriers: Look,
    /// For bottoms. Without it claims rely on the last ones, and read more.
    pub(super) bottoms: Look,
}

#[derive(Debug, Default)]
struct Known {
    backlogs: HashMap<(Uuid, Backlog), Progress>,
    /// How often rows were tried, and how often all was forgotten.
    tried: u64,
    forgotten: u64,
}

/// A look that reads past finished rows, for a claim that can do without. After one that was slow or failed there is none for a
/// while. Otherwise a snapshot of another transaction would make claims slow, or fail them all.
#[derive(Debug, Default)]
pub(super) struct Look(Mutex<Pause>);

#[derive(Debug, Default)]
struct Pause {
    until: Option<Instant>,
    length: Duration,
}

/// How far the claims of one backlog have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    /// The lowest `seq` to read, of each bucket.
    floors: Floors,
    /// Below it is no unfinished fresh row of the backlog, and none will come: claims rely on it for order.
    pub(super) bottom: i64,
    /// When the bottom was looked for.
    pub(super) looked: Option<Instant>,
    /// When a claim began below everything. Only that finds a finished row that an operator has made pending by hand.
    searched: Option<Instant>,
    /// When a claim stepped from key to key, because the first rows of a bucket could not be taken.
    stepped: Option<Instant>,
    /// The bucket with which the next claim begins.
    first: u16,
    /// A claim reads at most such a part of its share from one bucket at first.
    parts: usize,
    /// May keys have rows that were tried before?
    pub(super) may_have_tried: bool,
    /// Of when this is.
    tried: u64,
    forgotten: u64,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            floors: [i64::MIN; BUCKETS as usize],
            bottom: i64::MIN,
            looked: None,
            searched: None,
            stepped: None,
            first: 0,
            parts: FEWEST,
            may_have_tried: true,
            tried: 0,
            forgotten: 0,
        }
    }
}

/// What a claim reads of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// The number of the share, from 0.
    pub(super) share: usize,
    pub(super) bucket: u16,
    pub(super) floor: i64,
}

impl Segment {
    /// The lanes of a bucket, as a range.
    pub(super) fn lanes(bucket: u16) -> String {
        format!("[{},{})", bucket * BUCKET, (bucket + 1) * BUCKET)
    }
}

impl Keys {
    /// How far the worker's claims of this share's backlog have come.
    pub(super) fn progress(&self, worker: Uuid, share: &Share) -> Progress {
        let of = (worker, share.backlog.clone());
        let mut known = self.lock();
        let mut progress = known.backlogs.get(&of).cloned().unwrap_or_default();
        (progress.tried, progress.forgotten) = (known.tried, known.forgotten);
        if !share.resume {
            progress.restart();
            if let Some(known) = known.backlogs.get_mut(&of) {
                // Even if the claim fails because it takes too long.
                known.searched = progress.searched;
            }
        }
        progress
    }

    /// A claim of the worker has been committed and came so far.
    pub(super) fn came(&self, worker: Uuid, came: Vec<(Backlog, Progress)>) {
        let mut known = self.lock();
        for (backlog, mut progress) in came {
            if progress.forgotten != known.forgotten {
                continue;
            }
            progress.may_have_tried |= progress.tried != known.tried;
            let of = (worker, backlog);
            if known.backlogs.len() >= MOST && !known.backlogs.contains_key(&of) {
                // Any: a map has no order.
                let one = known.backlogs.keys().next().cloned();
                one.and_then(|one| known.backlogs.remove(&one));
            }
            known.backlogs.insert(of, progress);
        }
    }

    /// Claims begin below everything, also after those that run now.
    pub(super) fn forget(&self) {
        let mut known = self.lock();
        known.backlogs.clear();
        known.forgotten += 1;
    }

    /// Some rows were tried now: the next claims look for them.
    pub(super) fn tried(&self) {
        let mut known = self.lock();
        known.tried += 1;
        for progress in known.backlogs.values_mut() {
            progress.may_have_tried = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // A panic elsewhere does not make the hints wrong.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Look {
    /// May a claim look now? Until it [has](Self::looked), this look counts as slow.
    pub(super) fn may_look(&self) -> bool {
        let mut pause = self.pause();
        let now = Instant::now();
        if pause.until.is_some_and(|until| now < until) {
            return false;
        }
        pause.length = (pause.length * 2).clamp(SHORTEST, LONGEST);
        pause.until = Some(now + pause.length);
        true
    }

    /// A look took so long.
    pub(super) fn looked(&self, took: Duration) {
        if took < SLOW {
            *self.pause() = Pause::default();
        }
    }

    fn pause(&self) -> MutexGuard<'_, Pause> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    /// Begins at the bottom, and below it once in a while.
    fn restart(&mut self) {
        let is_certain = self.searched.is_some_and(|at| at.elapsed() < SEARCH);
        if !is_certain {
            self.searched = Some(Instant::now());
        }
        let floor = if is_certain { self.bottom } else { i64::MIN };
        self.floors = [floor; BUCKETS as usize];
        self.may_have_tried = true;
    }

    /// A fresh row with this `seq` was read. One below the bottom has a number that did not come from the sequence, or an operator
    /// has made it pending.
    pub(super) fn found(&mut self, seq: i64) {
        if seq < self.bottom {
            self.bottom = i64::MIN;
            self.looked = None;
        }
    }

    /// What the next statement reads, in this order.
    pub(super) fn segments(&self, share: usize) -> impl Iterator<Item = Segment> {
        (0..BUCKETS).map(move |step| {
            let bucket = (self.first + step) % BUCKETS;
            Segment {
                share,
                bucket,
                floor: self.floors[usize::from(bucket)],
            }
        })
    }

    /// May a claim step from key to key, so long after the last that did?
    pub(super) fn may_step(&mut self, pause: Duration) -> bool {
        let may = self.stepped.is_none_or(|at| at.elapsed() >= pause);
        if may {
            self.stepped = Some(Instant::now());
        }
        may
    }

    /// How many buckets the next claim reads if all are full.
    pub(super) fn parts(&self) -> usize {
        self.parts
    }

    /// A claim took so many rows of so many keys. If it took long runs, the next one reads more buckets.
    pub(super) fn took(&mut self, rows: usize, keys: usize) {
        if rows > keys * 8 {
            self.parts = (self.parts * 2).min(MOST_PARTS);
        } else if rows < keys * 4 {
            self.parts = (self.parts / 2).max(FEWEST);
        }
    }

    /// A statement has read this bucket up to the floor. The next one begins with the bucket after it.
    pub(super) fn read(&mut self, bucket: u16, floor: i64) {
        self.floors[usize::from(bucket)] = floor;
        self.first = (bucket + 1) % BUCKETS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Uuid = Uuid::from_u128(1);

    fn share(resume: bool) -> Share {
        Share {
            backlog: Backlog {
                destination: None,
                namespace: "shop".into(),
            },
            limit: 10,
            floor: 0,
            fair: false,
            resume,
        }
    }

    #[test]
    fn a_claim_resumes_after_the_last_bucket_at_its_floors() {
        let keys = Keys::default();
        let mut progress = keys.progress(ME, &share(true));
        progress.read(3, 77);
        keys.came(ME, vec![(share(true).backlog, progress)]);
        let segments: Vec<Segment> = keys.progress(ME, &share(true)).segments(0).collect();
        assert_eq!([segments[0].bucket, segments[31].bucket], [4, 3]);
        assert_eq!([segments[0].floor, segments[31].floor], [i64::MIN, 77]);
    }

    #[test]
    fn a_claim_that_does_not_resume_begins_at_the_bottom_and_looks_for_tried_rows() {
        let keys = Keys::default();
        let mut progress = keys.progress(ME, &share(true));
        progress.read(3, 77);
        progress.may_have_tried = false;
        keys.came(ME, vec![(share(true).backlog, progress)]);
        let progress = keys.progress(ME, &share(false));
        assert!(progress.segments(0).all(|segment| segment.floor == i64::MIN));
        assert!(progress.may_have_tried);
    }

    #[test]
    fn after_a_slow_look_there_is_none_for_a_while() {
        let look = Look::default();
        assert!(look.may_look());
        look.looked(Duration::from_millis(1));
        assert!(look.may_look());
        look.looked(Duration::from_secs(1));
        assert!(!look.may_look());
    }

    #[test]
    fn a_look_that_failed_counts_as_slow() {
        let look = Look::default();
        assert!(look.may_look());
        assert!(!look.may_look());
    }

    #[test]
    fn a_claim_that_began_below_everything_and_failed_is_not_repeated_at_once() {
        let keys = Keys::default();
        let progress = Progress {
            bottom: 7,
            ..keys.progress(ME, &share(true))
        };
        keys.came(ME, vec![(share(true).backlog, progress)]);
        let floor = || keys.progress(ME, &share(false)).floors[0];
        assert_eq!([floor(), floor()], [i64::MIN, 7]);
    }

    #[test]
    fn after_long_runs_of_few_keys_a_claim_reads_more_buckets() {
        let mut progress = Progress::default();
        let parts = [(100, 2), (100, 2), (100, 20), (100, 50)].map(|(rows, keys)| {
            progress.took(rows, keys);
            progress.parts()
        });
        assert_eq!(parts, [8, 16, 16, 8]);
    }

    #[test]
    fn a_row_that_was_tried_during_a_claim_is_looked_for_by_the_next() {
        let keys = Keys::default();
        let mut progress = keys.progress(ME, &share(true));
        keys.tried();
        progress.may_have_tried = false;
        keys.came(ME, vec![(share(true).backlog, progress)]);
        assert!(keys.progress(ME, &share(true)).may_have_tried);
    }

    #[test]
    fn a_claim_that_began_before_all_was_forgotten_leaves_nothing() {
        let keys = Keys::default();
        let mut progress = keys.progress(ME, &share(true));
        progress.bottom = 77;
        keys.forget();
        keys.came(ME, vec![(share(true).backlog, progress)]);
        assert_eq!(keys.progress(ME, &share(true)).bottom, i64::MIN);
    }

    #[test]
    fn a_row_that_was_tried_is_looked_for_in_every_backlog() {
        let keys = Keys::default();
        let mut progress = keys.progress(ME, &share(true));
        progress.may_have_tried = false;
        keys.came(ME, vec![(share(true).backlog, progress)]);
        assert!(!keys.progress(ME, &share(true)).may_have_tried);
        keys.tried();
        assert!(keys.progress(ME, &share(true)).may_have_tried);
    }
}
