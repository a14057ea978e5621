//! Bounds how often a log line is written.
//!
//! A fault that concerns every event would otherwise write a line for each. The line that is written next says how many
//! were suppressed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How many lines a second.
const LINES: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// The limit of one message of one destination or consumer: ten lines a second.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    started: Duration,
    written: u32,
    suppressed: u64,
}

impl LogLimit {
    /// May the line be written now, by the boot clock? Then with how many lines were suppressed since the last one.
    pub fn admit(&self, now: Duration) -> Option<Admitted> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.written == 0 || now.saturating_sub(window.started) >= SECOND {
            window.started = now;
            window.written = 0;
        }
        if window.written == LINES {
            window.suppressed += 1;
            return None;
        }
        window.written += 1;
        let suppressed = std::mem::take(&mut window.suppressed);
        Some(Admitted {
            suppressed: (suppressed > 0).then_some(suppressed),
        })
    }
}

/// A line may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// How many lines were suppressed before it, as a field of the line; none if none was.
    pub suppressed: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_are_written_and_the_next_counts_the_others() {
        let limit = LogLimit::default();
        let at = |millis| limit.admit(Duration::from_millis(millis));
        let written = (0..100).filter(|number| at(5_000 + number).is_some()).count();
        assert_eq!(written, 10);
        assert_eq!(at(5_999), None);
        assert_eq!(at(6_000), Some(Admitted { suppressed: Some(91) }));
        assert_eq!(at(6_001), Some(Admitted { suppressed: None }));
        assert_eq!(at(60_000), Some(Admitted { suppressed: None }));
    }
}
