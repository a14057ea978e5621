//! Queues the messages of each ordering key, so that one task handles them one after another.
//!
//! A key has a queue while a task works on it. The queue is removed when it is empty, so idle keys take no memory.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) struct KeyQueues<K, M> {
    queues: Mutex<HashMap<K, VecDeque<M>>>,
}

impl<K: Eq + Hash + Clone, M> KeyQueues<K, M> {
    pub(crate) fn new() -> Self {
        Self {
            queues: Mutex::new(HashMap::new()),
        }
    }

    /// Queues a message behind the others of its key. Returns the message if the key had no queue: the caller then starts the
    /// key's task with it.
    pub(crate) fn push(&self, key: &K, message: M) -> Option<M> {
        match self.queues().entry(key.clone()) {
            Entry::Occupied(mut queue) => {
                queue.get_mut().push_back(message);
                None
            }
            Entry::Vacant(vacant) => {
                vacant.insert(VecDeque::new());
                Some(message)
            }
        }
    }

    /// The key's next message. Removes the queue if it is empty.
    pub(crate) fn pop(&self, key: &K) -> Option<M> {
        let mut queues = self.queues();
        let next = queues.get_mut(key)?.pop_front();
        if next.is_none() {
            queues.remove(key);
        }
        next
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<K, VecDeque<M>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_key_keep_their_order_and_other_keys_run_beside_it() {
        let queues = KeyQueues::new();
        assert_eq!(queues.push(&"a", 1), Some(1));
        assert_eq!(queues.push(&"a", 2), None);
        assert_eq!(queues.push(&"b", 3), Some(3));
        assert_eq!(queues.push(&"a", 4), None);
        assert_eq!(queues.pop(&"a"), Some(2));
        assert_eq!(queues.pop(&"a"), Some(4));
        assert_eq!(queues.pop(&"a"), None);
        assert_eq!(queues.push(&"a", 5), Some(5));
    }

    #[test]
    fn an_idle_key_takes_no_memory() {
        let queues = KeyQueues::new();
        for key in 0..100 {
            assert_eq!(queues.push(&key, ()), Some(()));
            assert_eq!(queues.pop(&key), None);
        }
        assert!(queues.queues().is_empty());
    }
}
