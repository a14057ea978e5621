//! A [`LineLimit`] that several tasks share.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::line_limit::LineLimit;

/// The limit of one message of one destination or consumer: ten lines a second.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<LineLimit>);

impl LogLimit {
    /// May the line be written now, by the boot clock? Then with how many lines were suppressed since the last one.
    pub fn admit(&self, now: Duration) -> Option<Admitted> {
        let mut limit = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let suppressed = limit.allow(now)?;
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
