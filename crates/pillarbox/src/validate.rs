//! Checks an event before anything is written.
//!
//! An event that a database or a broker would reject later, or that would break a guarantee, is rejected here. The error
//! says what to do.

use uuid::Uuid;

use crate::clock::{Clock, SystemClock};
use crate::derived_id::is_reserved;
use crate::event::Event;
use crate::event::UNROUTED;
use crate::payload::Payload;

/// The longest namespace, topic, type, key or header name, in bytes.
pub const MAX_NAME: usize = 1024;
/// How much all headers may hold together, in bytes.
pub(crate) const MAX_HEADERS: usize = 64 * 1024;
/// How far ahead an event can be scheduled, in days.
pub(crate) const MAX_DAYS_AHEAD: i64 = 400;

/// What an outbox accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest payload in bytes; 16 MiB by default.
    pub payload: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload: 16 * 1024 * 1024,
        }
    }
}

/// Why an event is rejected. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEvent {
    /// A name is empty.
    #[error("`{0}` is empty; give it a name such as \"orders\"")]
    Empty(&'static str),
    /// A text is longer than every store and broker accepts.
    #[error("`{field}` is {len} bytes long; the limit is {limit}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The longest that is accepted.
        limit: usize,
    },
    /// A text holds the character NUL, which PostgreSQL cannot store.
    #[error("`{0}` contains the character NUL (U+0000), which cannot be stored; remove it")]
    Nul(&'static str),
    /// The payload is too large.
    #[error(
        "the payload is {len} bytes; the limit is {limit} (raise `max_payload`, or send a reference to the data)"
    )]
    PayloadTooLarge {
        /// Its size in bytes.
        len: usize,
        /// The largest that is accepted.
        limit: usize,
    },
    /// The payload is not JSON.
    #[error("the payload is not valid JSON: {0}; send bytes that are not JSON as bytes with a content type")]
    NotJson(String),
    /// The payload holds an escaped NUL, which `jsonb` cannot store.
    #[error("the payload contains \\u0000, which jsonb cannot store; remove it or send the payload as bytes")]
    NulInJson,
    /// The dedupe key does not begin with the tenant's id.
    #[error(
        "`dedupe_key` does not begin with \"{tenant}/\"; with a tenant, the key must begin with its id and a slash"
    )]
    TenantMismatch {
        /// The event's tenant.
        tenant: Uuid,
    },
    /// An encoding is named, and there are no bytes that could have it.
    #[error(
        "`content_encoding` is set, but the payload is JSON, which is not encoded; send encoded bytes, or leave it out"
    )]
    EncodedJson,
    /// The destination's name is reserved.
    #[error(
        "`destination` is \"{UNROUTED}\", which is reserved for events that no route matches (choose another name)"
    )]
    Reserved,
    /// The id is one that only Pillarbox derives.
    #[error(
        "`id` is the version 8 UUID {0}, which is reserved for ids that Pillarbox derives (leave `id` out, or use version 7)"
    )]
    ReservedId(Uuid),
    /// A scheduled event would block all others of its key.
    #[error(
        "`deliver_at` and `ordering_key` exclude each other: the key's other events would wait for this one"
    )]
    ScheduledWithKey,
    /// The time to deliver is too far ahead.
    #[error("`deliver_at` is {}; the latest is {MAX_DAYS_AHEAD} days from now", in_utc(*.0))]
    TooFarAhead(time::OffsetDateTime),
    /// Versions count from 1.
    #[error("`event_version` is {0}; versions count from 1")]
    Version(i32),
}

/// Checks one event.
///
/// # Errors
/// The first thing that is wrong.
pub fn validate(event: &Event, limits: &Limits) -> Result<(), InvalidEvent> {
    for (field, text) in event.texts() {
        name(field, text)?;
    }
    if let Some(destination) = &event.destination {
        name("destination", destination)?;
    }
    if is_reserved(event.id) {
        return Err(InvalidEvent::ReservedId(event.id));
    }
    if event.event_version < 1 {
        return Err(InvalidEvent::Version(event.event_version));
    }
    if event.destination.as_deref() == Some(UNROUTED) {
        return Err(InvalidEvent::Reserved);
    }
    schedule(event)?;
    headers(event)?;
    tenant(event)?;
    encoding(event)?;
    payload(event, limits)
}

fn name(field: &'static str, value: &str) -> Result<(), InvalidEvent> {
    if value.is_empty() {
        return Err(InvalidEvent::Empty(field));
    }
    if value.len() > MAX_NAME {
        return Err(InvalidEvent::TooLong {
            field,
            len: value.len(),
            limit: MAX_NAME,
        });
    }
    no_nul(field, value)
}

fn no_nul(field: &'static str, value: &str) -> Result<(), InvalidEvent> {
    if value.contains('\0') {
        Err(InvalidEvent::Nul(field))
    } else {
        Ok(())
    }
}

