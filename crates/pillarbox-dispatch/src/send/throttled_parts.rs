//! Parts of a destination that asked us to wait, such as one path of a URL that depends on the event. Pure.
//!
//! Rows for such a part are released for as long, without using an attempt. Other rows are sent.

use std::collections::HashMap;
use std::time::Duration;

use crate::send::streak::Part;

/// How many parts are remembered. A row for one more part waits alone.
const MOST: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ThrottledParts {
    until: HashMap<Part, Duration>,
}

impl ThrottledParts {
    pub(crate) fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    /// This part asks us to wait until then.
    pub(crate) fn throttle(&mut self, part: Part, until: Duration, now: Duration) {
        self.until.retain(|_, until| *until > now);
        if self.until.len() < MOST || self.until.contains_key(&part) {
            let longest = self.until.entry(part).or_default();
            *longest = until.max(*longest);
        }
    }

    /// How long a row for this part has to wait, if it has to.
    pub(crate) fn wait(&self, part: Part, now: Duration) -> Option<Duration> {
        let until = self.until.get(&part)?;
        until.checked_sub(now).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn only_rows_for_a_throttled_part_wait() {
        let (busy, well) = (Part::named("/a"), Part::named("/b"));
        let mut parts = ThrottledParts::default();
        assert!(parts.is_empty());
        parts.throttle(busy, s(60), s(0));
        parts.throttle(busy, s(30), s(0));
        assert_eq!(parts.wait(busy, s(10)), Some(s(50)));
        assert_eq!((parts.wait(well, s(10)), parts.wait(busy, s(60))), (None, None));
    }

    #[test]
    fn memory_is_bounded_and_past_waits_are_dropped() {
        let mut parts = ThrottledParts::default();
        for n in 0..5_000 {
            parts.throttle(Part::named(&n.to_string()), s(60), s(0));
        }
        assert_eq!(parts.until.len(), MOST);
        parts.throttle(Part::named("next"), s(120), s(61));
        assert_eq!(parts.until.len(), 1);
    }
}
