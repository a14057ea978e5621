//! An event as a Kafka record.
//!
//! The record has no timestamp of the event: a topic's retention counts from it, so that an event that
//! waited longer than the retention would be thrown away on arrival. `pillarbox-created-at` has it.

use bytes::Bytes;
use pillarbox::{Delivery, Outcome};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::FutureRecord;

use crate::headers;
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
    /// The record as the client takes it.
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
    destination: &str,
    topic: &Template,
    key: Option<&Template>,
) -> Result<Record, Outcome> {
    let render = |template: &Template| {
        template
            .render(delivery, destination)
            .map_err(|missing| Outcome::reject(missing.to_string()))
    };
    let event = &delivery.event;
    let key = match key {
        Some(template) => Some(render(template)?),
        None => event
            .ordering_key
            .as_ref()
            .or(event.aggregate_id.as_ref())
            .cloned(),
    };
    let topic = render(topic)?;
    legal_topic(&topic)?;
    Ok(Record {
        topic,
        key,
        headers: all_headers(delivery),
        payload: event.payload.as_bytes().clone(),
    })
}

fn legal_topic(topic: &str) -> Result<(), Outcome> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let problem = if topic.is_empty() {
        "it is empty"
    } else if topic.len() > MAX_TOPIC {
        "it is longer than 249 characters"
    } else if matches!(topic, "." | "..") {
        "Kafka keeps that name for itself"
    } else if !topic.bytes().all(legal) {
        "only letters, digits, `.`, `_` and `-` are allowed"
    } else {
        return Ok(());
    };
    Err(Outcome::reject(format!(
        "`{}` is no name for a topic: {problem}",
        topic.escape_debug()
    )))
}

/// Kafka has no place of its own for the media type, so it travels as a header.
fn all_headers(delivery: &Delivery) -> OwnedHeaders {
    let event = &delivery.event;
    let own = headers::of(delivery);
    let mut all = OwnedHeaders::new_with_capacity(own.len() + 2);
    all = insert(all, "content-type", event.media_type());
    if let Some(encoding) = &event.content_encoding {
        all = insert(all, "content-encoding", encoding);
    }
    let is_ours = |name: &str| {
        name.eq_ignore_ascii_case("content-type") || name.eq_ignore_ascii_case("content-encoding")
    };
    for (name, value) in own.iter().filter(|(name, _)| !is_ours(name)) {
        all = insert(all, name, value);
    }
    all
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
    use crate::sample::delivery;
    use pillarbox::Event;
    use rdkafka::message::Headers;

    fn encode(topic: &str, key: Option<&str>, event: Event) -> Result<Record, Outcome> {
        let topic = Template::parse(topic).unwrap();
        let key = key.map(|key| Template::parse(key).unwrap());
        record(&delivery(event), "stream", &topic, key.as_ref())
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
        for topic in ["a", "A.b_c-9", "...", &"x".repeat(249)] {
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
            event().header("Content-Type", "forged").header("x", "y"),
        );
        let headers = record.ok().unwrap().headers;
        let all: Vec<(&str, &[u8])> = headers.iter().map(|h| (h.key, h.value.unwrap())).collect();
        assert!(all.contains(&("content-type", b"application/json")));
        assert!(all.contains(&("x", b"y")));
        assert!(all.iter().all(|(_, value)| *value != b"forged"));
        assert!(all.iter().any(|(name, _)| *name == "pillarbox-id"));
    }
}
