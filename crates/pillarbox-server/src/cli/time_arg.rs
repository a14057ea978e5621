//! A time on the command line: `2027-01-31T12:00:00Z`, or `+10m` from now.

use pillarbox::{Clock, SystemClock};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Parses it, relative to this machine's clock.
pub(super) fn parse(text: &str) -> Result<OffsetDateTime, String> {
    after(text, SystemClock.wall())
}

fn after(text: &str, now: OffsetDateTime) -> Result<OffsetDateTime, String> {
    let wrong = || "use a time such as 2027-01-31T12:00:00Z, or +10m, +1h 30m, +2d from now".to_owned();
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
    fn a_time_is_absolute_or_relative_to_now() {
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
