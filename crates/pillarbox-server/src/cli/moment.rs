//! A moment as people write it: `2027-01-31T12:00:00Z`, or `+10m` from now.

use pillarbox::{Clock, SystemClock};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Reads it, by this machine's clock.
pub(super) fn parse(text: &str) -> Result<OffsetDateTime, String> {
    after(text, SystemClock.wall())
}

fn after(text: &str, now: OffsetDateTime) -> Result<OffsetDateTime, String> {
    let wrong = || "write a time such as 2027-01-31T12:00:00Z, or +10m, +1h 30m, +2d from now".to_owned();
    match text.strip_prefix('+') {
        Some(wait) => {
            let wait = humantime::parse_duration(wait).map_err(|_| wrong())?;
            let wait = time::Duration::try_from(wait).map_err(|_| wrong())?;
            now.checked_add(wait).ok_or_else(wrong)
        }
        None => OffsetDateTime::parse(text, &Rfc3339).map_err(|_| wrong()),
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::after;

    #[test]
    fn a_moment_is_a_time_or_a_wait_from_now() {
        let now = datetime!(2026-02-01 12:00:00 UTC);
        for (text, expected) in [
            ("2026-02-01T13:00:00+01:00", now),
            ("+10m", datetime!(2026-02-01 12:10:00 UTC)),
            ("+1h 30m", datetime!(2026-02-01 13:30:00 UTC)),
        ] {
            assert_eq!(after(text, now).expect(text), expected);
        }
        for text in ["10m", "+soon", "tomorrow", "+", "2026-02-01", "+99999999999999y"] {
            assert!(after(text, now).is_err(), "{text}");
        }
    }
}
