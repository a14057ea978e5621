//! An event as a Kafka record.
//!
//! The record's timestamp is not that of the event. The retention of a topic counts from the timestamp, so an event that
//! waited longer would be deleted on arrival. A header has the time of the event.

use bytes::Bytes;
use pillarbox::{Delivery, Outcome};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::FutureRecord;

use crate::address::Address;
use crate::headers::taken;
use crate::message::{Parts, Writer};
use crate::template::Template;

/// The longest name of a topic: the broker makes a folder of it.
const MAX_TOPIC: usize = 249;

/// A record, owned.
pub(super) struct Record {
    topic: String,
    key: Option<String>,
    headers: OwnedHeaders,
    payload: Bytes,
}

impl Record {
    /// The record for the client library.
    pub(super) fn borrowed(&self) -> FutureRecord<'_, str, [u8]> {
        let record = FutureRecord::to(&self.topic)
            .payload(self.payload.as_ref())
            .headers(self.headers.clone());
        match &self.key {
            Some(key) => record.key(key),
            None => record,
        }
    }
}

/// Without a template for the key: the ordering key, else the aggregate's id, else none.
pub(super) fn record(
    delivery: &Delivery,
    topic: &Address,
    key: Option<&Template>,
    writer: &Writer,
) -> Result<Record, Outcome> {
    let event = &delivery.event;
    let key = match key {
        Some(template) => {
            let rendered = template.render(delivery, writer.destination());
            Some(rendered.map_err(|missing| Outcome::reject(missing.to_string()))?)
        }
        None => event
            .ordering_key
            .as_ref()
            .or(event.aggregate_id.as_ref())
            .cloned(),
    };
    let topic = topic.render(delivery, writer.destination())?;
    legal_topic(&topic)?;
    let parts = writer.write(delivery)?;
    Ok(Record {
        topic,
        key,
        headers: all_headers(&parts),
        payload: parts.body,
    })
}

fn legal_topic(topic: &str) -> Result<(), Outcome> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let problem = if topic.is_empty() {
        "it is empty"
    } else if topic.len() > MAX_TOPIC {
        "it is longer than 249 characters"
    } else if matches!(topic, "." | "..") {
        "the name is reserved by Kafka"
    } else if !topic.bytes().all(legal) {
        "only letters, digits, `.`, `_` and `-` are allowed"
    } else {
        return Ok(());
    };
    Err(Outcome::reject(format!(
        "`{}` is not a valid topic name: {problem}",
        topic.escape_debug()
    )))
}

/// A Kafka record has no field for the media type, so it is a header.
fn all_headers(parts: &Parts<'_>) -> OwnedHeaders {
    let mut all = OwnedHeaders::new_with_capacity(parts.headers.len() + 2);
    all = insert(all, "content-type", parts.content_type);
    if let Some(encoding) = parts.content_encoding {
        all = insert(all, "content-encoding", encoding);
    }
    for (name, value) in &parts.headers {
        all = insert(all, name, value);
    }
    all
}

/// Why the configuration cannot add a header.
pub(super) fn legal_header(name: &str, _: &str) -> Result<(), String> {
    if taken::by_payload(name) {
        return Err("it describes the payload".to_owned());
    }
    Ok(())
}

fn insert(headers: OwnedHeaders, key: &str, value: &str) -> OwnedHeaders {
    headers.insert(Header {
        key,
        value: Some(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::address;
    use crate::headers::Added;
    use crate::message::KAFKA;
    use crate::sample::{added, delivery};
    use pillarbox::Event;
    use rdkafka::message::Headers;

    fn encode(topic: &str, key: Option<&str>, event: Event) -> Result<Record, Outcome> {
        let topic = address("topic", topic, '.');
        let key = key.map(|key| Template::parse(key).unwrap());
        let writer = Writer::new("stream", &KAFKA, Added::default());
        record(&delivery(event), &topic, key.as_ref(), &writer)
    }

    fn encode_with(headers: &[(&str, &str)], event: Event) -> Result<Record, Outcome> {
        let topic = address("topic", "{topic}", '.');
        let writer = Writer::new("stream", &KAFKA, added(headers, legal_header).unwrap());
        record(&delivery(event), &topic, None, &writer)
    }

    fn event() -> Event {
        Event::new("shop", "orders")
    }

    fn key(event: Event) -> Option<String> {
        encode("{topic}", None, event).ok().unwrap().key
    }

    #[test]
    fn the_key_is_the_ordering_key_else_the_aggregate_else_none() {
        assert_eq!(key(event()), None);
        assert_eq!(key(event().aggregate("order", "42")).as_deref(), Some("42"));
        assert_eq!(
            key(event().aggregate("order", "42").ordering_key("k")).as_deref(),
            Some("k")
        );
    }

    #[test]
    fn a_key_that_was_asked_for_must_be_there() {
        assert!(matches!(
            encode("{topic}", Some("{severity}"), event()),
            Err(Outcome::Reject { .. })
        ));
        let record = encode("{topic}", Some("{namespace}-{topic}"), event())
            .ok()
            .unwrap();
        assert_eq!(record.key.as_deref(), Some("shop-orders"));
    }

    #[test]
    fn a_topic_that_kafka_cannot_have_is_rejected() {
        for topic in ["", ".", "..", "a b", "a/b", "é", "a\0", &"x".repeat(250)] {
            let event = event().header("t", topic);
            assert!(
                matches!(encode("{header.t}", None, event), Err(Outcome::Reject { .. })),
                "{topic}"
            );
        }
        for topic in ["a", "A.b_c-9", &"x".repeat(249)] {
            assert!(
                encode("{header.t}", None, event().header("t", topic)).is_ok(),
                "{topic}"
            );
        }
    }

    #[test]
    fn the_media_type_is_a_header_that_the_event_cannot_override() {
        let record = encode(
            "{topic}",
            None,
            event()
                .header("Content-Type", "forged")
                .header("content_type", "forged")
                .header("x", "y"),
        );
        let headers = record.ok().unwrap().headers;
        let all: Vec<(&str, &[u8])> = headers.iter().map(|h| (h.key, h.value.unwrap())).collect();
        assert!(all.contains(&("content-type", b"application/json")));
        assert!(all.contains(&("x", b"y")));
        assert!(all.iter().all(|(_, value)| *value != b"forged"));
        assert!(all.iter().any(|(name, _)| *name == "pillarbox-id"));
    }

    #[test]
    fn configured_headers_are_made_from_the_event_and_win() {
        let event = event().header("X-Topic", "theirs").header("x-own", "kept");
        let record = encode_with(&[("x-topic", "a.{topic}")], event).ok().unwrap();
        let all: Vec<(&str, &[u8])> = (record.headers.iter())
            .map(|header| (header.key, header.value.unwrap()))
            .collect();
        assert!(all.contains(&("x-topic", b"a.orders")));
        assert!(all.contains(&("x-own", b"kept")));
        assert!(all.iter().all(|(_, value)| *value != b"theirs"));
    }

    #[test]
    fn an_event_that_makes_no_configured_header_is_rejected() {
        let Err(Outcome::Reject { reason }) = encode_with(&[("x-severity", "{severity}")], event()) else {
            panic!("not rejected")
        };
        assert_eq!(
            reason,
            "the event has no `severity`, which the header `x-severity` needs"
        );
    }

    #[test]
    fn a_configured_header_that_is_ours_is_refused() {
        for name in ["Content-Type", "content-encoding", "pillarbox-id", "a\0b"] {
            let error = added(&[(name, "x")], legal_header).err().unwrap();
            assert_eq!(error.key, "headers", "{name}");
        }
    }
}
