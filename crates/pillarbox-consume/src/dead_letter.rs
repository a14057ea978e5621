//! The headers of a dead letter.
//!
//! A dead letter is the message itself with its properties and headers, and four more headers:
//!
//! | header | value |
//! |---|---|
//! | `pillarbox-dead-reason` | the reason |
//! | `pillarbox-dead-consumer` | the consumer's name |
//! | `pillarbox-dead-attempts` | the number of attempts |
//! | `pillarbox-dead-at` | the time, RFC 3339 |
//!
//! It has no mark in the inbox: published to the queue or topic again, it is handled like any other message.
//!
//! **If we die here** the dead letter may be published twice: now, and when the broker delivers the message again.

use pillarbox::text::error_text;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The prefix of these headers. A message that dies twice carries only the later ones.
pub(crate) const PREFIX: &str = "pillarbox-dead-";

/// The longest reason. With it, all headers fit into one AMQP frame.
const MAX_REASON: usize = 4 * 1024;

/// Why a message was given up on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadLetter {
    pub(crate) reason: String,
    pub(crate) consumer: String,
    pub(crate) attempts: u32,
    pub(crate) at: OffsetDateTime,
}

impl DeadLetter {
    /// The headers that are added.
    pub(crate) fn headers(&self) -> [(&'static str, String); 4] {
        [
            ("pillarbox-dead-reason", reason(&self.reason)),
            ("pillarbox-dead-consumer", self.consumer.clone()),
            ("pillarbox-dead-attempts", self.attempts.to_string()),
            ("pillarbox-dead-at", self.at.format(&Rfc3339).unwrap_or_default()),
        ]
    }
}

/// Is this one of the headers above?
pub(crate) fn is_ours(name: &str) -> bool {
    name.get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// On one line, because a header value is one.
fn reason(text: &str) -> String {
    let mut line: String = error_text(text)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if line.len() > MAX_REASON {
        let mut end = MAX_REASON - '…'.len_utf8();
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prop_assert, proptest};
    use time::macros::datetime;

    #[test]
    fn a_dead_letter_carries_reason_consumer_attempts_and_time() {
        let letter = DeadLetter {
            reason: "no such order\nat all".to_owned(),
            consumer: "letters".to_owned(),
            attempts: 3,
            at: datetime!(2026-01-02 03:04:05 UTC),
        };
        let headers = letter.headers();
        let values: Vec<&str> = headers.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(
            values,
            ["no such order at all", "letters", "3", "2026-01-02T03:04:05Z"]
        );
        assert!(headers.iter().all(|(name, _)| is_ours(name)));
        assert!(!is_ours("pillarbox-id") && is_ours("Pillarbox-Dead-Reason"));
    }

    proptest! {
        #[test]
        fn any_reason_becomes_one_line_that_fits(text in "(\\PC|\n|\0|😀){0,300}", times in 1usize..20) {
            let line = reason(&text.repeat(times));
            prop_assert!(line.len() <= MAX_REASON && !line.is_empty() && !line.contains(['\n', '\0']));
        }
    }
}
