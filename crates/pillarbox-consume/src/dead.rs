//! What is written on a message that is given up on.
//!
//! A dead letter is the message itself, with its properties and headers, and four headers more:
//!
//! | header | says |
//! |---|---|
//! | `pillarbox-dead-reason` | why |
//! | `pillarbox-dead-consumer` | by whom |
//! | `pillarbox-dead-attempts` | after how many attempts |
//! | `pillarbox-dead-at` | when, RFC 3339 |
//!
//! It is not marked in the inbox: sent to the queue or topic again, it is handled like any other.
//!
//! **If we die here** the letter may be there twice: once by us, once when the message comes again.

use pillarbox::text::error_text;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// What the names of these headers begin with. A letter that dies twice has the later ones only.
pub(crate) const PREFIX: &str = "pillarbox-dead-";

/// How much of a reason is kept: with it, all headers fit into one frame of AMQP.
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

/// Is it one of these headers?
pub(crate) fn is_ours(name: &str) -> bool {
    name.get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// A header has one line: whoever reads it may not expect more.
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
    fn a_dead_letter_says_why_by_whom_after_what_and_when() {
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
