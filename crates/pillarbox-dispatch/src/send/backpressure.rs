//! Whether so many rows wait for one destination, for so long, that they take the room of the others.
//!
//! Many destinations that hang would in time fill all the room there is. So a destination that has more than its
//! share and cannot get rid of it hands back what it cannot send soon, unsent, and takes no more until half of its
//! share is free. A destination that is merely busy keeps what it has, and one that is alone may have it all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long rows may wait before their destination counts as slow.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the claimer sees of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notice(Arc<AtomicBool>);

impl Notice {
    /// Should rows be turned away?
    pub(crate) fn is_crowded(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Crowd {
    share: usize,
    notice: Notice,
}

impl Crowd {
    /// For one of so many destinations that share the room.
    pub(crate) fn new(room: usize, destinations: usize) -> Self {
        let share = match destinations {
            0 | 1 => usize::MAX,
            many => (room / many).max(1),
        };
        Self {
            share,
            notice: Notice::default(),
        }
    }

    pub(crate) fn notice(&self) -> Notice {
        self.notice.clone()
    }

    /// Is it crowded, with so many rows here, of which the first that waits came at `oldest`?
    pub(crate) fn is_crowded(&mut self, rows: usize, oldest: Option<Duration>, now: Duration) -> bool {
        let was = self.notice.is_crowded();
        let slow = || oldest.is_some_and(|came| now.saturating_sub(came) > PATIENCE);
        let is = if was {
            rows > self.share / 2
        } else {
            rows > self.share && slow()
        };
        self.notice.0.store(is, Ordering::Release);
        is
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn a_destination_that_is_alone_may_have_all_the_room() {
        assert!(!Crowd::new(4000, 1).is_crowded(4000, Some(Duration::ZERO), NOW));
    }

    #[test]
    fn one_that_is_merely_busy_keeps_what_it_has() {
        assert!(!Crowd::new(4000, 2).is_crowded(4000, Some(Duration::from_secs(96)), NOW));
    }

    #[test]
    fn a_slow_one_is_crowded_until_half_of_its_share_is_free() {
        let mut crowd = Crowd::new(4000, 2);
        assert!(!crowd.is_crowded(2000, Some(Duration::ZERO), NOW));
        assert!(crowd.is_crowded(2001, Some(Duration::ZERO), NOW) && crowd.notice().is_crowded());
        assert!(crowd.is_crowded(1001, None, NOW));
        assert!(!crowd.is_crowded(1000, None, NOW) && !crowd.notice().is_crowded());
    }
}
