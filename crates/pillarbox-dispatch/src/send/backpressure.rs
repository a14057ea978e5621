//! How many rows may wait for a destination. Pure.
//!
//! Destinations share the room of a worker, and a few that hang would fill it. So each has a window: as many rows as it
//! sends soon. It begins with the destination's share of the room. When the next row could not be sent for long, the
//! window shrinks to about one round of attempts, and the rows beyond it are released. It doubles again while rows
//! are sent soon. A window that shrank stays small as long as the destination is slow: nothing is claimed in vain.

use std::time::Duration;

use crate::destination::Destination;
use crate::settings::Settings;

/// The destination is slow if its next row has waited so long.
const SLOW: Duration = Duration::from_secs(5);
/// The window doubles only while rows wait less than this: with twice as many they are still far from being late.
const SOON: Duration = Duration::from_millis(1250);

/// So many rows may wait anywhere, if the destination's share allows it: they cost nothing.
const FEW: usize = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Backpressure {
    least: usize,
    most: usize,
    window: usize,
    /// Rows in a row that were sent soon, since the window last changed.
    soon: usize,
}

impl Backpressure {
    /// For one of `destinations` that share the room of a worker.
    ///
    /// The window is at most twice the destination's share or twice its concurrency. With a rate limit, at most what it
    /// sends in a second.
    pub(crate) fn new(destination: &Destination, destinations: usize, settings: &Settings) -> Self {
        let room = settings.max_in_flight.max(1);
        let share = (room / destinations.max(1)).max(1);
        let part = share.max(destination.concurrency).min(room);
        let most = part.saturating_mul(2).min(room);
        let most = match destination.rate {
            None => most,
            Some(rate) => {
                // The cast saturates.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let second = rate.per_second.ceil() as usize;
                most.min(second.max(rate.burst as usize).max(1))
            }
        };
        Self {
            least: destination.concurrency.max(FEW).min(share).clamp(1, most),
            window: part.min(most),
            most,
            soon: 0,
        }
    }

    pub(crate) fn window(&self) -> usize {
        self.window
    }

    /// The next row to be sent could be sent since `ready`, if a slot were free.
    pub(crate) fn update(&mut self, ready: Option<Duration>, now: Duration) {
        if ready.is_some_and(|ready| now.saturating_sub(ready) > SLOW) {
            self.window = self.least;
            self.soon = 0;
        }
    }

    /// A row is sent that waited so long for a slot.
    pub(crate) fn sent(&mut self, waited: Duration) {
        if waited > SOON {
            self.soon = 0;
            return;
        }
        self.soon += 1;
        if self.soon >= self.window {
            self.window = self.window.saturating_mul(2).min(self.most);
            self.soon = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use pillarbox_testkit::fakes::FakeSink;

    use super::*;
    use crate::policy::Rate;

    const NOW: Duration = Duration::from_secs(100);

    fn backpressure(destinations: usize) -> Backpressure {
        let destination = Destination::new("there", FakeSink::willing());
        Backpressure::new(&destination, destinations, &Settings::default())
    }

    #[test]
    fn a_destination_begins_with_its_share_of_the_room() {
        let windows = [1, 2, 10, 1_000].map(|destinations| backpressure(destinations).window());
        assert_eq!(windows, [4_000, 2_000, 400, 16]);
        let limited = Destination::new("there", FakeSink::willing()).rate(Rate {
            per_second: 9.5,
            burst: 1,
        });
        assert_eq!(Backpressure::new(&limited, 1, &Settings::default()).window(), 10);
    }

    #[test]
    fn the_window_of_a_slow_destination_shrinks_to_one_round_of_attempts() {
        let mut backpressure = backpressure(2);
        backpressure.update(None, NOW);
        backpressure.update(Some(NOW - Duration::from_secs(5)), NOW);
        assert_eq!(backpressure.window(), 2_000);
        backpressure.update(Some(NOW - Duration::from_millis(5_001)), NOW);
        assert_eq!(backpressure.window(), 16);
        backpressure.update(None, NOW);
        assert_eq!(
            backpressure.window(),
            16,
            "it shows by sending that it is quick again"
        );
    }

    #[test]
    fn the_window_doubles_while_rows_are_sent_soon() {
        let mut backpressure = backpressure(2);
        backpressure.update(Some(Duration::ZERO), NOW);
        for _ in 0..100 {
            backpressure.sent(Duration::from_secs(2));
        }
        assert_eq!(backpressure.window(), 16);
        for _ in 0..16 + 32 {
            backpressure.sent(Duration::from_secs(1));
        }
        assert_eq!(backpressure.window(), 64);
        for _ in 0..100_000 {
            backpressure.sent(Duration::ZERO);
        }
        assert_eq!(backpressure.window(), 4_000);
    }

    #[test]
    fn with_many_destinations_a_slow_one_keeps_less_than_its_concurrency() {
        let mut backpressure = backpressure(1_000);
        backpressure.update(Some(Duration::ZERO), NOW);
        assert_eq!(backpressure.window(), 4);
    }
}
