//! A time on the command line: `2027-01-31T12:00:00Z`, or `+10m` from now.

use pillarbox::{Clock, SystemClock};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Parses it, relative to this machine's clock.
pub(super) fn parse(text: &str) -> Result<OffsetDateTime, String> {
    after(text, SystemClock.wall())
}

/// Parses a time in the past: `2027-01-31T12:00:00Z`, or `24h` ago.
pub(super) fn parse_past(text: &str) -> Result<OffsetDateTime, String> {
    before(text, SystemClock.wall())
}

fn before(text: &str, now: OffsetDateTime) -> Result<OffsetDateTime, String> {
    let wrong = || "use a time such as 2027-01-31T12:00:00Z, or 10m, 24h, 7d ago".to_owned();
    match humantime::parse_duration(text) {
        Ok(ago) => {
            let ago = time::Duration::try_from(ago).map_err(|_| wrong())?;
            now.checked_sub(ago).ok_or_else(wrong)
        }
        Err(_) => OffsetDateTime::parse(text, &Rfc3339).map_err(|_| wrong()),
    }
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

    use super::{after, before};

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

    #[test]
    fn a_time_in_the_past_is_absolute_or_an_age() {
        let now = datetime!(2026-02-01 12:00:00 UTC);
        for (text, expected) in [
            ("2026-02-01T13:00:00+01:00", now),
            ("24h", datetime!(2026-01-31 12:00:00 UTC)),
        ] {
            assert_eq!(before(text, now).expect(text), expected);
        }
        for text in ["+10m", "yesterday", ""] {
            assert!(before(text, now).is_err(), "{text}");
        }
    }
}
