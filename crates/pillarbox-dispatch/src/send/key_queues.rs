//! The rows that wait for one destination, and which of them is next. Pure.
//!
//! Rows without a key are sent in the order of their arrival, suspects first. Rows of one key are sent one at a time, lowest
//! `seq` first: the next may start when the one before is [done](KeyQueues::done). If that one was not delivered, the rows behind it
//! are released, so that none overtakes it. With `pipelined` the destination keeps the order, and the next row may start
//! when the one before has started.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pillarbox::Delivery;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::policy::Policy;
use crate::worker::in_flight::{Lease, Room};

/// Namespace and ordering key.
pub(crate) type Key = Arc<(String, String)>;

/// The key that orders a row; `None` for a row that has left its lane, although its event still has the key.
pub(crate) fn key(delivery: &Delivery) -> Option<Key> {
    let event = &delivery.event;
    let key = event.ordering_key.as_ref().filter(|_| delivery.lane.is_some())?;
    Some(Arc::new((event.namespace.clone(), key.clone())))
}

/// What is needed to settle a row.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    pub(crate) id: Uuid,
    pub(crate) event_id: Uuid,
    pub(crate) lease: Arc<Lease>,
    pub(crate) attempts: u32,
    pub(crate) policy: Arc<Policy>,
    pub(crate) key: Option<Key>,
    pub(crate) room: Room,
    /// When the row was written, by the database's clock.
    pub(crate) created_at: OffsetDateTime,
    /// Is the row kept after its delivery?
    pub(crate) keep: bool,
    /// Does the stored row have its destination?
    pub(crate) has_destination: bool,
}

impl Ticket {
    /// How long until the lease expires.
    pub(crate) fn left(&self, now: Duration) -> Duration {
        self.lease.left(self.id, now)
    }
}

/// A claimed row and its policy at one destination.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) ticket: Ticket,
    pub(crate) delivery: Delivery,
    /// When the router passed it on.
    pub(crate) arrived: Duration,
}

impl Row {
    pub(crate) fn new(
        delivery: Delivery,
        lease: &Arc<Lease>,
        policy: Arc<Policy>,
        arrived: Duration,
    ) -> Self {
        let ticket = Ticket {
            id: delivery.id,
            event_id: delivery.event.id,
            lease: Arc::clone(lease),
            attempts: delivery.attempts,
            policy,
            key: key(&delivery),
            room: Room::of(&delivery),
            created_at: delivery.created_at,
            keep: true,
            has_destination: delivery.event.destination.is_some(),
        };
        Self {
            ticket,
            delivery,
            arrived,
        }
    }
}

/// Rows waiting for one destination.
#[derive(Debug, Default)]
pub(crate) struct KeyQueues {
    ready: VecDeque<Slot>,
    /// Every key with waiting rows or running attempts.
    keys: HashMap<Key, KeyQueue>,
    waiting: usize,
    now: Duration,
}

#[derive(Debug)]
enum Slot {
    Free(Box<Row>),
    /// The key whose next row may start, and since when.
    Key(Key, Duration),
}

/// The rows of one key.
#[derive(Debug, Default)]
struct KeyQueue {
    waiting: VecDeque<Row>,
    running: usize,
    /// Is it in `ready`?
    has_slot: bool,
}

impl KeyQueue {
    /// May the next row start?
    fn may_start(&self) -> bool {
        match self.waiting.front() {
            Some(row) => self.running == 0 || row.ticket.policy.pipelined,
            None => false,
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running == 0
    }
}

impl KeyQueues {
    /// Adds a row.
    pub(crate) fn push(&mut self, row: Row) {
        self.waiting += 1;
        let Some(key) = row.ticket.key.clone() else {
            // Suspects first: a crash while one waits would count as its attempt.
            let is_suspect = |slot: &&Slot| matches!(slot, Slot::Free(row) if row.delivery.suspect);
            let place = match row.delivery.suspect {
                true => self.ready.iter().take_while(is_suspect).count(),
                false => self.ready.len(),
            };
            self.ready.insert(place, Slot::Free(Box::new(row)));
            return;
        };
        let queue = self.keys.entry(Arc::clone(&key)).or_default();
        // Almost always at the end; a retried row goes before younger ones.
        let place = queue
            .waiting
            .partition_point(|other| other.delivery.seq < row.delivery.seq);
        queue.waiting.insert(place, row);
        self.give_slot(&key);
    }

