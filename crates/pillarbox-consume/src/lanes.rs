//! Who waits behind whom: messages of one key, one after another.
//!
//! A lane is open while a task works on it. Whoever comes meanwhile waits in it; when nobody does, it is closed and takes
//! no memory.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) struct Lanes<L, M> {
    open: Mutex<HashMap<L, VecDeque<M>>>,
}

impl<L: Eq + Hash + Clone, M> Lanes<L, M> {
    pub(crate) fn new() -> Self {
        Self {
            open: Mutex::new(HashMap::new()),
        }
    }

    /// Lines a message up. Returned if it is the first: the lane is open now, and the caller works on it.
    pub(crate) fn enter(&self, lane: &L, message: M) -> Option<M> {
        match self.open().entry(lane.clone()) {
            Entry::Occupied(mut waiting) => {
                waiting.get_mut().push_back(message);
                None
            }
            Entry::Vacant(closed) => {
                closed.insert(VecDeque::new());
                Some(message)
            }
        }
    }

    /// The next message of a lane; if there is none the lane is closed.
    pub(crate) fn next(&self, lane: &L) -> Option<M> {
        let mut open = self.open();
        let next = open.get_mut(lane)?.pop_front();
        if next.is_none() {
            open.remove(lane);
        }
        next
    }

    fn open(&self) -> MutexGuard<'_, HashMap<L, VecDeque<M>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lane_is_worked_on_in_order_and_another_beside_it() {
        let lanes = Lanes::new();
        assert_eq!(lanes.enter(&"a", 1), Some(1));
        assert_eq!(lanes.enter(&"a", 2), None);
        assert_eq!(lanes.enter(&"b", 3), Some(3));
        assert_eq!(lanes.enter(&"a", 4), None);
        assert_eq!(lanes.next(&"a"), Some(2));
        assert_eq!(lanes.next(&"a"), Some(4));
        assert_eq!(lanes.next(&"a"), None);
        assert_eq!(lanes.enter(&"a", 5), Some(5));
    }

    #[test]
    fn a_lane_without_anybody_takes_no_memory() {
        let lanes = Lanes::new();
        for key in 0..100 {
            assert_eq!(lanes.enter(&key, ()), Some(()));
            assert_eq!(lanes.next(&key), None);
        }
        assert!(lanes.open().is_empty());
    }
}
