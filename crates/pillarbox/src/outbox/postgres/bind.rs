//! An event as the parameters of a statement: one row, or an array for each column.

use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::Value;
use crate::envelope::{self, COLUMNS, Column, Kind, listed, with_columns};
use crate::event::Event;
use crate::payload::Payload;

/// How many parameters come before those of the event's columns: see [`row`].
const BEFORE: usize = 5;

/// The statement with the event's columns and their parameters in it.
pub(super) fn with_parameters(text: &str) -> String {
    let cast = |column: &Column| match column.kind {
        Kind::Json => "::jsonb",
        Kind::Text | Kind::Number | Kind::Id => "",
    };
    let arrays = |kind| match kind {
        Kind::Text | Kind::Json => "text",
        Kind::Number => "int",
        Kind::Id => "uuid",
    };
    let numbered = |write: &dyn Fn(usize, &Column) -> String| {
        let columns = (BEFORE + 1..).zip(COLUMNS);
        let all: Vec<String> = columns.map(|(number, column)| write(number, column)).collect();
        all.join(", ") + ","
    };
    let parameter = |number, column: &Column| match column.kind {
        Kind::Json => format!("${number}::text::jsonb"),
        Kind::Text | Kind::Number | Kind::Id => format!("${number}"),
    };
    let array = |number, column: &Column| format!("${number}::{}[]", arrays(column.kind));
    with_columns(text)
        .replace("/*event_parameters*/", &numbered(&parameter))
        .replace("/*event_arrays*/", &numbered(&array))
        .replace(
            "/*event_values*/",
            &listed(|column| format!("{}{}", column.name, cast(column))),
        )
}

/// An event with its parameters, converted.
pub(super) struct Bound<'a> {
    event: &'a Event,
    envelope: [envelope::Value<'a>; COLUMNS.len()],
    deliver_at: Option<String>,
}

impl<'a> Bound<'a> {
    pub(super) fn of(event: &'a Event) -> Self {
        Self {
            event,
            envelope: event.values(),
            deliver_at: deliver_at(event),
        }
    }
}

/// One event as the parameters of `enqueue.sql`.
pub(super) fn row<'a>(bound: &'a Bound<'a>) -> Vec<Value<'a>> {
    let event = bound.event;
    let before: [_; BEFORE] = [
        Value::Id(Some(event.id)),
        Value::Text(Some(json(event))),
        Value::Bytes(body(event)),
        Value::Text(event.destination.as_deref()),
        Value::Text(bound.deliver_at.as_deref()),
    ];
    let columns = bound.envelope.iter().map(|value| match value {
        envelope::Value::Text(text) => Value::Text(*text),
        envelope::Value::Number(number) => Value::Number(*number),
        envelope::Value::Id(id) => Value::Id(*id),
        envelope::Value::Json(json) => Value::Text(Some(json)),
    });
    before.into_iter().chain(columns).collect()
}

/// Many rows as the parameters of `enqueue_all.sql`: an array for each column.
pub(super) fn columns<'a>(rows: &[Vec<Value<'a>>]) -> Vec<Value<'a>> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let column = |(place, value): (usize, &Value<'a>)| {
        let cells = rows.iter().map(|row| &row[place]);
        match value {
            Value::Id(_) => Value::Ids(cells.map(Value::id).collect()),
            Value::Text(_) => Value::Texts(cells.map(Value::text).collect()),
            Value::Number(_) => Value::Numbers(cells.map(Value::number).collect()),
            Value::Bytes(_) => Value::Bodies(cells.map(Value::bytes).collect()),
            Value::Ids(_) | Value::Texts(_) | Value::Numbers(_) | Value::Bodies(_) => {
                unreachable!("a row has no arrays")
            }
        }
    };
    first.iter().enumerate().map(column).collect()
}

impl<'a> Value<'a> {
    fn id(&self) -> Option<Uuid> {
        if let Self::Id(id) = self { *id } else { None }
    }

    fn text(&self) -> Option<&'a str> {
        if let Self::Text(text) = self { *text } else { None }
    }

    fn number(&self) -> i32 {
        if let Self::Number(number) = self {
            *number
        } else {
            0
        }
    }

    fn bytes(&self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self {
            *bytes
        } else {
            None
        }
    }
}

/// The value of the column `payload`.
fn json(event: &Event) -> &str {
    match &event.payload {
        // Checked to be UTF-8 by `validate`, since it is JSON.
        Payload::Json(text) => std::str::from_utf8(text).unwrap_or("null"),
        Payload::Bytes(_) => "null",
    }
}

/// The value of the column `body`.
fn body(event: &Event) -> Option<&[u8]> {
    match &event.payload {
        Payload::Json(_) => None,
        Payload::Bytes(body) => Some(body),
    }
}

/// RFC 3339 has no year after 9999, which validation rejects, and none before 0, which means now.
fn deliver_at(event: &Event) -> Option<String> {
    event.deliver_at?.format(&Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_and_a_column_say_the_same_in_the_same_order() {
        let event = Event::new("shop", "orders")
            .event_type("OrderCreated")
            .aggregate("order", "42")
            .tenant(Uuid::nil())
            .dedupe_key("once")
            .ordering_key("key")
            .severity("low")
            .destination("broker")
            .bytes(&b"x"[..], "text/plain");
        let bound = Bound::of(&event);
        let one = row(&bound);
        let many = columns(std::slice::from_ref(&one));
        assert_eq!(one.len(), many.len());
        for (one, many) in one.iter().zip(&many) {
            let same = match (one, many) {
                (Value::Id(one), Value::Ids(many)) => *one == many[0],
                (Value::Text(one), Value::Texts(many)) => *one == many[0],
                (Value::Number(one), Value::Numbers(many)) => *one == many[0],
                (Value::Bytes(one), Value::Bodies(many)) => *one == many[0],
                _ => false,
            };
            assert!(same, "{one:?} and {many:?}");
        }
    }
}
