//! When a slow destination has to release rows, so that others have room. Pure.
//!
//! Destinations share the room of a worker, and a few that hang would fill it. A destination with more than its share
//! that cannot send it soon releases the surplus. It takes no more until half of its share is free. A busy destination
//! keeps its rows, and a single destination may use all the room.

use std::time::Duration;

/// How long rows may wait before their destination counts as slow.
const SLOW: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct Backpressure {
    share: usize,
    active: bool,
}

impl Backpressure {
    /// For one of `destinations` that share room for `max_in_flight` rows.
    pub(crate) fn new(max_in_flight: usize, destinations: usize) -> Self {
        let share = match destinations {
            0 | 1 => usize::MAX,
            many => (max_in_flight / many).max(1),
        };
        Self { share, active: false }
    }

    /// Is backpressure needed, with so many rows here? `oldest` is when the next row to be sent arrived.
    pub(crate) fn update(&mut self, rows: usize, oldest: Option<Duration>, now: Duration) -> bool {
        let is_slow = || oldest.is_some_and(|arrived| now.saturating_sub(arrived) > SLOW);
        self.active = if self.active {
            rows > self.share / 2
        } else {
            rows > self.share && is_slow()
        };
        self.active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn a_single_destination_may_use_all_the_room() {
        assert!(!Backpressure::new(4000, 1).update(4000, Some(Duration::ZERO), NOW));
    }

    #[test]
    fn a_busy_destination_keeps_its_rows() {
        assert!(!Backpressure::new(4000, 2).update(4000, Some(Duration::from_secs(96)), NOW));
    }

    #[test]
    fn a_slow_destination_has_backpressure_until_half_of_its_share_is_free() {
        let mut backpressure = Backpressure::new(4000, 2);
        assert!(!backpressure.update(2000, Some(Duration::ZERO), NOW));
        assert!(backpressure.update(2001, Some(Duration::ZERO), NOW));
        assert!(backpressure.update(1001, None, NOW));
        assert!(!backpressure.update(1000, None, NOW));
    }
}
