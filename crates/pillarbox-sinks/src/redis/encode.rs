//! An event as an entry of a stream: one field for the payload, one for each header.

use std::num::NonZeroU64;

use pillarbox::{Delivery, Outcome};
use redis::{Cmd, cmd};

use crate::headers;
use crate::template::Template;

/// Fields that an event's header of the same name cannot override.
const OURS: [&str; 3] = ["payload", "content-type", "content-encoding"];

/// The command that adds the entry.
pub(super) fn entry(
    delivery: &Delivery,
    destination: &str,
    stream: &Template,
    max_len: Option<NonZeroU64>,
) -> Result<Cmd, Outcome> {
    let stream = stream
        .render(delivery, destination)
        .map_err(|missing| Outcome::reject(missing.to_string()))?;
    if stream.is_empty() {
        return Err(Outcome::reject("the name of the stream is empty"));
    }
    let event = &delivery.event;
    let mut add = cmd("XADD");
    add.arg(stream);
    if let Some(max_len) = max_len {
        // About: Redis drops whole nodes, which costs it next to nothing.
        add.arg("MAXLEN").arg("~").arg(max_len.get());
    }
    add.arg("*");
    add.arg("payload").arg(event.payload.as_bytes().as_ref());
    add.arg("content-type").arg(event.media_type());
    if let Some(encoding) = &event.content_encoding {
        add.arg("content-encoding").arg(encoding);
    }
    for (name, value) in headers::of(delivery).iter().filter(|(name, _)| !is_ours(name)) {
        add.arg(*name).arg(value.as_ref());
    }
    Ok(add)
}

fn is_ours(name: &str) -> bool {
    OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::delivery;
    use pillarbox::Event;
    use redis::Arg;

    fn encode(stream: &str, max_len: Option<u64>, event: Event) -> Result<Vec<Vec<u8>>, Outcome> {
        let stream = Template::parse(stream).unwrap();
        let add = entry(
            &delivery(event),
            "stream",
            &stream,
            max_len.and_then(NonZeroU64::new),
        )?;
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
    fn a_stream_is_trimmed_only_if_asked() {
        let words = encode("{topic}", Some(1000), event()).unwrap();
        assert_eq!(
            words[..6],
            [&b"XADD"[..], b"orders", b"MAXLEN", b"~", b"1000", b"*"]
        );
    }

    #[test]
    fn a_stream_without_a_name_is_rejected() {
        for (stream, event) in [("{severity}", event()), ("{header.s}", event().header("s", ""))] {
            assert!(
                matches!(encode(stream, None, event), Err(Outcome::Reject { .. })),
                "{stream}"
            );
        }
    }
}
