//! An event as an AMQP message.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use pillarbox::{Delivery, Outcome};

use super::channel::Message;
use crate::address::Address;
use crate::headers::Header;
use crate::message::Writer;

/// To be written to disk by the broker.
const PERSISTENT: u8 = 2;
/// The bytes of a table entry beside its name and value: two lengths and a type.
const ENTRY_OVERHEAD: usize = 6;
/// The most bytes of all properties without the headers, with their frame.
const PROPERTIES: usize = 2048;

/// The message, and the largest size of the frame with its properties. Names that are too long for AMQP are rejected here:
/// the broker would close the connection.
pub(super) fn message(
    delivery: &Delivery,
    routing_key: &Address,
    writer: &Writer,
) -> Result<(Message, usize), Outcome> {
    let routing_key = routing_key.render(delivery, writer.destination())?;
    let event = &delivery.event;
    let parts = writer.write(delivery)?;
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_app_id("pillarbox".into())
        .with_message_id(short("message id", &event.id.to_string())?)
        .with_content_type(short("content type", parts.content_type)?);
    if let Some(encoding) = parts.content_encoding {
        properties = properties.with_content_encoding(short("content encoding", encoding)?);
    }
    if let Some(event_type) = &event.event_type {
        properties = properties.with_type(short("event type", event_type)?);
    }
    if let Ok(seconds) = u64::try_from(delivery.created_at.unix_timestamp()) {
        properties = properties.with_timestamp(seconds);
    }
    let (table, header_size) = table(parts.headers)?;
    let message = Message {
        id: event.id,
        routing_key: short("routing key", &routing_key)?,
        properties: properties.with_headers(table),
        body: parts.body,
    };
    Ok((message, header_size))
}

/// Why the configuration cannot add a header.
pub(super) fn legal_header(name: &str, _: &str) -> Result<(), String> {
    if is_kept(name) {
        return Err("it is reserved by RabbitMQ".to_owned());
    }
    match ShortString::try_new(name) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("it is {} bytes long; AMQP allows 255", name.len())),
    }
}

/// RabbitMQ reads lists of further routing keys from these. It closes the channel if it finds a text.
fn is_kept(name: &str) -> bool {
    matches!(name, "CC" | "BCC")
}

fn table(headers: Vec<Header<'_>>) -> Result<(FieldTable, usize), Outcome> {
    let mut table = FieldTable::default();
    let mut size = PROPERTIES;
    for (name, value) in headers {
        if is_kept(name) {
            return Err(Outcome::reject(format!(
                "the event has the header `{name}`, which RabbitMQ reserves (rename it)"
            )));
        }
        size += ENTRY_OVERHEAD + name.len() + value.len();
        let value = AMQPValue::LongString(value.into_owned().into());
        table.insert(short("header name", name)?, value);
    }
    Ok((table, size))
}

fn short(what: &str, text: &str) -> Result<ShortString, Outcome> {
    ShortString::try_new(text).map_err(|_| {
        Outcome::reject(format!(
            "the {what} is {} bytes long; AMQP allows 255",
            text.len()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::address;
    use crate::message::AMQP;
    use crate::sample::{added, delivery};
    use pillarbox::Event;

    fn encode(routing_key: &str, event: Event) -> Result<Message, Outcome> {
        encode_with(&[], routing_key, event)
    }

    fn encode_with(headers: &[(&str, &str)], routing_key: &str, event: Event) -> Result<Message, Outcome> {
        let template = address("routing_key", routing_key, '.');
        let writer = Writer::new("queue", &AMQP, added(headers, legal_header).unwrap());
        message(&delivery(event), &template, &writer).map(|(message, _)| message)
    }

    fn event() -> Event {
        Event::new("shop", "orders").event_type("OrderCreated")
    }

    #[test]
    fn properties_say_what_the_event_is() {
        let event = event().header("traceparent", "00-1");
        let id = event.id.to_string();
        let message = encode("arap.{event_type}", event).ok().unwrap();
        assert_eq!(message.routing_key.as_str(), "arap.OrderCreated");
        let properties = message.properties;
        assert_eq!(*properties.delivery_mode(), Some(2));
        assert_eq!(properties.message_id().as_ref().unwrap().as_str(), id);
        assert_eq!(properties.kind().as_ref().unwrap().as_str(), "OrderCreated");
        assert_eq!(
            properties.content_type().as_ref().unwrap().as_str(),
            "application/json"
        );
        assert_eq!(*properties.timestamp(), Some(1_767_323_045));
        let headers = properties.headers().as_ref().unwrap().inner();
        assert_eq!(headers["pillarbox-id"], AMQPValue::LongString(id.into()));
        assert_eq!(headers["traceparent"], AMQPValue::LongString("00-1".into()));
    }

    #[test]
    fn names_over_255_bytes_are_rejected() {
        // 128 characters, 256 bytes: bytes count.
        let long = "é".repeat(128);
        for bad in [
            encode("{topic}", Event::new("shop", long.as_str())),
            encode("{topic}", event().event_type(long.as_str())),
            encode("{topic}", event().header(long.as_str(), "")),
            encode("{topic}", event().bytes(&b""[..], long.as_str())),
        ] {
            let Err(Outcome::Reject { reason }) = bad else {
                panic!("not rejected")
            };
            assert!(reason.contains("256 bytes long; AMQP allows 255"), "{reason}");
        }
        assert!(encode("{topic}", Event::new("shop", "x".repeat(255))).is_ok());
    }

    #[test]
    fn a_header_that_rabbitmq_keeps_for_itself_is_rejected() {
        for name in ["CC", "BCC"] {
            assert!(matches!(
                encode("{topic}", event().header(name, "x")),
                Err(Outcome::Reject { .. })
            ));
        }
        assert!(encode("{topic}", event().header("cc", "x")).is_ok());
    }

    #[test]
    fn configured_headers_are_made_from_the_event_and_win() {
        let event = event().header("X-Type", "theirs").header("x-own", "kept");
        let message = encode_with(&[("x-type", "a.{event_type}")], "{topic}", event)
            .ok()
            .unwrap();
        let headers = message.properties.headers().as_ref().unwrap().inner();
        assert_eq!(headers["x-type"], AMQPValue::LongString("a.OrderCreated".into()));
        assert_eq!(headers["x-own"], AMQPValue::LongString("kept".into()));
        assert!(!headers.contains_key("X-Type"));
    }

    #[test]
    fn a_configured_header_that_rabbitmq_cannot_take_is_refused() {
        for name in ["CC", "BCC", "pillarbox-id", &"x".repeat(256)] {
            let error = added(&[(name, "x")], legal_header).err().unwrap();
            assert_eq!(error.key, "headers", "{name}");
        }
        assert!(added(&[("cc", "x"), (&"x".repeat(255), "x")], legal_header).is_ok());
    }

    #[test]
    fn a_missing_value_is_rejected() {
        for encoded in [
            encode("{severity}", event()),
            encode_with(&[("x-severity", "{severity}")], "{topic}", event()),
        ] {
            let Err(Outcome::Reject { reason }) = encoded else {
                panic!("not rejected")
            };
            assert!(reason.contains("no `severity`"), "{reason}");
        }
    }
}