    /// The next row to send, if one may start.
    pub(crate) fn next(&mut self) -> Option<Row> {
        loop {
            let row = match self.ready.pop_front()? {
                Slot::Free(row) => *row,
                Slot::Key(key, _) => {
                    let Some(queue) = self.keys.get_mut(&key) else {
                        continue;
                    };
                    queue.has_slot = false;
                    let Some(row) = queue.waiting.pop_front() else {
                        continue;
                    };
                    queue.running += 1;
                    self.give_slot(&key);
                    row
                }
            };
            self.waiting -= 1;
            return Some(row);
        }
    }

    /// Makes the row with the fewest attempts the next. Looks at every row that may start, of which there must be few.
    pub(crate) fn prefer_fewest_attempts(&mut self) {
        let attempts = |slot: &Slot| match slot {
            Slot::Free(row) => row.ticket.attempts,
            Slot::Key(key, _) => match self.keys.get(key).and_then(|queue| queue.waiting.front()) {
                Some(row) => row.ticket.attempts,
                None => u32::MAX,
            },
        };
        let fewest = (0..self.ready.len()).min_by_key(|&place| attempts(&self.ready[place]));
        if let Some(slot) = fewest.and_then(|place| self.ready.remove(place)) {
            self.ready.push_front(slot);
        }
    }

    /// A row that was just taken out is not sent: it goes back to the store. Returns the rows of its key behind it.
    pub(crate) fn unsent(&mut self, row: &Row) -> Vec<Row> {
        match &row.ticket.key {
            Some(key) => self.blocked(key),
            None => Vec::new(),
        }
    }

    /// A running row of this key has ended, and the next may start.
    pub(crate) fn done(&mut self, key: &Key) {
        self.end(key);
        self.give_slot(key);
    }

    /// A running row of this key has ended and blocks its key. Returns the rows behind it.
    pub(crate) fn blocked(&mut self, key: &Key) -> Vec<Row> {
        let behind: Vec<Row> = match self.keys.get_mut(key) {
            Some(queue) => queue.waiting.drain(..).collect(),
            None => Vec::new(),
        };
        self.waiting -= behind.len();
        self.end(key);
        behind
    }

    /// Takes out the rows that would wait longest. The first `keep` rows and keys stay, of each key only its next row.
    pub(crate) fn surplus(&mut self, keep: usize) -> Vec<Row> {
        let mut surplus = Vec::new();
        let mut kept = VecDeque::new();
        for slot in std::mem::take(&mut self.ready) {
            let keeps = kept.len() < keep;
            match slot {
                Slot::Free(row) if !keeps => surplus.push(*row),
                Slot::Key(key, _) if !keeps => {
                    if let Some(queue) = self.keys.get_mut(&key) {
                        queue.has_slot = false;
                    }
                }
                slot @ (Slot::Free(_) | Slot::Key(..)) => kept.push_back(slot),
            }
        }
        for queue in self.keys.values_mut() {
            let front = usize::from(queue.has_slot).min(queue.waiting.len());
            surplus.extend(queue.waiting.drain(front..));
        }
        self.keys.retain(|_, queue| !queue.is_idle());
        self.ready = kept;
        self.waiting -= surplus.len();
        surplus
    }

    /// Since when the next row to be sent may start. A row of a key waits for the one before it, which is not counted.
    pub(crate) fn ready_since(&self) -> Option<Duration> {
        match self.ready.front()? {
            Slot::Free(row) => Some(row.arrived),
            Slot::Key(_, since) => Some(*since),
        }
    }

    /// Sets the time at which rows that may start now may start.
    pub(crate) fn set_now(&mut self, now: Duration) {
        self.now = now;
    }

