//! The event's fields: the one place that lists them.
//!
//! The struct, the columns, what an insert binds and how a row is read all follow from one list. Statements name the
//! columns with `/*event_columns*/`, which [`with_columns`] replaces, so that a reader may rely on their order.
//! `CONTRIBUTING.md` says what else a new field needs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;
use uuid::Uuid;

/// A column of the event.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its name, which is also the field's.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text, or null.
    Text,
    /// A number.
    Number,
    /// A UUID, or null.
    Id,
    /// A JSON object, bound as text.
    Json,
}

/// What a field binds to its column.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// For [`Kind::Text`].
    Text(Option<&'a str>),
    /// For [`Kind::Number`].
    Number(i32),
    /// For [`Kind::Id`].
    Id(Option<Uuid>),
    /// For [`Kind::Json`].
    Json(Cow<'a, str>),
}

/// A row of a database, read column by column in the order of [`COLUMNS`].
pub trait Columns {
    /// Why a column cannot be read.
    type Error;

    /// Reads text.
    ///
    /// # Errors
    /// When the row has no such column.
    fn text(&mut self, column: &'static str) -> Result<Option<String>, Self::Error>;

    /// Reads a number.
    ///
    /// # Errors
    /// When the row has no such column.
    fn number(&mut self, column: &'static str) -> Result<i32, Self::Error>;

    /// Reads an id.
    ///
    /// # Errors
    /// When the row has no such column.
    fn id(&mut self, column: &'static str) -> Result<Option<Uuid>, Self::Error>;

    /// Reads a JSON object of texts: see [`texts_of`].
    ///
    /// # Errors
    /// When the row has no such column.
    fn texts(&mut self, column: &'static str) -> Result<BTreeMap<String, String>, Self::Error>;
}

/// A type that a field of the envelope may have.
trait Field: Sized {
    const KIND: Kind;
    fn value(&self) -> Value<'_>;
    fn read<C: Columns>(row: &mut C, column: &'static str) -> Result<Self, C::Error>;

    /// The text, if it is one.
    fn text(&self) -> Option<&str> {
        None
    }
}

impl Field for String {
    const KIND: Kind = Kind::Text;
    fn value(&self) -> Value<'_> {
        Value::Text(Some(self))
    }
    fn read<C: Columns>(row: &mut C, column: &'static str) -> Result<Self, C::Error> {
        Ok(row.text(column)?.unwrap_or_default())
    }
    fn text(&self) -> Option<&str> {
        Some(self)
    }
}

impl Field for Option<String> {
    const KIND: Kind = Kind::Text;
    fn value(&self) -> Value<'_> {
        Value::Text(self.as_deref())
    }
    fn read<C: Columns>(row: &mut C, column: &'static str) -> Result<Self, C::Error> {
        row.text(column)
    }
    fn text(&self) -> Option<&str> {
        self.as_deref()
    }
}

impl Field for i32 {
    const KIND: Kind = Kind::Number;
    fn value(&self) -> Value<'_> {
        Value::Number(*self)
    }
    fn read<C: Columns>(row: &mut C, column: &'static str) -> Result<Self, C::Error> {
        row.number(column)
    }
}

impl Field for Option<Uuid> {
    const KIND: Kind = Kind::Id;
    fn value(&self) -> Value<'_> {
        Value::Id(*self)
    }
    fn read<C: Columns>(row: &mut C, column: &'static str) -> Result<Self, C::Error> {
        row.id(column)
    }
}

impl Field for BTreeMap<String, String> {
    const KIND: Kind = Kind::Json;
    fn value(&self) -> Value<'_> {
        Value::Json(if self.is_empty() {
            Cow::Borrowed("{}") // most events
        } else {
            Cow::Owned(serde_json::to_string(self).expect("a map of texts has a JSON form"))
        })
    }
    fn read<C: Columns>(row: &mut C, column: &'static str) -> Result<Self, C::Error> {
        row.texts(column)
    }
}

macro_rules! envelope {
    ($($(#[$meta:meta])* $name:ident: $type:ty,)+) => {
        /// The fields of an event, except its payload.
        ///
        /// An [`Event`](struct@crate::Event) has one, and so has every type that shows an event somewhere else: a
        /// received message, a row that an operator sees. Their fields read as the event's own: `event.topic`.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub struct Envelope {
            /// The event's id: the same on every attempt, at every destination.
            #[serde(rename = "event_id")]
            pub id: Uuid,
            $($(#[$meta])* pub $name: $type,)+
        }

        /// The columns that hold an envelope, except its id.
        pub const COLUMNS: &[Column] = &[
            $(Column { name: stringify!($name), kind: <$type as Field>::KIND }),+
        ];

        impl Default for Envelope {
            /// A nil id, empty texts and version 1.
            fn default() -> Self {
                let empty = Self { id: Uuid::nil(), $($name: Default::default()),+ };
                Self { event_version: 1, ..empty }
            }
        }

        impl Envelope {
            /// What each of [`COLUMNS`] holds, in their order.
            #[doc(hidden)]
            pub fn values(&self) -> [Value<'_>; COLUMNS.len()] {
                [$(Field::value(&self.$name)),+]
            }

            /// The text fields that are set, with the names of their columns.
            #[doc(hidden)]
            pub fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
                let all = [$((stringify!($name), Field::text(&self.$name))),+];
                all.into_iter().filter_map(|(name, text)| Some((name, text?)))
            }

            /// Reads an envelope from the next columns of a row, which are [`COLUMNS`].
            ///
            /// # Errors
            /// When a column is missing.
            #[doc(hidden)]
            pub fn read<C: Columns>(id: Uuid, row: &mut C) -> Result<Self, C::Error> {
                Ok(Self { id, $($name: Field::read(row, stringify!($name))?),+ })
            }
        }
    };
}

envelope! {
    /// The service or module that publishes.
    namespace: String,
    /// What is published, within the namespace.
    topic: String,
    /// What kind of thing happened, for example `OrderCreated`.
    event_type: Option<String>,
    /// The version of the payload's shape.
    event_version: i32,
    /// What kind of thing it happened to, for example `order`.
    aggregate_type: Option<String>,
    /// Which one it happened to.
    aggregate_id: Option<String>,
    /// The tenant that the event belongs to. For routing and scope; never part of idempotency.
    tenant_id: Option<Uuid>,
    /// Events with equal namespace, key and destination are sent one after another.
    ordering_key: Option<String>,
    /// The severity, for the routing of notifications.
    severity: Option<String>,
    /// The media type of the payload, if it is not plain JSON.
    content_type: Option<String>,
    /// How the payload is encoded, for example `zstd`.
    content_encoding: Option<String>,
    /// Sent along with the event.
    #[serde(deserialize_with = "lenient")]
    headers: BTreeMap<String, String>,
    // Last: a statement may return the parent's key for a sibling, which has none of its own.
    /// Unique with namespace and topic: a second event with the same key is "already enqueued".
    dedupe_key: Option<String>,
}

/// The statement with the event's columns where it says `/*event_columns*/`, or `/*e.event_columns*/` for those of the
/// table `e`: all except the dedupe key, which the statement names right after them.
pub fn with_columns(statement: &str) -> String {
    statement
        .replace("/*event_columns*/", &listed(|column| column.name.to_owned()))
        .replace(
            "/*e.event_columns*/",
            &listed(|column| format!("e.{}", column.name)),
        )
}

/// Lists each column except the dedupe key, with a comma at the end.
pub(crate) fn listed(write: impl FnMut(&Column) -> String) -> String {
    let columns = COLUMNS.iter().filter(|column| column.name != "dedupe_key");
    columns.map(write).collect::<Vec<_>>().join(", ") + ","
}

/// Headers as they are sent. Another program may have written a value that is not text: it is sent as JSON. Null is left
/// out.
pub fn texts_of(json: &[u8]) -> BTreeMap<String, String> {
    if json == b"{}" {
        return BTreeMap::new(); // most rows
    }
    let values: BTreeMap<String, Json> = serde_json::from_slice(json).unwrap_or_default();
    values.into_iter().filter_map(text_of).collect()
}

fn text_of((name, value): (String, Json)) -> Option<(String, String)> {
    match value {
        Json::Null => None,
        Json::String(text) => Some((name, text)),
        Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => Some((name, value.to_string())),
    }
}

fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let values = BTreeMap::<String, Json>::deserialize(deserializer)?;
    Ok(values.into_iter().filter_map(text_of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dedupe_key_is_the_last_column() {
        assert_eq!(COLUMNS.last().map(|column| column.name), Some("dedupe_key"));
        let sql = with_columns("select /*e.event_columns*/ e.dedupe_key");
        assert!(sql.starts_with("select e.namespace, e.topic, "), "{sql}");
        assert!(sql.ends_with(", e.headers, e.dedupe_key"), "{sql}");
    }

    #[test]
    fn a_header_that_is_no_text_is_sent_as_its_json() {
        let headers = texts_of(br#"{"a": "x", "b": 1, "c": null, "d": [true]}"#);
        let pairs: Vec<_> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(pairs, [("a", "x"), ("b", "1"), ("d", "[true]")]);
        assert!(texts_of(b"no JSON").is_empty());
    }
}
