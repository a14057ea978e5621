//! Whose turn it is: the rows that wait for one destination. Pure.
//!
//! Rows without a key go as they come. Rows of one key go one at a time, lowest `seq` first; the next
//! one's turn comes when the one before is [done](Turns::done), and if that was not delivered, what
//! waits behind it is handed back, so that nothing overtakes it here.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pillarbox::Delivery;
use uuid::Uuid;

use crate::held::{Lease, Room};

/// Namespace and ordering key.
pub(crate) type Key = Arc<(String, String)>;

/// What is needed to settle a row, whatever becomes of the rest of it.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    pub(crate) id: Uuid,
    pub(crate) lease: Arc<Lease>,
    pub(crate) attempts: u32,
    pub(crate) key: Option<Key>,
    pub(crate) room: Room,
    /// Does the row itself say where it goes?
    pub(crate) knows_destination: bool,
}

impl Ticket {
    /// How long the lease still holds.
    pub(crate) fn left(&self, now: Duration) -> Duration {
        self.lease.left(self.id, now)
    }
}

/// A claimed row on its way to a destination.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) ticket: Ticket,
    pub(crate) delivery: Delivery,
    /// When it came.
    pub(crate) came: Duration,
}

impl Row {
    pub(crate) fn new(delivery: Delivery, lease: &Arc<Lease>, came: Duration) -> Self {
        let event = &delivery.event;
        let key = event.ordering_key.as_ref();
        let ticket = Ticket {
            id: delivery.id,
            lease: Arc::clone(lease),
            attempts: delivery.attempts,
            key: key.map(|key| Arc::new((event.namespace.clone(), key.clone()))),
            room: Room::of(&delivery),
            knows_destination: event.destination.is_some(),
        };
        Self {
            ticket,
            delivery,
            came,
        }
    }
}

/// Rows waiting for one destination.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    ready: VecDeque<Turn>,
    /// Every key that has a turn or a row under way, and the rows that wait behind.
    keys: HashMap<Key, VecDeque<Row>>,
    waiting: usize,
}

#[derive(Debug)]
enum Turn {
    Free(Box<Row>),
    Key(Key),
}

impl Turns {
    /// Adds a row.
    pub(crate) fn push(&mut self, row: Row) {
        self.waiting += 1;
        let Some(key) = row.ticket.key.clone() else {
            self.ready.push_back(Turn::Free(Box::new(row)));
            return;
        };
        if let Some(behind) = self.keys.get_mut(&key) {
            // Almost always the end; a row that comes back from a retry goes before younger ones.
            let place = behind.partition_point(|other| other.delivery.seq < row.delivery.seq);
            behind.insert(place, row);
            return;
        }
        self.keys.insert(Arc::clone(&key), VecDeque::from([row]));
        self.ready.push_back(Turn::Key(key));
    }

    /// The next row to be sent, if any may be.
    pub(crate) fn next(&mut self) -> Option<Row> {
        loop {
            let row = match self.ready.pop_front()? {
                Turn::Free(row) => *row,
                Turn::Key(key) => match self.keys.get_mut(&key).and_then(VecDeque::pop_front) {
                    Some(row) => row,
                    None => continue,
                },
            };
            self.waiting -= 1;
            return Some(row);
        }
    }

    /// The row of this key that was under way has ended, and does not hold the others up.
    pub(crate) fn done(&mut self, key: &Key) {
        match self.keys.get(key) {
            Some(behind) if !behind.is_empty() => self.ready.push_back(Turn::Key(Arc::clone(key))),
            Some(_) => {
                self.keys.remove(key);
            }
            None => {}
        }
    }

    /// The row of this key that was under way comes back later: the rows behind it.
    pub(crate) fn blocked(&mut self, key: &Key) -> Vec<Row> {
        let behind: Vec<Row> = self.keys.remove(key).unwrap_or_default().into();
        self.waiting -= behind.len();
        behind
    }

    /// The rows without a key that wait, all but the first `keep`.
    pub(crate) fn surplus(&mut self, keep: usize) -> Vec<Row> {
        let mut surplus = Vec::new();
        let mut kept = 0;
        for turn in std::mem::take(&mut self.ready) {
            match turn {
                Turn::Free(row) if kept >= keep => surplus.push(*row),
                turn @ (Turn::Free(_) | Turn::Key(_)) => {
                    kept += usize::from(matches!(turn, Turn::Free(_)));
                    self.ready.push_back(turn);
                }
            }
        }
        self.waiting -= surplus.len();
        surplus
    }

