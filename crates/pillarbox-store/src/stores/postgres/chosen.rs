//! Which of the fresh rows with a key that a claim has read it takes. Pure.
//!
//! A row is taken only with every earlier unfinished row of its key. Those are fresh and in the same bucket of lanes, so they were
//! read before it; or the key has an earlier row or a barrier, for which the claim has asked.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

/// A fresh row that was read.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// The number of the share, from 0.
    pub(super) share: usize,
    /// The number of the segment, from 0.
    pub(super) place: usize,
    /// Its place in the table, which changes with each version.
    pub(super) version: String,
    pub(super) id: Uuid,
    pub(super) seq: i64,
    pub(super) lane: i16,
    pub(super) key: String,
    pub(super) size: i64,
    /// Is it pending, due and in a lane of this worker?
    pub(super) ready: bool,
    /// Has this claim taken it already?
    pub(super) is_ours: bool,
}

/// The rows of one key, as places in the list that was read.
#[derive(Debug)]
pub(super) struct KeyRows {
    rows: Vec<usize>,
    /// The `seq` of its first row that is ready.
    pub(super) head: i64,
    /// Rows from here on are not taken.
    until: i64,
    /// Rows after this one are claimed by their key.
    tried: Option<i64>,
}

/// What a claim takes of the rows that it read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    /// The rows to claim, in their order.
    pub(super) taken: Vec<usize>,
    /// The rows to be claimed by their key.
    pub(super) moved: Vec<usize>,
}

impl Chosen {
    /// How many rows and keys it takes of each share.
    pub(super) fn sizes(&self, rows: &[Candidate], shares: usize) -> Vec<(usize, usize)> {
        let mut sizes = vec![(0, 0); shares];
        let mut keys: HashSet<(usize, &str)> = HashSet::with_capacity(self.taken.len());
        for &place in &self.taken {
            let row = &rows[place];
            let (taken, distinct) = &mut sizes[row.share];
            *taken += 1;
            *distinct += usize::from(keys.insert((row.share, &row.key)));
        }
        sizes
    }
}

/// The keys that have a row which is ready, in the order of their first rows.
pub(super) fn keys(rows: &[Candidate]) -> Vec<KeyRows> {
    let mut numbers: HashMap<(usize, &str), usize> = HashMap::with_capacity(rows.len());
    let mut keys: Vec<KeyRows> = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        if row.is_ours {
            continue;
        }
        let number = *numbers.entry((row.share, &row.key)).or_insert(keys.len());
        if number == keys.len() {
            keys.push(KeyRows {
                rows: Vec::new(),
                head: i64::MAX,
                until: i64::MAX,
                tried: None,
            });
        }
        let key = &mut keys[number];
        if row.ready {
            key.head = key.head.min(row.seq);
            key.rows.push(place);
        } else {
            key.until = key.until.min(row.seq);
        }
    }
    keys.retain(|key| !key.rows.is_empty());
    keys
}

impl KeyRows {
    /// Its first row that is ready.
    pub(super) fn first<'a>(&self, rows: &'a [Candidate]) -> &'a Candidate {
        &rows[self.rows[0]]
    }

    /// An earlier row of the key is unfinished.
    pub(super) fn block(&mut self) {
        self.until = i64::MIN;
    }

    /// The key has rows that were tried before, or that have no destination yet: the first of each.
    pub(super) fn limit(&mut self, tried: Option<i64>, unrouted: Option<i64>) {
        self.tried = tried;
        for seq in tried.into_iter().chain(unrouted) {
            self.until = self.until.min(seq);
        }
    }
}

/// Chooses rows of these keys, at most so many bytes, or one row.
pub(super) fn choose(rows: &[Candidate], keys: &[KeyRows], bytes: i64) -> Chosen {
    let mut chosen = Chosen::default();
    for key in keys {
        for &place in &key.rows {
            let seq = rows[place].seq;
            if seq < key.until {
                chosen.taken.push(place);
            } else if key.tried.is_some_and(|tried| tried < seq) {
                chosen.moved.push(place);
            }
        }
    }
    // In the order in which they were read. So a cut leaves a beginning of each key.
    chosen.taken.sort_unstable();
    let mut total = 0_i64;
    let fits = |place: &&usize| {
        let is_first = total == 0;
        total = total.saturating_add(rows[**place].size.max(1));
        is_first || total <= bytes
    };
    let count = chosen.taken.iter().take_while(fits).count();
    chosen.taken.truncate(count);
    chosen
}

/// Leaves out rows that are locked by others, and the later rows of their keys.
pub(super) fn without(
    rows: &[Candidate],
    taken: &[usize],
    is_free: impl Fn(&Candidate) -> bool,
) -> Vec<usize> {
    let mut broken: HashSet<(usize, &str)> = HashSet::new();
    let mut left = Vec::with_capacity(taken.len());
    for &place in taken {
        let row = &rows[place];
        let key = (row.share, row.key.as_str());
        if broken.contains(&key) {
            continue;
        }
        if is_free(row) {
            left.push(place);
        } else {
            broken.insert(key);
        }
    }
    left
}