fn schedule(event: &Event) -> Result<(), InvalidEvent> {
    let Some(at) = event.deliver_at else { return Ok(()) };
    if event.ordering_key.is_some() {
        return Err(InvalidEvent::ScheduledWithKey);
    }
    // The application's clock is exact enough to detect a typing error.
    if at > SystemClock.wall() + time::Duration::days(MAX_DAYS_AHEAD) {
        return Err(InvalidEvent::TooFarAhead(at));
    }
    Ok(())
}

/// The time as PostgreSQL prints it, so that the SQL functions report the same error.
fn in_utc(at: time::OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    let (hour, minute, second, microsecond) = at.to_hms_micro();
    let fraction = format!(".{microsecond:06}");
    let fraction = fraction.trim_end_matches(['0', '.']);
    format!(
        "{} {hour:02}:{minute:02}:{second:02}{fraction} +00:00:00",
        at.date()
    )
}

fn headers(event: &Event) -> Result<(), InvalidEvent> {
    let mut len = 0;
    for (key, value) in &event.headers {
        name("headers", key)?;
        no_nul("headers", value)?;
        len += key.len() + value.len();
    }
    if len > MAX_HEADERS {
        return Err(InvalidEvent::TooLong {
            field: "headers",
            len,
            limit: MAX_HEADERS,
        });
    }
    Ok(())
}

/// Hyphenated and plain hex both count, in either case.
fn tenant(event: &Event) -> Result<(), InvalidEvent> {
    let (Some(tenant), Some(key)) = (event.tenant_id, &event.dedupe_key) else {
        return Ok(());
    };
    let matches = key.split_once('/').is_some_and(|(prefix, _)| {
        prefix.eq_ignore_ascii_case(&tenant.hyphenated().to_string())
            || prefix.eq_ignore_ascii_case(&tenant.simple().to_string())
    });
    if matches {
        Ok(())
    } else {
        Err(InvalidEvent::TenantMismatch { tenant })
    }
}

/// A dispatcher would try to decode the JSON, and the event would become dead.
fn encoding(event: &Event) -> Result<(), InvalidEvent> {
    match &event.payload {
        Payload::Json(_) if event.content_encoding.is_some() => Err(InvalidEvent::EncodedJson),
        Payload::Json(_) | Payload::Bytes(_) => Ok(()),
    }
}

fn payload(event: &Event, limits: &Limits) -> Result<(), InvalidEvent> {
    let len = match &event.payload {
        Payload::Json(text) => written_out(text),
        Payload::Bytes(body) => body.len(),
    };
    if len > limits.payload {
        return Err(InvalidEvent::PayloadTooLarge {
            len,
            limit: limits.payload,
        });
    }
    if let Payload::Json(text) = &event.payload {
        // A `RawValue` checks the grammar without building anything.
        let _checked: &serde_json::value::RawValue =
            serde_json::from_slice(text).map_err(|error| InvalidEvent::NotJson(error.to_string()))?;
        if has_escaped_nul(text) {
            return Err(InvalidEvent::NulInJson);
        }
    }
    Ok(())
}

/// The size of JSON whose numbers are written out, as `jsonb` sends them: `1e131071` has 131,072 digits.
fn written_out(json: &[u8]) -> usize {
    let mut len = json.len();
    let mut in_text = false;
    let mut rest = json;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'"' => in_text = !in_text,
            // Skip the escaped character, which may be a quote.
            b'\\' => rest = rest.get(1..).unwrap_or_default(),
            b'e' | b'E' if !in_text => len = len.saturating_add(exponent(rest)),
            _ => {}
        }
    }
    len
}

/// The size of the exponent at the beginning. Beyond that of the largest number, the database rejects it.
fn exponent(json: &[u8]) -> usize {
    let digits = json.iter().skip_while(|byte| matches!(byte, b'+' | b'-'));
    let digits = digits.take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum: usize, digit| {
        sum.saturating_mul(10)
            .saturating_add(usize::from(digit - b'0'))
            .min(131_072)
    })
}

