//! The outcome of an answer, or of its absence.

use std::error::Error;
use std::time::Duration;

use pillarbox::Outcome;
use reqwest::StatusCode;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// The longest `Retry-After` that is respected.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// How much of an answer is kept in the reason.
const MAX_EXCERPT: usize = 1024;

/// The outcome of a status. If the URL is not `constant`, the answer comes from one of many receivers: it concerns the event or
/// its URL, never the destination.
pub(super) fn answer(status: StatusCode, after: Option<Duration>, body: &[u8], constant: bool) -> Outcome {
    let reason = || reason(status, body);
    match status.as_u16() {
        200..=299 => Outcome::Delivered,
        // Not now: the attempt is given back.
        429 if constant => Outcome::Throttled {
            reason: reason(),
            after,
        },
        429 => Outcome::ThrottledPart {
            reason: reason(),
            after,
        },
        408 | 425 | 500..=599 => Outcome::Retry {
            reason: reason(),
            after,
        },
        // The receiver asks to be disabled.
        410 if constant => Outcome::Disable { reason: reason() },
        // This event will never be accepted.
        400 | 410 | 413 | 415 | 422 => Outcome::reject(reason()),
        // 401, 403, 404 … are often corrected by an operator.
        _ => Outcome::retry(reason()),
    }
}

/// The outcome of a request without an answer from this host.
pub(super) fn failure(error: reqwest::Error, host: &str) -> Outcome {
    // All URLs of a destination have the same host: refused, unknown, untrusted or silent, it is so for every event.
    let is_connect = error.is_connect() || error.is_dns();
    let is_timeout = error.is_timeout();
    let reason = unreached(error, host);
    if is_connect {
        Outcome::connect_failed(reason)
    } else if is_timeout {
        Outcome::retry(reason)
    } else {
        Outcome::connection_lost(reason)
    }
}

/// Why there is no answer from this host.
pub(super) fn unreached(error: reqwest::Error, host: &str) -> String {
    if error.is_connect() || error.is_dns() {
        return format!("{host} cannot be reached: {}", words(error));
    }
    words(error)
}

/// The whole chain of causes, without the URL, which may hold a token.
pub(super) fn words(error: reqwest::Error) -> String {
    let what = if error.is_timeout() {
        "no answer in time: "
    } else {
        ""
    };
    let error = error.without_url();
    let mut text = format!("{what}{error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

fn reason(status: StatusCode, body: &[u8]) -> String {
    let excerpt = String::from_utf8_lossy(&body[..body.len().min(MAX_EXCERPT)]);
    let mut text = format!("the receiver answered {status}");
    if status.is_redirection() {
        text.push_str("; redirects are not followed: give the new URL to the destination");
    }
    if !excerpt.trim().is_empty() {
        text.push_str(": ");
        text.push_str(excerpt.trim());
    }
    if body.len() > MAX_EXCERPT {
        text.push('…');
    }
    text
}

/// `Retry-After`: seconds, or a date.
pub(super) fn retry_after(text: &str, now: OffsetDateTime) -> Option<Duration> {
    let text = text.trim();
    let after = if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        // A number too large to parse is a long time.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let at = OffsetDateTime::parse(text, &Rfc2822).ok()?;
        Duration::try_from(at - now).unwrap_or(Duration::ZERO)
    };
    Some(after.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn the_table() {
        let after = Some(Duration::from_secs(7));
        for (codes, name) in [
            (&[200, 201, 202, 204, 299][..], "delivered"),
            (&[429], "throttled"),
            (&[408, 425, 500, 502, 503, 504, 599], "retry"),
            (&[410], "disable"),
            (&[400, 413, 415, 422], "reject"),
            (
                &[
                    300, 301, 302, 304, 307, 401, 403, 404, 405, 409, 418, 451, 600, 999,
                ],
                "retry",
            ),
        ] {
            for code in codes {
                let outcome = answer(StatusCode::from_u16(*code).unwrap(), after, b"", true);
                assert_eq!(outcome.name(), name, "{code}");
            }
        }
    }

    #[test]
    fn an_answer_of_one_of_many_urls_concerns_the_event_alone() {
        let named = |code| answer(StatusCode::from_u16(code).unwrap(), None, b"", false);
        for (code, name) in [
            (200, "delivered"),
            (410, "reject"),
            (422, "reject"),
            (429, "throttled_part"),
            (503, "retry"),
        ] {
            assert_eq!(named(code).name(), name, "{code}");
        }
    }

    #[test]
    fn what_the_receiver_asked_for_is_kept() {
        let after = Some(Duration::from_secs(7));
        for code in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
            match answer(code, after, b"", true) {
                Outcome::Throttled { after: found, .. } | Outcome::Retry { after: found, .. } => {
                    assert_eq!(found, after)
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_reason_holds_a_piece_of_the_answer() {
        let body = "x".repeat(5000);
        let Outcome::Reject { reason } =
            answer(StatusCode::UNPROCESSABLE_ENTITY, None, body.as_bytes(), true)
        else {
            panic!("422 is a refusal");
        };
        assert!(
            reason.starts_with("the receiver answered 422 Unprocessable Entity: xxx"),
            "{reason}"
        );
        assert!(reason.ends_with('…') && reason.len() < 1200, "{reason}");
    }

    #[test]
    fn a_redirect_says_what_to_do() {
        let outcome = answer(StatusCode::MOVED_PERMANENTLY, None, b"", true);
        assert!(format!("{outcome:?}").contains("redirects are not followed"));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = datetime!(2026-11-15 12:00:00 UTC);
        for (text, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            (" 120 ", Some(120)),
            ("99999999999999999999999", Some(86_400)),
            ("86401", Some(86_400)),
            ("Sun, 15 Nov 2026 12:00:30 GMT", Some(30)),
            ("Sun, 15 Nov 2026 11:00:00 GMT", Some(0)),
            ("Mon, 15 Nov 2027 11:00:00 GMT", Some(86_400)),
            ("", None),
            ("-1", None),
            ("soon", None),
        ] {
            assert_eq!(retry_after(text, now), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