/// From which `seq` each segment is read next: at the first row that is ready and was left, or after the last one.
pub(super) fn floors(rows: &[Candidate], chosen: &Chosen) -> Vec<(usize, i64)> {
    let mut is_done = vec![false; rows.len()];
    for &place in chosen.taken.iter().chain(&chosen.moved) {
        is_done[place] = true;
    }
    let mut floors: Vec<(usize, i64, bool)> = Vec::new();
    for (row, is_done) in rows.iter().zip(is_done) {
        if floors.last().is_none_or(|(place, ..)| *place != row.place) {
            floors.push((row.place, i64::MIN, false));
        }
        if let Some((_, floor, is_held)) = floors.last_mut().filter(|(.., is_held)| !is_held) {
            *is_held = row.ready && !is_done;
            *floor = row.seq.saturating_add(i64::from(!*is_held));
        }
    }
    floors
        .into_iter()
        .map(|(place, floor, _)| (place, floor))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of one segment: `a1` is the row of key `a` with `seq` 1. In capitals it is not ready.
    fn rows(names: &str) -> Vec<Candidate> {
        let row = |name: &str| {
            let (key, seq) = name.split_at(1);
            Candidate {
                share: 0,
                place: 0,
                version: name.to_owned(),
                id: Uuid::nil(),
                seq: seq.parse().expect("a number"),
                lane: 0,
                key: key.to_lowercase(),
                size: 10,
                ready: key.to_lowercase() == key,
                is_ours: false,
            }
        };
        names.split_whitespace().map(row).collect()
    }

    fn names(rows: &[Candidate], places: &[usize]) -> String {
        let names: Vec<&str> = places.iter().map(|place| rows[*place].version.as_str()).collect();
        names.join(" ")
    }

    fn taken(names_of_rows: &str, change: impl Fn(&mut KeyRows), bytes: i64) -> (String, String) {
        let rows = rows(names_of_rows);
        let mut keys = keys(&rows);
        keys.iter_mut().for_each(change);
        let chosen = choose(&rows, &keys, bytes);
        (names(&rows, &chosen.taken), names(&rows, &chosen.moved))
    }

    #[test]
    fn rows_are_taken_in_the_order_in_which_they_were_read() {
        assert_eq!(taken("a1 b2 a3", |_| {}, 99).0, "a1 b2 a3");
    }

    #[test]
    fn a_row_that_is_not_ready_ends_its_key_and_no_other() {
        assert_eq!(taken("a1 A2 b3 a4", |_| {}, 99).0, "a1 b3");
        assert_eq!(taken("A1 a2 b3", |_| {}, 99).0, "b3");
    }

    #[test]
    fn a_key_with_an_earlier_row_is_not_taken() {
        assert_eq!(taken("a1 a2", KeyRows::block, 99), (String::new(), String::new()));
    }

    #[test]
    fn rows_behind_one_that_was_tried_are_claimed_by_their_key() {
        let tried = |key: &mut KeyRows| key.limit(Some(2), None);
        assert_eq!(taken("a1 a3 a4", tried, 99), ("a1".into(), "a3 a4".into()));
    }

    #[test]
    fn rows_behind_one_without_a_destination_wait() {
        let unrouted = |key: &mut KeyRows| key.limit(None, Some(2));
        assert_eq!(taken("a1 a3 a4", unrouted, 99), ("a1".into(), String::new()));
    }

    #[test]
    fn a_cut_by_bytes_leaves_a_beginning_of_each_key() {
        assert_eq!(taken("a1 b2 a3", |_| {}, 20).0, "a1 b2");
        assert_eq!(taken("a1 b2 a3", |_| {}, 1).0, "a1", "one row is always taken");
    }

    #[test]
    fn rows_behind_a_locked_one_are_left() {
        let rows = rows("a1 b2 a3 b4");
        let left = without(&rows, &[0, 1, 2, 3], |row| row.version != "a1");
        assert_eq!(names(&rows, &left), "b2 b4");
    }

    #[test]
    fn a_segment_is_read_on_at_the_first_row_that_was_left() {
        let of = |names: &str, taken: &[usize]| {
            let chosen = Chosen {
                taken: taken.to_vec(),
                moved: Vec::new(),
            };
            floors(&rows(names), &chosen)
        };
        assert_eq!(of("a1 b2 a3", &[0, 2]), [(0, 2)]);
        assert_eq!(of("a1 b2 a3", &[0, 1, 2]), [(0, 4)]);
        assert_eq!(of("A1 B2", &[]), [(0, 3)], "rows in flight hold nothing up");
    }

    #[test]
    fn rows_that_this_claim_has_taken_end_no_key() {
        let mut rows = rows("A1 a2");
        rows[0].is_ours = true;
        let keys = keys(&rows);
        assert_eq!(choose(&rows, &keys, 99).taken, [1]);
    }
}