    /// When the row came whose turn is next.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        match self.ready.front()? {
            Turn::Free(row) => Some(row.came),
            Turn::Key(key) => self.keys.get(key)?.front().map(|row| row.came),
        }
    }

    /// How many rows wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    /// Everything that waits. Keys with a row under way stay known.
    pub(crate) fn drain(&mut self) -> Vec<Row> {
        let mut rows = Vec::with_capacity(self.waiting);
        for turn in std::mem::take(&mut self.ready) {
            match turn {
                Turn::Free(row) => rows.push(*row),
                Turn::Key(key) => rows.extend(self.keys.remove(&key).unwrap_or_default()),
            }
        }
        for behind in self.keys.values_mut() {
            rows.extend(behind.drain(..));
        }
        self.waiting = 0;
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillarbox::Event;

    fn row(seq: i64, key: Option<&str>) -> Row {
        let mut event = Event::new("n", "t");
        event.ordering_key = key.map(str::to_owned);
        let lease = Arc::new(Lease::new(Uuid::nil(), Duration::ZERO, Duration::from_secs(60)));
        let delivery = Delivery {
            id: event.id,
            seq,
            event,
            attempts: 1,
            max_attempts: None,
            created_at: time::OffsetDateTime::UNIX_EPOCH,
            claim: Uuid::nil(),
            recovered: false,
        };
        Row::new(delivery, &lease, Duration::ZERO)
    }

    fn turns(rows: &[(i64, Option<&str>)]) -> Turns {
        let mut turns = Turns::default();
        for (seq, key) in rows {
            turns.push(row(*seq, *key));
        }
        turns
    }

    fn all(turns: &mut Turns) -> Vec<i64> {
        std::iter::from_fn(|| turns.next())
            .map(|row| row.delivery.seq)
            .collect()
    }

    fn key(name: &str) -> Key {
        Arc::new(("n".to_owned(), name.to_owned()))
    }

    #[test]
    fn rows_without_a_key_go_as_they_come() {
        assert_eq!(all(&mut turns(&[(3, None), (1, None), (2, None)])), [3, 1, 2]);
    }

    #[test]
    fn one_row_of_a_key_at_a_time_and_the_lowest_seq_first() {
        let mut turns = turns(&[(2, Some("k")), (3, Some("k")), (4, Some("other")), (1, Some("k"))]);
        assert_eq!(all(&mut turns), [1, 4]);
        turns.done(&key("k"));
        assert_eq!(all(&mut turns), [2]);
        turns.done(&key("k"));
        assert_eq!(all(&mut turns), [3]);
        turns.done(&key("k"));
        assert_eq!((all(&mut turns), turns.len(), turns.keys.len()), (vec![], 0, 1));
    }

    #[test]
    fn what_waits_behind_a_row_that_comes_back_is_handed_back() {
        let mut turns = turns(&[(1, Some("k")), (2, Some("k")), (3, Some("k")), (4, None)]);
        assert_eq!(all(&mut turns), [1, 4]);
        let behind: Vec<i64> = turns
            .blocked(&key("k"))
            .iter()
            .map(|row| row.delivery.seq)
            .collect();
        assert_eq!(behind, [2, 3]);
        turns.push(row(5, Some("k")));
        assert_eq!(all(&mut turns), [5]);
    }

    #[test]
    fn the_surplus_is_what_has_no_key_and_would_wait_longest() {
        let mut turns = turns(&[(1, None), (2, Some("k")), (3, None), (4, Some("k")), (5, None)]);
        let surplus: Vec<i64> = turns.surplus(1).iter().map(|row| row.delivery.seq).collect();
        assert_eq!((surplus, turns.len()), (vec![3, 5], 3));
        assert_eq!(all(&mut turns), [1, 2]);
    }

    #[test]
    fn a_drain_hands_back_everything_and_forgets_no_row_under_way() {
        let mut turns = turns(&[(1, Some("k")), (2, Some("k")), (3, None), (4, Some("l"))]);
        assert_eq!(turns.next().map(|row| row.delivery.seq), Some(1));
        let mut drained: Vec<i64> = turns.drain().iter().map(|row| row.delivery.seq).collect();
        drained.sort_unstable();
        assert_eq!((drained, turns.len()), (vec![2, 3, 4], 0));
        turns.push(row(5, Some("k")));
        assert!(
            all(&mut turns).is_empty(),
            "the first of the key is still under way"
        );
    }
}
