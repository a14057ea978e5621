//! How far a partition is done.
//!
//! Offsets have holes (transactions, compaction), so that "the next one" is not a number to count to. What is known is
//! which records came and are not done yet: everything below the lowest of them is done, and if there is none, everything
//! that came.
//!
//! A partition that is about to go to another member is *leaving*: no handler starts on it any more, and whoever hands it
//! over waits for those that are at work. One that is *gone* is somebody else's, and whatever we still do about it counts
//! for nothing.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Whose the partition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    Leaving,
    Gone,
}

/// A partition for as long as it is assigned to us. Assigned again, it is another one.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) topic: String,
    pub(super) number: i32,
    state: Mutex<State>,
    idle: Notify,
}

#[derive(Debug)]
struct State {
    whose: Whose,
    /// Records that came and are not done.
    open: BTreeSet<i64>,
    /// The offset after the last record that came.
    next: Option<i64>,
    /// What was last said to be done.
    said: Option<i64>,
    /// How many handlers are at work.
    at_work: usize,
}

impl Partition {
    pub(super) fn new(topic: &str, number: i32) -> Self {
        Self {
            topic: topic.to_owned(),
            number,
            state: Mutex::new(State {
                whose: Whose::Ours,
                open: BTreeSet::new(),
                next: None,
                said: None,
                at_work: 0,
            }),
            idle: Notify::new(),
        }
    }

    /// A record came. False if the partition is not ours any more.
    pub(super) fn came(&self, offset: i64) -> bool {
        let mut state = self.state();
        if state.whose != Whose::Ours {
            return false;
        }
        state.open.insert(offset);
        state.next = Some(offset + 1);
        true
    }

    /// A handler is about to start. False if it must not.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state();
        let may = state.whose == Whose::Ours;
        state.at_work += usize::from(may);
        may
    }

    /// A handler has ended.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.at_work -= 1;
        if state.at_work == 0 {
            self.idle.notify_waiters();
        }
    }

    /// A record is done.
    pub(super) fn done(&self, offset: i64) {
        self.state().open.remove(&offset);
    }

    /// Everything below this offset is done, if that is news and still ours to say.
    pub(super) fn news(&self) -> Option<i64> {
        let mut state = self.state();
        let below = state.open.first().copied().or(state.next)?;
        if state.whose == Whose::Gone || state.said == Some(below) {
            return None;
        }
        state.said = Some(below);
        Some(below)
    }

    /// No handler starts any more.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        if state.whose == Whose::Ours {
            state.whose = Whose::Leaving;
        }
    }

    /// It is somebody else's.
    pub(super) fn gone(&self) {
        self.state().whose = Whose::Gone;
    }

    /// Waits until no handler is at work.
    pub(super) async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.state().at_work == 0 {
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
    fn a_record_that_is_not_done_holds_back_those_after_it() {
        let partition = partition();
        assert_eq!(partition.news(), None, "nothing came");
        for offset in [5, 6, 9] {
            assert!(partition.came(offset));
        }
        assert_eq!(partition.news(), Some(5));
        partition.done(6);
        partition.done(9);
        assert_eq!(partition.news(), None, "no news");
        partition.done(5);
        assert_eq!(partition.news(), Some(10), "holes are nobody's");
    }

    #[test]
    fn on_a_partition_that_leaves_nothing_starts_and_what_ends_still_counts() {
        let partition = partition();
        assert!(partition.came(1) && partition.begin());
        partition.leave();
        assert!(!partition.begin() && !partition.came(2));
        assert!(partition.idle().now_or_never().is_none());
        partition.done(1);
        partition.end();
        assert!(partition.idle().now_or_never().is_some());
        assert_eq!(partition.news(), Some(2));
    }

    #[test]
    fn what_ends_on_a_partition_that_is_gone_counts_for_nothing() {
        let partition = partition();
        assert!(partition.came(1) && partition.begin());
        partition.gone();
        partition.leave();
        partition.done(1);
        partition.end();
        assert_eq!(partition.news(), None);
        assert!(!partition.begin());
    }

    #[tokio::test]
    async fn whoever_hands_over_is_woken_by_the_last_handler() {
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
        fn what_is_said_to_be_done_is_done(
            steps in proptest::collection::btree_set(0i64..200, 1..60),
            order in proptest::collection::vec(proptest::prelude::any::<u16>(), 60),
        ) {
            let partition = partition();
            let mut open: Vec<i64> = steps.iter().copied().collect();
            let last = *open.last().unwrap();
            for offset in &open {
                partition.came(*offset);
            }
            let mut said = 0;
            for pick in order {
                if open.is_empty() {
                    break;
                }
                let offset = open.remove(usize::from(pick) % open.len());
                partition.done(offset);
                if let Some(below) = partition.news() {
                    prop_assert!(below >= said, "it never goes back");
                    prop_assert!(open.iter().all(|unfinished| *unfinished >= below));
                    said = below;
                }
            }
            if open.is_empty() {
                prop_assert_eq!(said, last + 1);
            }
        }
    }
}
