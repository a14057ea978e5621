//! An event as a NATS message.

use async_nats::header::{NATS_EXPECTED_STREAM, NATS_MESSAGE_ID};
use async_nats::jetstream::message::{OutboundMessage, PublishMessage};
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use pillarbox::{Delivery, Outcome};

use crate::address::Address;
use crate::headers::taken;
use crate::message::{Parts, Writer};

/// The longest subject. A server closes a connection whose control line is over 4096 bytes, and the subject of the answer
/// must fit too.
const MAX_SUBJECT: usize = 2048;

/// The message. An event that NATS cannot carry is rejected here: the server would close the connection.
pub(super) fn message(
    delivery: &Delivery,
    subject: &Address,
    stream: Option<&str>,
    writer: &Writer,
) -> Result<OutboundMessage, Outcome> {
    let subject = subject.render(delivery, writer.destination())?;
    legal_subject(&subject)?;
    let parts = writer.write(delivery)?;
    let mut all = all_headers(&parts)?;
    all.insert(NATS_MESSAGE_ID, message_id(delivery));
    if let Some(stream) = stream {
        all.insert(NATS_EXPECTED_STREAM, stream);
    }
    Ok(PublishMessage::build()
        .payload(parts.body)
        .headers(all)
        .outbound_message(subject))
}

/// The token by which a stream detects duplicates: the row, and its place in the order of insertion.
///
/// A retry has the same token. A row of an adopted table that an operator resets is imported again, with a new `seq`. It may
/// have been delivered before, and corrected since, so the stream must not take it for a duplicate.
fn message_id(delivery: &Delivery) -> String {
    format!("{}.{}", delivery.id, delivery.seq)
}

fn legal_subject(subject: &str) -> Result<(), Outcome> {
    let problem = if subject.is_empty() || subject.split('.').any(str::is_empty) {
        "it has an empty token"
    } else if subject.len() > MAX_SUBJECT {
        "it is longer than 2048 bytes"
    } else if subject.contains(|c: char| c.is_whitespace() || c.is_control()) {
        "it holds white space"
    } else if subject.split('.').any(|token| matches!(token, "*" | ">")) {
        "`*` and `>` are wildcards of subscriptions"
    } else if subject.starts_with('$') || subject.starts_with("_INBOX.") {
        "it is reserved by NATS" // $JS.API.STREAM.DELETE.… would delete a stream
    } else {
        return Ok(());
    };
    Err(Outcome::reject(format!(
        "`{}` is not a valid subject: {problem}",
        subject.escape_debug()
    )))
}

/// A NATS message has no field for the media type, so it is a header.
fn all_headers(parts: &Parts<'_>) -> Result<HeaderMap, Outcome> {
    let mut all = HeaderMap::new();
    insert(&mut all, "content-type", parts.content_type)?;
    if let Some(encoding) = parts.content_encoding {
        insert(&mut all, "content-encoding", encoding)?;
    }
    for (name, value) in &parts.headers {
        insert(&mut all, name, value)?;
    }
    Ok(all)
}

/// Why the configuration cannot add a header.
pub(super) fn legal_header(name: &str, value: &str) -> Result<(), String> {
    if taken::by_payload(name) {
        return Err("it describes the payload".to_owned());
    }
    header(name, value)?;
    Ok(())
}

