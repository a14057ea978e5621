//! Decodes a Kafka record into an event.

use bytes::Bytes;
use pillarbox::internal::derived_id;
use pillarbox_sinks::message::{self, Incoming, Protocol};
use rdkafka::message::{Headers, Message, OwnedHeaders};
use uuid::{Uuid, uuid};

use crate::received::Received;
use crate::subscription::OrderingKey;

/// The UUID namespace of ids that are derived from a record's position. It never changes, because inboxes hold such ids.
const POSITIONS: Uuid = uuid!("019a8661-2b54-5d3e-a8c1-706c61636573");

/// A record with its own copy of the data.
pub(super) struct Record {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) headers: Option<OwnedHeaders>,
    /// None is a tombstone.
    pub(super) body: Option<Bytes>,
    /// An id that is derived from its position.
    position_id: Uuid,
}

impl Record {
    pub(super) fn of<H: Headers, M: Message<Headers = H>>(message: &M) -> Self {
        Self {
            topic: message.topic().to_owned(),
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            headers: message.headers().map(copied),
            body: message.payload().map(Bytes::copy_from_slice),
            position_id: position_id(message),
        }
    }

    /// The size of its key, headers and body.
    pub(super) fn len(&self) -> usize {
        let headers = self.headers.iter().flat_map(Headers::iter);
        let headers = headers.map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len));
        self.key.as_ref().map_or(0, Vec::len)
            + self.body.as_ref().map_or(0, Bytes::len)
            + headers.sum::<usize>()
    }

    /// The event, or why the record holds none. The id of another producer's record is derived from its position: topic,
    /// partition, offset and time, which are the same at every delivery.
    pub(super) fn event(&self) -> Result<Received<Bytes>, String> {
        let mut incoming = Incoming {
            body: self.body.clone().unwrap_or_default(),
            ..Incoming::default()
        };
        for header in self.headers.iter().flat_map(Headers::iter) {
            let value = String::from_utf8_lossy(header.value.unwrap_or_default()).into_owned();
            if header.key.eq_ignore_ascii_case("content-type") {
                incoming.content_type = Some(value);
            } else if header.key.eq_ignore_ascii_case("content-encoding") {
                incoming.content_encoding = Some(value);
            } else {
                incoming.headers.push((header.key.to_owned(), value));
            }
        }
        let read = message::read(Protocol::Kafka, incoming).map_err(|error| error.to_string())?;
        let mut event =
            Received::from_read(read, Some(self.position_id), &self.topic).ok_or("record has no id")?;
        if event.ordering_key.is_none() {
            let key = self.key.as_ref().and_then(|key| std::str::from_utf8(key).ok());
            event.ordering_key = key.map(str::to_owned);
        }
        Ok(event)
    }

    /// The event's key, else the record's own key, which may be any bytes.
    pub(super) fn ordering_key(&self, event: &Received<Bytes>) -> Option<OrderingKey> {
        OrderingKey::of(event).or_else(|| {
            Some(OrderingKey {
                namespace: event.namespace.clone(),
                key: self.key.clone()?,
            })
        })
    }
}

fn copied(headers: &impl Headers) -> OwnedHeaders {
    let empty = OwnedHeaders::new_with_capacity(headers.count());
    headers.iter().fold(empty, OwnedHeaders::insert)
}

fn position_id(message: &impl Message) -> Uuid {
    let time = message.timestamp().to_millis().unwrap_or_default();
    let name = format!(
        "{}/{}/{}/{time}",
        message.topic(),
        message.partition(),
        message.offset()
    );
    derived_id(&POSITIONS, &name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::Timestamp;
    use rdkafka::message::{Header, OwnedMessage};

    fn record(key: Option<&[u8]>, offset: i64, headers: &[(&str, &str)]) -> Record {
        let headers = headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header {
                key,
                value: Some(*value),
            })
        });
        Record::of(&OwnedMessage::new(
            Some(b"{}".to_vec()),
            key.map(<[u8]>::to_vec),
            "orders".to_owned(),
            Timestamp::CreateTime(7),
            3,
            offset,
            Some(headers),
        ))
    }

    fn read(record: &Record) -> Received<Bytes> {
        record.event().unwrap()
    }

    #[test]
    fn a_record_of_another_producer_is_identified_by_its_position() {
        let first = read(&record(Some(b"42"), 1, &[]));
        assert_eq!(first.id, read(&record(None, 1, &[])).id);
        assert_ne!(first.id, read(&record(Some(b"42"), 2, &[])).id);
        assert_eq!(first.id.get_version_num(), 8, "no producer may choose it");
        assert_eq!((first.topic.as_str(), first.event_version), ("orders", 1));
        assert_eq!(
            (first.event_type.as_deref(), first.ordering_key.as_deref()),
            (None, Some("42"))
        );
    }

    #[test]
    fn the_events_key_takes_precedence_and_any_bytes_are_a_key() {
        let ours = record(Some(b"aggregate"), 1, &[("pillarbox-key", "order-1")]);
        assert_eq!(read(&ours).ordering_key.as_deref(), Some("order-1"));
        let bytes = record(Some(b"\xff\xfe"), 1, &[]);
        let event = read(&bytes);
        assert_eq!(event.ordering_key, None);
        assert_eq!(bytes.ordering_key(&event).unwrap().key, b"\xff\xfe");
        let none = record(None, 1, &[]);
        assert_eq!(none.ordering_key(&read(&none)), None);
    }

    #[test]
    fn the_size_of_a_record_counts_its_headers() {
        let size = |headers: &[(&str, &str)]| record(Some(b"key"), 1, headers).len();
        assert_eq!(
            (size(&[]), size(&[("x-large", &"x".repeat(1_000))])),
            (5, 5 + 7 + 1_000)
        );
    }

    #[test]
    fn the_media_type_is_not_one_of_the_events_headers() {
        let event = read(&record(None, 1, &[("Content-Type", "text/plain"), ("x", "y")]));
        assert_eq!(event.content_type.as_deref(), Some("text/plain"));
        assert_eq!(event.headers.len(), 1);
    }
}