    /// May a row start?
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// How many rows wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    /// Takes out all waiting rows but suspects. A suspect is always among the first of its key.
    pub(crate) fn drain_ordinary(&mut self) -> Vec<Row> {
        let mut rows = Vec::new();
        for slot in std::mem::take(&mut self.ready) {
            match slot {
                Slot::Free(row) if !row.delivery.suspect => rows.push(*row),
                slot @ (Slot::Free(_) | Slot::Key(..)) => self.ready.push_back(slot),
            }
        }
        for queue in self.keys.values_mut() {
            let suspects = queue.waiting.iter().take_while(|row| row.delivery.suspect);
            let suspects = suspects.count();
            rows.extend(queue.waiting.drain(suspects..));
            queue.has_slot &= suspects > 0;
        }
        let keys = &self.keys;
        self.ready.retain(|slot| match slot {
            Slot::Free(_) => true,
            Slot::Key(key, _) => keys.get(key).is_some_and(|queue| queue.has_slot),
        });
        self.keys.retain(|_, queue| !queue.is_idle());
        self.waiting -= rows.len();
        rows
    }

    /// Takes out all waiting rows. Keys with a running row are kept.
    pub(crate) fn drain(&mut self) -> Vec<Row> {
        let mut rows = Vec::with_capacity(self.waiting);
        for slot in std::mem::take(&mut self.ready) {
            if let Slot::Free(row) = slot {
                rows.push(*row);
            }
        }
        for queue in self.keys.values_mut() {
            queue.has_slot = false;
            rows.extend(queue.waiting.drain(..));
        }
        self.keys.retain(|_, queue| !queue.is_idle());
        self.waiting = 0;
        rows
    }

    fn end(&mut self, key: &Key) {
        let Some(queue) = self.keys.get_mut(key) else {
            return;
        };
        queue.running = queue.running.saturating_sub(1);
        if queue.is_idle() {
            self.keys.remove(key);
        }
    }

