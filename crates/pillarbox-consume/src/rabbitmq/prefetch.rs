//! How many messages the broker sends before one is acknowledged. Pure: the clock comes from outside.
//!
//! RabbitMQ counts messages and not their bytes. If those in flight are too large, it sends half as many. If they were small
//! for some time, it sends twice as many, up to the configured number.
//!
//! Each change needs a new channel. The broker delivers the messages in flight again and counts that as one of their
//! deliveries, of which RabbitMQ 4 allows 20. So the number grows slowly and by one step at a time.

use std::time::Duration;

use tokio::time::Instant;

/// How long the messages in flight have to be small before the number grows.
pub(super) const CALM: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Debug)]
pub(super) struct Prefetch {
    configured: u16,
    current: u16,
    calm: Duration,
    /// Since when the messages in flight have been small, with the current number.
    small_since: Instant,
}

impl Prefetch {
    pub(super) fn new(configured: u16, calm: Duration, now: Instant) -> Self {
        Self {
            configured,
            current: configured,
            calm,
            small_since: now,
        }
    }

    pub(super) fn get(&self) -> u16 {
        self.current
    }

    /// The messages in flight are too large.
    pub(super) fn halve(&mut self, now: Instant) {
        self.current = (self.current / 2).max(1);
        self.small_since = now;
    }

    /// A message arrived. Are those in flight so small that twice as many would fit? Returns whether the number grew.
    pub(super) fn received(&mut self, is_small: bool, now: Instant) -> bool {
        if !is_small {
            self.small_since = now;
        }
        let grows = self.current < self.configured && now - self.small_since >= self.calm;
        if grows {
            self.current = self.current.saturating_mul(2).min(self.configured);
            self.small_since = now;
        }
        grows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_halved_prefetch_grows_back_step_by_step_while_messages_are_small() {
        let mut now = Instant::now();
        let mut prefetch = Prefetch::new(10, CALM, now);
        for expected in [5, 2, 1, 1] {
            prefetch.halve(now);
            assert_eq!(prefetch.get(), expected);
        }
        let mut seen = Vec::new();
        for second in 1..=3600 {
            now += SECOND;
            if prefetch.received(true, now) {
                seen.push((second, prefetch.get()));
            }
        }
        assert_eq!(seen, [(600, 2), (1200, 4), (1800, 8), (2400, 10)]);
    }

    #[test]
    fn large_messages_keep_it_from_growing() {
        let mut now = Instant::now();
        let mut prefetch = Prefetch::new(10, CALM, now);
        prefetch.halve(now);
        for second in 0..3600 {
            now += SECOND;
            assert!(
                !prefetch.received(second % 300 > 0, now),
                "one in five minutes is large"
            );
        }
        for _ in 0..299 {
            now += SECOND;
            assert!(!prefetch.received(true, now));
        }
        now += CALM;
        assert!(
            prefetch.received(true, now),
            "also after a pause without messages"
        );
    }
}