fn insert(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Outcome> {
    let (name, value) = header(name, value).map_err(|problem| {
        let name = name.escape_debug();
        Outcome::reject(format!("the header `{name}` cannot be sent: {problem}"))
    })?;
    headers.insert(name, value);
    Ok(())
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    // Nats-Rollup, for example, would empty the stream.
    if name
        .get(..5)
        .is_some_and(|start| start.eq_ignore_ascii_case("nats-"))
    {
        return Err("NATS reserves names that begin with `Nats-`");
    }
    let legal_name = name.parse().ok().filter(|_| !name.is_empty());
    legal_name
        .zip(value.parse().ok())
        .ok_or("in NATS names are ASCII without spaces and `:`, and values have no line breaks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::address;
    use crate::headers::Added;
    use crate::message::NATS;
    use crate::sample::{added, delivery};
    use pillarbox::Event;
    use uuid::Uuid;

    fn event() -> Event {
        Event::new("shop", "orders")
    }

    fn encode(subject: &str, event: Event) -> Result<OutboundMessage, Outcome> {
        encode_with(&[], subject, event)
    }

    fn encode_with(
        headers: &[(&str, &str)],
        subject: &str,
        event: Event,
    ) -> Result<OutboundMessage, Outcome> {
        let subject = address("subject", subject, '.');
        let writer = Writer::new("stream", &NATS, added(headers, legal_header).unwrap());
        message(&delivery(event), &subject, None, &writer)
    }

    fn header(message: &OutboundMessage, name: &str) -> Option<String> {
        let value = message.headers.as_ref().unwrap().get(name)?;
        Some(value.as_str().to_owned())
    }

    #[test]
    fn the_token_names_the_row_and_its_seq_and_the_event_keeps_its_id() {
        let mut sibling = delivery(event());
        sibling.id = Uuid::now_v7();
        let subject = address("subject", "{namespace}.{topic}", '.');
        let writer = Writer::new("stream", &NATS, Added::default());
        let message = message(&sibling, &subject, Some("SHOP"), &writer);
        let message = message.ok().unwrap();
        assert_eq!(message.subject.as_str(), "shop.orders");
        let token = format!("{}.{}", sibling.id, sibling.seq);
        assert_eq!(header(&message, "Nats-Msg-Id"), Some(token));
        assert_eq!(
            header(&message, "pillarbox-id"),
            Some(sibling.event.id.to_string())
        );
        assert_eq!(header(&message, "Nats-Expected-Stream").as_deref(), Some("SHOP"));
    }

    #[test]
    fn what_is_no_subject_is_rejected() {
        for subject in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a b",
            "a\tb",
            "a\r\nPUB x 0",
            "a.*",
            "a*b.c",
            "*",
            "a.>",
            ">",
            "$JS.API.INFO",
            "$SYS.x",
            "_INBOX.x",
            &"x".repeat(2049),
        ] {
            let outcome = encode("{header.s}", event().header("s", subject));
            assert!(matches!(outcome, Err(Outcome::Reject { .. })), "{subject}");
        }
        for subject in ["a", "a.b", "größe.ü", "a$b", &"x".repeat(2048)] {
            assert!(
                encode("{header.s}", event().header("s", subject)).is_ok(),
                "{subject}"
            );
        }
        assert!(matches!(
            encode("{severity}", event()),
            Err(Outcome::Reject { .. })
        ));
    }

    #[test]
    fn a_header_that_nats_would_act_on_or_cannot_carry_is_rejected() {
        for (name, value) in [
            ("Nats-Rollup", "all"),
            ("nats-msg-id", "forged"),
            ("a b", "x"),
            ("a:b", "x"),
            ("é", "x"),
            ("x", "a\r\nb"),
        ] {
            let outcome = encode("{topic}", event().header(name, value));
            assert!(matches!(outcome, Err(Outcome::Reject { .. })), "{name}");
        }
        let message = encode("{topic}", event().header("x", "Grüße")).ok().unwrap();
        assert_eq!(header(&message, "x").as_deref(), Some("Grüße"));
    }

    #[test]
    fn the_media_type_is_a_header_that_the_event_cannot_override() {
        let message = encode(
            "{topic}",
            event()
                .header("Content-Type", "forged")
                .header("content_type", "forged"),
        )
        .ok()
        .unwrap();
        assert_eq!(
            header(&message, "content-type").as_deref(),
            Some("application/json")
        );
        assert_eq!(header(&message, "Content-Type"), None);
    }

    #[test]
    fn configured_headers_are_made_from_the_event_and_win() {
        let event = event().header("X-Topic", "theirs").header("x-own", "kept");
        let message = encode_with(&[("x-topic", "a.{topic}")], "{topic}", event)
            .ok()
            .unwrap();
        assert_eq!(header(&message, "x-topic").as_deref(), Some("a.orders"));
        assert_eq!(header(&message, "x-own").as_deref(), Some("kept"));
        assert_eq!(header(&message, "X-Topic"), None);
    }

    #[test]
    fn an_event_that_makes_no_configured_header_is_rejected() {
        for (event, said) in [
            (event(), "no `header.x`, which the header `x` needs"),
            (event().header("x", "a\r\nb"), "the header `x` cannot be sent"),
        ] {
            let encoded = encode_with(&[("x", "{header.x}")], "{topic}", event);
            let Err(Outcome::Reject { reason }) = encoded else {
                panic!("not rejected")
            };
            assert!(reason.contains(said), "{reason}");
        }
    }

    #[test]
    fn a_configured_header_that_nats_cannot_take_is_refused() {
        for (name, value) in [
            ("Nats-Msg-Id", "{id}"),
            ("nats-rollup", "all"),
            ("content-type", "x"),
            ("pillarbox-id", "x"),
            ("a b", "x"),
            ("x", "a\n{topic}"),
        ] {
            let error = added(&[(name, value)], legal_header).err().unwrap();
            assert_eq!(error.key, "headers", "{name}");
        }
    }
}