    fn give_slot(&mut self, key: &Key) {
        if let Some(queue) = self.keys.get_mut(key)
            && !queue.has_slot
            && queue.may_start()
        {
            queue.has_slot = true;
            self.ready.push_back(Slot::Key(Arc::clone(key), self.now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillarbox::Event;

    fn policy(pipelined: bool) -> Arc<Policy> {
        Arc::new(Policy::default().pipelined(pipelined))
    }

    fn row(seq: i64, key: Option<&str>, pipelined: bool) -> Row {
        let mut event = Event::new("n", "t");
        event.ordering_key = key.map(str::to_owned);
        let lease = Arc::new(Lease::new(Uuid::nil(), Duration::ZERO, Duration::from_secs(60)));
        let delivery = Delivery {
            id: event.id,
            seq,
            event,
            lane: key.map(|_| 7),
            attempts: 1,
            max_attempts: None,
            created_at: time::OffsetDateTime::UNIX_EPOCH,
            claim: Uuid::nil(),
            suspect: false,
            contested: false,
        };
        Row::new(delivery, &lease, policy(pipelined), Duration::ZERO)
    }

    fn queues(rows: &[(i64, Option<&str>)]) -> KeyQueues {
        let mut queues = KeyQueues::default();
        for (seq, key) in rows {
            queues.push(row(*seq, *key, false));
        }
        queues
    }

    fn seqs(rows: impl IntoIterator<Item = Row>) -> Vec<i64> {
        rows.into_iter().map(|row| row.delivery.seq).collect()
    }

    fn all(queues: &mut KeyQueues) -> Vec<i64> {
        seqs(std::iter::from_fn(|| queues.next()))
    }

    fn key(name: &str) -> Key {
        Arc::new(("n".to_owned(), name.to_owned()))
    }

    #[test]
    fn rows_without_a_key_are_sent_in_the_order_of_arrival() {
        assert_eq!(all(&mut queues(&[(3, None), (1, None), (2, None)])), [3, 1, 2]);
    }

    #[test]
    fn a_row_that_has_left_its_lane_is_sent_in_the_order_of_arrival() {
        let mut queues = queues(&[(1, Some("k"))]);
        let mut free = row(2, Some("k"), false);
        free.delivery.lane = None;
        let free = Row::new(free.delivery, &free.ticket.lease, policy(false), Duration::ZERO);
        queues.push(free);
        assert_eq!(all(&mut queues), [1, 2]);
    }

    #[test]
    fn rows_of_a_key_are_sent_one_at_a_time_by_seq() {
        let mut queues = queues(&[(2, Some("k")), (3, Some("k")), (4, Some("other")), (1, Some("k"))]);
        assert_eq!(all(&mut queues), [1, 4]);
        queues.done(&key("k"));
        assert_eq!(all(&mut queues), [2]);
        queues.done(&key("k"));
        assert_eq!(all(&mut queues), [3]);
        queues.done(&key("k"));
        assert_eq!(
            (all(&mut queues), queues.len(), queues.keys.len()),
            (vec![], 0, 1)
        );
    }

    #[test]
    fn pipelined_rows_of_a_key_start_in_order_without_waiting() {
        let mut queues = KeyQueues::default();
        for (seq, key) in [(2, "k"), (1, "k"), (9, "l"), (3, "k")] {
            queues.push(row(seq, Some(key), true));
        }
        let sent = all(&mut queues);
        let of_key: Vec<i64> = sent.iter().copied().filter(|seq| *seq < 9).collect();
        assert_eq!((of_key, sent.len()), (vec![1, 2, 3], 4));
        for _ in 0..3 {
            queues.done(&key("k"));
        }
        assert_eq!(queues.keys.len(), 1);
    }

    #[test]
    fn rows_behind_a_row_that_blocks_its_key_are_taken_out() {
        let mut queues = queues(&[(1, Some("k")), (2, Some("k")), (3, Some("k")), (4, None)]);
        assert_eq!(all(&mut queues), [1, 4]);
        assert_eq!(seqs(queues.blocked(&key("k"))), [2, 3]);
        queues.push(row(5, Some("k"), false));
        assert_eq!(all(&mut queues), [5]);
    }

    #[test]
    fn the_surplus_waits_longest_and_never_precedes_a_row_that_stays() {
        let mut queues = queues(&[(1, None), (2, Some("k")), (3, None), (4, Some("k")), (5, None)]);
        assert_eq!(seqs(queues.surplus(2)), [3, 5, 4]);
        assert_eq!((queues.len(), all(&mut queues)), (2, vec![1, 2]));
    }

    #[test]
    fn a_surplus_has_the_rows_behind_a_running_one() {
        let mut queues = queues(&[(1, Some("k")), (2, Some("k")), (3, Some("l"))]);
        assert_eq!(queues.next().map(|row| row.delivery.seq), Some(1));
        let mut surplus = seqs(queues.surplus(0));
        surplus.sort_unstable();
        assert_eq!((surplus, queues.len()), (vec![2, 3], 0));
        queues.done(&key("k"));
        assert!(queues.keys.is_empty());
    }

    #[test]
    fn suspects_stay_when_all_other_rows_are_taken_out() {
        let suspect = |seq, key| {
            let mut row = row(seq, key, false);
            row.delivery.suspect = true;
            row
        };
        let mut queues = queues(&[(2, Some("k")), (3, None), (5, Some("l")), (6, Some("l"))]);
        queues.push(suspect(1, Some("k")));
        queues.push(suspect(4, None));
        let mut drained = seqs(queues.drain_ordinary());
        drained.sort_unstable();
        assert_eq!((drained, queues.len()), (vec![2, 3, 5, 6], 2));
        assert_eq!(all(&mut queues), [4, 1]);
        assert!(!queues.has_ready());
    }

    #[test]
    fn a_row_of_a_key_is_ready_when_the_one_before_is_done() {
        let mut queues = queues(&[(1, Some("k")), (2, Some("k"))]);
        assert_eq!(queues.ready_since(), Some(Duration::ZERO));
        queues.next();
        assert_eq!(queues.ready_since(), None);
        queues.set_now(Duration::from_secs(9));
        queues.done(&key("k"));
        assert_eq!(queues.ready_since(), Some(Duration::from_secs(9)));
    }

    #[test]
    fn a_drain_takes_all_waiting_rows_and_keeps_running_ones() {
        let mut queues = queues(&[(1, Some("k")), (2, Some("k")), (3, None), (4, Some("l"))]);
        assert_eq!(queues.next().map(|row| row.delivery.seq), Some(1));
        let mut drained = seqs(queues.drain());
        drained.sort_unstable();
        assert_eq!((drained, queues.len()), (vec![2, 3, 4], 0));
        queues.push(row(5, Some("k"), false));
        assert!(
            all(&mut queues).is_empty(),
            "the first of the key is still running"
        );
    }
}
