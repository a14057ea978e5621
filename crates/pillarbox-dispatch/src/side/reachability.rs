//! Which destinations this worker has been unable to reach for some time, so that workers that can get their lanes. Pure.
//!
//! Lanes move slowly on purpose. A breaker that opens for a moment keeps them. If it opens in all workers at once, as when a
//! broker restarts, every worker has reported it before the first lane moves, and then none does.

use std::collections::BTreeSet;
use std::time::Duration;

/// How long a breaker must be open before others get the lanes.
const GIVE_UP_AFTER: Duration = Duration::from_secs(5);
/// How long it must be closed before the worker has its part again.
const RETURN_AFTER: Duration = Duration::from_secs(10);

/// One destination.
#[derive(Debug, Default)]
struct Destination {
    is_unreachable: bool,
    /// Since when its breaker says otherwise.
    differs_since: Option<Duration>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reachability {
    destinations: Vec<Destination>,
}

impl Reachability {
    /// Takes note of the breakers, one per destination and always in the same order. Returns whether anything changed.
    pub(crate) fn update(&mut self, open: impl Iterator<Item = bool>, now: Duration) -> bool {
        let mut has_changed = false;
        for (number, is_open) in open.enumerate() {
            if self.destinations.len() <= number {
                self.destinations.push(Destination::default());
            }
            let destination = &mut self.destinations[number];
            if is_open == destination.is_unreachable {
                destination.differs_since = None;
                continue;
            }
            let since = *destination.differs_since.get_or_insert(now);
            let enough = if is_open { GIVE_UP_AFTER } else { RETURN_AFTER };
            if now.saturating_sub(since) >= enough {
                *destination = Destination {
                    is_unreachable: is_open,
                    differs_since: None,
                };
                has_changed = true;
            }
        }
        has_changed
    }

    /// The unreachable ones of these names, which are in the same order.
    pub(crate) fn unreachable<'a>(&self, names: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
        names
            .zip(&self.destinations)
            .filter(|(_, destination)| destination.is_unreachable)
            .map(|(name, _)| name.to_owned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(reachability: &mut Reachability, second: u64, open: bool) -> (bool, usize) {
        let has_changed = reachability.update([false, open].into_iter(), Duration::from_secs(second));
        let unreachable = reachability.unreachable(["healthy", "cut"].into_iter());
        assert!(!unreachable.contains("healthy"));
        (has_changed, unreachable.len())
    }

    #[test]
    fn a_breaker_counts_when_it_has_been_open_for_a_while() {
        let mut reachability = Reachability::default();
        assert_eq!(at(&mut reachability, 0, true), (false, 0));
        assert_eq!(at(&mut reachability, 4, true), (false, 0));
        assert_eq!(at(&mut reachability, 5, true), (true, 1));
        assert_eq!(at(&mut reachability, 6, true), (false, 1));
    }

    #[test]
    fn a_breaker_that_opens_for_moments_changes_nothing() {
        let mut reachability = Reachability::default();
        for second in 0..60 {
            assert_eq!(at(&mut reachability, second, second % 4 != 0), (false, 0));
        }
    }

    #[test]
    fn a_destination_counts_as_reached_when_its_breaker_stays_closed() {
        let mut reachability = Reachability::default();
        at(&mut reachability, 0, true);
        at(&mut reachability, 5, true);
        assert_eq!(at(&mut reachability, 6, false), (false, 1));
        assert_eq!(at(&mut reachability, 10, true), (false, 1));
        assert_eq!(at(&mut reachability, 11, false), (false, 1));
        assert_eq!(at(&mut reachability, 20, false), (false, 1));
        assert_eq!(at(&mut reachability, 21, false), (true, 0));
    }
}
