//! Decodes an AMQP message into an event.

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use pillarbox_sinks::message::{self, Incoming, Protocol};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::received::Received;

/// The event, or why the message holds none. Messages of other producers may use the AMQP properties `message_id`, `type`
/// and `timestamp`.
pub(super) fn event(
    properties: &BasicProperties,
    body: Bytes,
    routing_key: &str,
) -> Result<Received<Bytes>, String> {
    let text = |value: &Option<lapin::types::ShortString>| value.as_ref().map(ToString::to_string);
    let incoming = Incoming {
        headers: headers(properties),
        content_type: text(properties.content_type()),
        content_encoding: text(properties.content_encoding()),
        body,
    };
    let read = message::read(Protocol::Amqp, incoming).map_err(|error| error.to_string())?;
    let id = text(properties.message_id()).and_then(|id| id.parse::<Uuid>().ok());
    let mut event = Received::from_read(read, id, routing_key).ok_or(
        "message has no id: no header `pillarbox-id`, no CloudEvents `id`, and no property `message_id` that is a UUID \
         (let its producer set one)",
    )?;
    if event.event_type.is_none() {
        event.event_type = text(properties.kind());
    }
    let sent = properties
        .timestamp()
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok());
    event.created_at = event.created_at.or(sent);
    Ok(event)
}

/// The size of a message in memory: its body and its headers.
pub(super) fn len(properties: &BasicProperties, body: &[u8]) -> usize {
    body.len() + properties.headers().as_ref().map_or(0, table_len)
}

fn table_len(table: &FieldTable) -> usize {
    let entries = table.inner().iter();
    entries
        .map(|(name, value)| name.as_str().len() + value_len(value))
        .sum()
}

fn value_len(value: &AMQPValue) -> usize {
    match value {
        AMQPValue::LongString(text) => text.as_bytes().len(),
        AMQPValue::ShortString(text) => text.as_str().len(),
        AMQPValue::ByteArray(bytes) => bytes.as_slice().len(),
        AMQPValue::FieldArray(values) => values.as_slice().iter().map(value_len).sum(),
        AMQPValue::FieldTable(table) => table_len(table),
        AMQPValue::Boolean(_)
        | AMQPValue::ShortShortInt(_)
        | AMQPValue::ShortShortUInt(_)
        | AMQPValue::ShortInt(_)
        | AMQPValue::ShortUInt(_)
        | AMQPValue::LongInt(_)
        | AMQPValue::LongUInt(_)
        | AMQPValue::LongLongInt(_)
        | AMQPValue::Float(_)
        | AMQPValue::Double(_)
        | AMQPValue::Timestamp(_)
        | AMQPValue::DecimalValue(_)
        | AMQPValue::Void => size_of::<u64>(),
    }
}

fn headers(properties: &BasicProperties) -> Vec<(String, String)> {
    let Some(table) = properties.headers() else {
        return Vec::new();
    };
    let pairs = table.inner().iter();
    pairs
        .filter_map(|(name, value)| Some((name.to_string(), text(value)?)))
        .collect()
}

/// The value as text. Tables and lists, such as the broker's `x-death`, are not a producer's headers.
fn text(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::LongString(text) => text.to_string(),
        AMQPValue::ShortString(text) => text.to_string(),
        AMQPValue::Boolean(is) => is.to_string(),
        AMQPValue::ShortShortInt(number) => number.to_string(),
        AMQPValue::ShortShortUInt(number) => number.to_string(),
        AMQPValue::ShortInt(number) => number.to_string(),
        AMQPValue::ShortUInt(number) => number.to_string(),
        AMQPValue::LongInt(number) => number.to_string(),
        AMQPValue::LongUInt(number) => number.to_string(),
        AMQPValue::LongLongInt(number) => number.to_string(),
        AMQPValue::Float(number) => number.to_string(),
        AMQPValue::Double(number) => number.to_string(),
        AMQPValue::Timestamp(seconds) => seconds.to_string(),
        AMQPValue::DecimalValue(_)
        | AMQPValue::FieldArray(_)
        | AMQPValue::FieldTable(_)
        | AMQPValue::ByteArray(_)
        | AMQPValue::Void => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapin::types::FieldArray;

    const ID: &str = "019a8661-2b54-7d3e-a8c1-5f0b6c1d2e3f";

    fn read(properties: &BasicProperties) -> Result<Received<Bytes>, String> {
        event(properties, Bytes::from_static(b"{}"), "orders.created")
    }

    #[test]
    fn a_message_of_another_producer_is_identified_by_its_properties() {
        let properties = BasicProperties::default()
            .with_message_id(ID.into())
            .with_type("OrderCreated".into())
            .with_timestamp(1_767_323_045);
        let event = read(&properties).unwrap();
        assert_eq!(event.id.to_string(), ID);
        assert_eq!(event.event_type.as_deref(), Some("OrderCreated"));
        assert_eq!((event.topic.as_str(), event.event_version), ("orders.created", 1));
        assert_eq!(event.created_at.unwrap().unix_timestamp(), 1_767_323_045);
    }

    #[test]
    fn a_message_without_an_id_is_rejected_with_what_is_missing() {
        for properties in [
            BasicProperties::default(),
            BasicProperties::default().with_message_id("order-42".into()),
        ] {
            let reason = read(&properties).unwrap_err();
            assert!(
                reason.contains("`pillarbox-id`") && reason.contains("`message_id`"),
                "{reason}"
            );
        }
    }

    #[test]
    fn the_size_of_a_message_counts_its_headers_however_deep() {
        let mut inner = FieldTable::default();
        inner.insert("k".into(), AMQPValue::LongString("x".repeat(1_000).into()));
        let mut table = FieldTable::default();
        table.insert(
            "x-death".into(),
            AMQPValue::FieldArray(vec![AMQPValue::FieldTable(inner)].into()),
        );
        let properties = BasicProperties::default().with_headers(table);
        assert_eq!(len(&properties, b"{}"), 2 + 7 + 1 + 1_000);
        assert_eq!(len(&BasicProperties::default(), b"{}"), 2);
    }

    #[test]
    fn pillarbox_headers_take_precedence_and_numbers_become_text() {
        let mut table = FieldTable::default();
        table.insert("pillarbox-id".into(), AMQPValue::LongString(ID.into()));
        table.insert("pillarbox-version".into(), AMQPValue::LongInt(3));
        table.insert("x-count".into(), AMQPValue::LongLongInt(7));
        table.insert("x-death".into(), AMQPValue::FieldArray(FieldArray::default()));
        let properties = BasicProperties::default()
            .with_message_id(Uuid::nil().to_string().into())
            .with_headers(table);
        let event = read(&properties).unwrap();
        assert_eq!(event.id.to_string(), ID);
        assert_eq!(event.event_version, 3);
        assert_eq!(event.headers["x-count"], "7");
        assert!(!event.headers.contains_key("x-death"));
    }
}
