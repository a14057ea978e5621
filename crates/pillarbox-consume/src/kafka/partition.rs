//! Tracks which offset of a partition can be committed.
//!
//! Offsets have gaps (transactions, compaction), so the next offset cannot be computed. The partition remembers which received
//! records are not done. Everything below the lowest of them is done; if there is none, everything received is done.
//!
//! When another member takes a partition, it is *revoked* first: no handler starts, and the subscription waits for running
//! ones. A *lost* partition belongs to another member, and nothing about it is committed here any more.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Who may work on the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Assignment {
    Ours,
    Revoked,
    Lost,
}

/// A partition during one assignment to this member. A second assignment creates a new one.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) topic: String,
    pub(super) number: i32,
    state: Mutex<State>,
    idle: Notify,
}

#[derive(Debug)]
struct State {
    assignment: Assignment,
    /// Received records that are not done.
    open: BTreeSet<i64>,
    /// The offset after the last received record.
    next: Option<i64>,
    /// The offset that was last stored.
    stored: Option<i64>,
    /// The number of running handlers.
    running: usize,
}

impl Partition {
    pub(super) fn new(topic: &str, number: i32) -> Self {
        Self {
            topic: topic.to_owned(),
            number,
            state: Mutex::new(State {
                assignment: Assignment::Ours,
                open: BTreeSet::new(),
                next: None,
                stored: None,
                running: 0,
            }),
            idle: Notify::new(),
        }
    }

    /// Notes a received record. False if the partition is revoked or lost.
    pub(super) fn receive(&self, offset: i64) -> bool {
        let mut state = self.state();
        if state.assignment != Assignment::Ours {
            return false;
        }
        state.open.insert(offset);
        state.next = Some(offset + 1);
        true
    }

    /// A handler is about to start. False if it must not.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state();
        let may = state.assignment == Assignment::Ours;
        state.running += usize::from(may);
        may
    }

    /// A handler has ended.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.running -= 1;
        if state.running == 0 {
            self.idle.notify_waiters();
        }
    }

    /// Notes that a record is done.
    pub(super) fn done(&self, offset: i64) {
        self.state().open.remove(&offset);
    }

    /// The offset below which everything is done, if it was not stored before and the partition is not lost.
    pub(super) fn offset_to_store(&self) -> Option<i64> {
        let mut state = self.state();
        let below = state.open.first().copied().or(state.next)?;
        if state.assignment == Assignment::Lost || state.stored == Some(below) {
            return None;
        }
        state.stored = Some(below);
        Some(below)
    }

    /// Revokes the partition: no handler starts any more.
    pub(super) fn revoke(&self) {
        let mut state = self.state();
        if state.assignment == Assignment::Ours {
            state.assignment = Assignment::Revoked;
        }
    }

    /// The partition belongs to another member.
    pub(super) fn lose(&self) {
        self.state().assignment = Assignment::Lost;
    }

    /// Waits until no handler is running.
    pub(super) async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.state().running == 0 {
                return;
            }
            idle.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    fn partition() -> Partition {
        Partition::new("orders", 0)
    }

    #[test]
    fn a_record_that_is_not_done_holds_back_the_offset() {
        let partition = partition();
        assert_eq!(partition.offset_to_store(), None, "nothing received");
        for offset in [5, 6, 9] {
            assert!(partition.receive(offset));
        }
        assert_eq!(partition.offset_to_store(), Some(5));
        partition.done(6);
        partition.done(9);
        assert_eq!(partition.offset_to_store(), None, "nothing new");
        partition.done(5);
        assert_eq!(partition.offset_to_store(), Some(10), "gaps are skipped");
    }

    #[test]
    fn on_a_revoked_partition_nothing_starts_and_what_ends_still_counts() {
        let partition = partition();
        assert!(partition.receive(1) && partition.begin());
        partition.revoke();
        assert!(!partition.begin() && !partition.receive(2));
        assert!(partition.idle().now_or_never().is_none());
        partition.done(1);
        partition.end();
        assert!(partition.idle().now_or_never().is_some());
        assert_eq!(partition.offset_to_store(), Some(2));
    }

    #[test]
    fn what_ends_on_a_lost_partition_is_not_stored() {
        let partition = partition();
        assert!(partition.receive(1) && partition.begin());
        partition.lose();
        partition.revoke();
        partition.done(1);
        partition.end();
        assert_eq!(partition.offset_to_store(), None);
        assert!(!partition.begin());
    }

    #[tokio::test]
    async fn a_handover_is_woken_by_the_last_handler() {
        let partition = partition();
        assert!(partition.begin() && partition.begin());
        let mut idle = Box::pin(partition.idle());
        assert!(idle.as_mut().now_or_never().is_none());
        partition.end();
        assert!(idle.as_mut().now_or_never().is_none());
        partition.end();
        idle.await;
    }

    proptest! {
        #[test]
        fn everything_below_a_stored_offset_is_done(
            steps in proptest::collection::btree_set(0i64..200, 1..60),
            order in proptest::collection::vec(proptest::prelude::any::<u16>(), 60),
        ) {
            let partition = partition();
            let mut open: Vec<i64> = steps.iter().copied().collect();
            let last = *open.last().unwrap();
            for offset in &open {
                partition.receive(*offset);
            }
            let mut stored = 0;
            for pick in order {
                if open.is_empty() {
                    break;
                }
                let offset = open.remove(usize::from(pick) % open.len());
                partition.done(offset);
                if let Some(below) = partition.offset_to_store() {
                    prop_assert!(below >= stored, "it never goes back");
                    prop_assert!(open.iter().all(|unfinished| *unfinished >= below));
                    stored = below;
                }
            }
            if open.is_empty() {
                prop_assert_eq!(stored, last + 1);
            }
        }
    }
}
