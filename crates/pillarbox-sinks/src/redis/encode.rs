//! An event as an entry of a stream: one field for the payload, one for each header.

use std::num::NonZeroU64;

use pillarbox::{Delivery, Outcome};
use redis::{Cmd, cmd};

use crate::address::Address;
use crate::headers::taken;
use crate::message::Writer;

/// The longest key of a stream. Redis itself would take 512 MiB.
const MAX_STREAM: usize = 1024;

/// The command that adds the entry.
pub(super) fn entry(
    delivery: &Delivery,
    stream: &Address,
    max_len: Option<NonZeroU64>,
    writer: &Writer,
) -> Result<Cmd, Outcome> {
    let stream = stream.render(delivery, writer.destination())?;
    if stream.len() > MAX_STREAM {
        let len = stream.len();
        return Err(Outcome::reject(format!(
            "`stream` is {len} bytes long; the limit is {MAX_STREAM}"
        )));
    }
    let parts = writer.write(delivery)?;
    let mut add = cmd("XADD");
    add.arg(stream);
    if let Some(max_len) = max_len {
        // `~`: Redis drops whole nodes, which is cheap.
        add.arg("MAXLEN").arg("~").arg(max_len.get());
    }
    add.arg("*");
    add.arg("payload").arg(parts.body.as_ref());
    add.arg("content-type").arg(parts.content_type);
    if let Some(encoding) = parts.content_encoding {
        add.arg("content-encoding").arg(encoding);
    }
    for (name, value) in &parts.headers {
        add.arg(*name).arg(value.as_ref());
    }
    Ok(add)
}

/// Why the configuration cannot add a header.
pub(super) fn legal_header(name: &str, _: &str) -> Result<(), String> {
    if taken::by_entry(name) {
        return Err("it is a field of every entry".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::address;
    use crate::headers::Added;
    use crate::message::REDIS;
    use crate::sample::{added, delivery};
    use pillarbox::Event;
    use redis::Arg;

    fn encode(stream: &str, max_len: Option<u64>, event: Event) -> Result<Vec<Vec<u8>>, Outcome> {
        let stream = address("stream", stream, ':');
        let max_len = max_len.and_then(NonZeroU64::new);
        let writer = Writer::new("stream", &REDIS, Added::default());
        words(&entry(&delivery(event), &stream, max_len, &writer)?)
    }

    fn encode_with(headers: &[(&str, &str)], event: Event) -> Result<Vec<Vec<u8>>, Outcome> {
        let stream = address("stream", "{topic}", ':');
        let writer = Writer::new("stream", &REDIS, added(headers, legal_header).unwrap());
        words(&entry(&delivery(event), &stream, None, &writer)?)
    }

    fn words(add: &Cmd) -> Result<Vec<Vec<u8>>, Outcome> {
        let text = |arg| match arg {
            Arg::Simple(bytes) => <[u8]>::to_vec(bytes),
            _ => panic!("XADD has no cursor"),
        };
        Ok(add.args_iter().map(text).collect())
    }

    fn event() -> Event {
        Event::new("shop", "orders")
    }

    #[test]
    fn the_payload_is_a_field_and_so_is_every_header() {
        let event = event()
            .bytes(&b"\0\xff\r\n"[..], "image/png")
            .header("x", "Grüße");
        let id = event.id.to_string();
        let words = encode("{namespace}:{topic}", None, event).unwrap();
        assert_eq!(words[..3], [&b"XADD"[..], b"shop:orders", b"*"]);
        let fields: Vec<(&[u8], &[u8])> = words[3..]
            .chunks(2)
            .map(|pair| (&pair[0][..], &pair[1][..]))
            .collect();
        assert_eq!(fields[0], (&b"payload"[..], &b"\0\xff\r\n"[..]));
        assert_eq!(fields[1], (&b"content-type"[..], &b"image/png"[..]));
        assert!(fields.contains(&(b"pillarbox-id", id.as_bytes())));
        assert!(fields.contains(&(b"x", "Grüße".as_bytes())));
    }

    #[test]
    fn an_event_cannot_override_the_payload_or_its_type() {
        let event = event()
            .header("Payload", "forged")
            .header("content-type", "forged");
        let words = encode("{topic}", None, event).unwrap();
        assert!(words.iter().all(|word| word != b"forged"));
    }

    #[test]
    fn configured_headers_are_made_from_the_event_and_win() {
        let event = event().header("X-Topic", "theirs").header("x-own", "kept");
        let words = encode_with(&[("x-topic", "a.{topic}")], event).unwrap();
        for pair in [[&b"x-topic"[..], b"a.orders"], [b"x-own", b"kept"]] {
            assert!(words[3..].chunks(2).any(|words| words == pair), "{pair:?}");
        }
        assert!(words.iter().all(|word| word != b"theirs"));
    }

    #[test]
    fn an_event_that_makes_no_configured_header_is_rejected() {
        assert_eq!(
            encode_with(&[("x-severity", "{severity}")], event()),
            Err(Outcome::reject(
                "the event has no `severity`, which the header `x-severity` needs"
            ))
        );
    }

    #[test]
    fn a_configured_header_that_is_ours_is_refused() {
        for name in ["payload", "Content-Type", "content-encoding", "pillarbox-id"] {
            let error = added(&[(name, "x")], legal_header).err().unwrap();
            assert_eq!(error.key, "headers", "{name}");
        }
    }

    #[test]
    fn a_stream_is_trimmed_only_if_asked() {
        let words = encode("{topic}", Some(1000), event()).unwrap();
        assert_eq!(
            words[..6],
            [&b"XADD"[..], b"orders", b"MAXLEN", b"~", b"1000", b"*"]
        );
    }

    #[test]
    fn a_stream_without_a_name_or_with_a_long_one_is_rejected() {
        let named = |name: &str| event().header("s", name);
        for (stream, event) in [
            ("{severity}", event()),
            ("{header.s}", named("")),
            ("{header.s}", named(&"x".repeat(1025))),
        ] {
            assert!(
                matches!(encode(stream, None, event), Err(Outcome::Reject { .. })),
                "{stream}"
            );
        }
    }
}
