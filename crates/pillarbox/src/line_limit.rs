//! Limits how often one message is logged. Pure: the clock comes from outside.
//!
//! A destination that fails may fail thousands of times a second. The first lines tell what is wrong, and a count stands for the
//! rest.

use std::time::Duration;

/// How many lines with the same message a destination or a consumer may log in a second.
const MOST: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// The lines with one message.
#[derive(Debug, Default)]
pub struct LineLimit {
    /// When the current second began.
    since: Duration,
    lines: u32,
    suppressed: u64,
}

impl LineLimit {
    /// May a line be logged now? Returns how many were suppressed since the last one.
    pub fn allow(&mut self, now: Duration) -> Option<u64> {
        if now.saturating_sub(self.since) >= SECOND || self.lines == 0 {
            self.since = now;
            self.lines = 0;
        }
        if self.lines == MOST {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }

    /// When the number of suppressed lines is due, if there are some.
    pub fn flush_at(&self) -> Option<Duration> {
        (self.suppressed > 0).then(|| self.since + SECOND)
    }

    /// How many lines were suppressed and not yet reported, when that is due.
    pub fn flush(&mut self, now: Duration) -> Option<u64> {
        self.flush_at().filter(|at| *at <= now)?;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn ten_lines_a_second_are_logged_and_the_others_counted() {
        let mut limit = LineLimit::default();
        // A line every 10 ms, for three seconds.
        let logged: Vec<(u64, u64)> = (0..300)
            .filter_map(|n| Some((n * 10, limit.allow(ms(5_000 + n * 10))?)))
            .collect();
        assert_eq!(logged.len(), 30);
        assert_eq!(logged[..2], [(0, 0), (10, 0)]);
        assert_eq!((logged[10], logged[20]), ((1_000, 90), (2_000, 90)));
        assert_eq!(limit.flush(ms(7_999)), None);
        assert_eq!(limit.flush_at(), Some(ms(8_000)));
        assert_eq!((limit.flush(ms(8_000)), limit.flush(ms(9_000))), (Some(90), None));
    }

    #[test]
    fn a_rare_line_is_always_logged() {
        let mut limit = LineLimit::default();
        assert!((0..100).all(|n| limit.allow(ms(n * 101)) == Some(0)));
        assert_eq!(limit.flush_at(), None);
    }
}