/// Is there a `\u0000` whose backslash is not itself escaped?
fn has_escaped_nul(json: &[u8]) -> bool {
    let mut rest = json;
    while let Some(at) = rest.iter().position(|&b| b == b'\\') {
        if rest[at + 1..].starts_with(b"u0000") {
            return true;
        }
        // Skip the escaped character, which may be a backslash.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prop_assert_eq, proptest};

    fn event() -> Event {
        Event::new("shop", "orders")
    }

    fn check(event: &Event) -> Result<(), InvalidEvent> {
        validate(event, &Limits::default())
    }

    #[test]
    fn a_plain_event_is_accepted() {
        assert_eq!(check(&event()), Ok(()));
    }

    #[test]
    fn an_empty_topic_is_refused() {
        assert_eq!(check(&Event::new("shop", "")), Err(InvalidEvent::Empty("topic")));
        assert_eq!(
            check(&Event::new("", "orders")),
            Err(InvalidEvent::Empty("namespace"))
        );
    }

    #[test]
    fn a_nul_is_refused_in_every_text() {
        assert_eq!(
            check(&Event::new("a\0", "t")),
            Err(InvalidEvent::Nul("namespace"))
        );
        assert_eq!(
            check(&event().event_type("a\0")),
            Err(InvalidEvent::Nul("event_type"))
        );
        assert_eq!(
            check(&event().aggregate("a", "\0")),
            Err(InvalidEvent::Nul("aggregate_id"))
        );
        assert_eq!(
            check(&event().dedupe_key("\0")),
            Err(InvalidEvent::Nul("dedupe_key"))
        );
        assert_eq!(
            check(&event().ordering_key("\0")),
            Err(InvalidEvent::Nul("ordering_key"))
        );
        assert_eq!(
            check(&event().header("a", "\0")),
            Err(InvalidEvent::Nul("headers"))
        );
        assert_eq!(
            check(&event().header("\0", "a")),
            Err(InvalidEvent::Nul("headers"))
        );
    }

    #[test]
    fn an_escaped_nul_in_json_is_refused_and_an_escaped_backslash_is_not() {
        assert_eq!(
            check(&event().json_text(r#"{"a":"\u0000"}"#)),
            Err(InvalidEvent::NulInJson)
        );
        assert_eq!(
            check(&event().json_text(r#"{"a":"\\\u0000"}"#)),
            Err(InvalidEvent::NulInJson)
        );
        assert_eq!(check(&event().json_text(r#"{"a":"\\u0000"}"#)), Ok(()));
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in ["", "{", "{}x", "nul", "{\"a\":01}", "\u{1}"] {
            assert!(
                matches!(check(&event().json_text(text)), Err(InvalidEvent::NotJson(_))),
                "{text}"
            );
        }
        assert!(matches!(
            check(&event().json_text(&b"\"\xff\""[..])),
            Err(InvalidEvent::NotJson(_))
        ));
    }

    #[test]
    fn a_payload_over_the_limit_is_refused() {
        let limits = Limits { payload: 10 };
        let fits = event().bytes(vec![0; 10], "application/octet-stream");
        let over = event().bytes(vec![0; 11], "application/octet-stream");
        assert_eq!(validate(&fits, &limits), Ok(()));
        assert_eq!(
            validate(&over, &limits),
            Err(InvalidEvent::PayloadTooLarge { len: 11, limit: 10 })
        );
    }

    #[test]
    fn a_number_counts_as_long_as_it_is_written_out() {
        let over = |json: &str| match check(&event().json_text(json.to_owned())) {
            Err(InvalidEvent::PayloadTooLarge { len, .. }) => Some(len),
            other => {
                assert_eq!(other, Ok(()), "{json}");
                None
            }
        };
        let many = format!("[{}1]", "1e131071,".repeat(200));
        assert_eq!(over(&many), Some(many.len() + 200 * 131_071));
        let many = format!("[{}1]", "1.5E-9999,".repeat(2_000));
        assert_eq!(over(&many), Some(many.len() + 2_000 * 9_999));
        assert_eq!(over("[1e131071, true, false, 1.5e300]"), None);
        assert_eq!(over(&format!("[\"\\\"{}\"]", "1e131071,".repeat(200))), None);
    }

    #[test]
    fn only_bytes_have_an_encoding() {
        let mut encoded = event().json_text("{}");
        encoded.content_encoding = Some("zstd".to_owned());
        assert_eq!(check(&encoded), Err(InvalidEvent::EncodedJson));
        assert_eq!(check(&encoded.bytes(&b"x"[..], "text/plain")), Ok(()));
    }

    #[test]
    fn a_tenant_and_a_dedupe_key_must_agree() {
        let tenant = Uuid::from_u128(0xABCD);
        let with = |key: &str| check(&event().tenant(tenant).dedupe_key(key));
        assert_eq!(with(&format!("{}/1", tenant.hyphenated())), Ok(()));
        assert_eq!(with(&format!("{}/1", tenant.simple())), Ok(()));
        assert_eq!(with(&format!("{}/1", tenant.simple()).to_uppercase()), Ok(()));
        assert_eq!(
            with(&tenant.to_string()),
            Err(InvalidEvent::TenantMismatch { tenant })
        );
        assert_eq!(
            with(&format!("{}/1", Uuid::nil())),
            Err(InvalidEvent::TenantMismatch { tenant })
        );
        assert_eq!(check(&event().dedupe_key("anything")), Ok(()));
        assert_eq!(check(&event().tenant(tenant)), Ok(()));
    }

    proptest! {
        #[test]
        fn the_search_for_nul_agrees_with_a_parser(text in "(\\\\u0000|\\\\\\\\|[a-u0]){0,12}") {
            let json = format!("\"{text}\"");
            let Ok(parsed) = serde_json::from_str::<String>(&json) else { return Ok(()) };
            prop_assert_eq!(has_escaped_nul(json.as_bytes()), parsed.contains('\0'));
        }
    }
}
