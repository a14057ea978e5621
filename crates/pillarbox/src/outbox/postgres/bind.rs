//! An event as the parameters of a statement: one row, or many.
//!
//! Many events are passed as one array for each column. That costs the server about 0.1 µs per event and array (PostgreSQL
//! 15, 18 November 2026), so there are fewer arrays where possible:
//!
//! * A column that is null in every event is an array without elements.
//! * In most batches the columns that say what the events are have one value. Such a batch is [`Form::Alike`]: these columns
//!   are plain parameters.
//!
//! There are two forms and not one for every combination of columns, so that a prepared plan is used again.

use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::Value;
use crate::envelope::{self, COLUMNS, Column, Kind};
use crate::event::Event;
use crate::payload::Payload;

/// The parameters before those of the event's columns, with their types.
const BEFORE: [(&str, &str); 5] = [
    ("id", "uuid"),
    ("payload", "text"),
    ("body", "bytea"),
    ("destination", "text"),
    ("deliver_at", "text"),
];

/// The columns that differ from event to event. They are arrays in each form.
const OWN: [&str; 5] = ["id", "payload", "body", "aggregate_id", "ordering_key"];

/// How a batch is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Columns that are not [`OWN`] are plain parameters.
    Alike,
    /// Every column is an array.
    Mixed,
}

/// All parameters with their types, except the dedupe key and what follows it.
fn parameters() -> impl Iterator<Item = (&'static str, &'static str)> {
    let kind = |column: &Column| match column.kind {
        Kind::Text | Kind::Json => "text",
        Kind::Number => "int",
        Kind::Id => "uuid",
    };
    let columns = COLUMNS.iter().filter(|column| column.name != "dedupe_key");
    BEFORE
        .into_iter()
        .chain(columns.map(move |column| (column.name, kind(column))))
}

fn is_array(name: &str, form: Form) -> bool {
    form == Form::Mixed || OWN.contains(&name)
}

/// The statement with the event's columns and their parameters in it.
pub(super) fn with_parameters(text: &str, form: Form) -> String {
    let all: Vec<(usize, &str, &str)> = (1..)
        .zip(parameters())
        .map(|(n, (name, kind))| (n, name, kind))
        .collect();
    let arrays = || all.iter().filter(|(_, name, _)| is_array(name, form));
    let plain = |(n, name, kind): &(usize, &str, &str)| value(name, &format!("${n}::{kind}"));
    let selected = |parameter: &(usize, &str, &str)| match parameter {
        (_, name, _) if is_array(name, form) => value(name, name),
        _ => plain(parameter),
    };
    let column = |(_, name, _): &(usize, &'static str, &str)| match *name {
        "deliver_at" => "next_attempt_at",
        name => name,
    };
    text.replace("/*columns*/", &joined(all.iter().map(column)))
        .replace("/*parameters*/", &joined(all.iter().map(plain)))
        .replace("/*values*/", &joined(all.iter().map(selected)))
        .replace(
            "/*arrays*/",
            &joined(arrays().map(|(n, _, kind)| format!("${n}::{kind}[]"))),
        )
        .replace("/*names*/", &joined(arrays().map(|(_, name, _)| *name)))
        .replace("/*dedupe_key*/", &format!("${}", all.len() + 1))
        .replace("/*places*/", &format!("${}", all.len() + 2))
}

/// What is written into a column, from a parameter or a column of the given rows.
fn value(name: &str, given: &str) -> String {
    match name {
        "payload" => format!("{given}::jsonb"),
        "headers" => format!("coalesce({given}::jsonb, '{{}}')"),
        "deliver_at" => format!("greatest({given}::timestamptz, now())"),
        _ => given.to_owned(),
    }
}

fn joined<T: Into<String>>(items: impl Iterator<Item = T>) -> String {
    items.map(Into::into).collect::<Vec<String>>().join(", ")
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

/// One event as the parameters of `enqueue.sql`, and then its dedupe key if it has one.
pub(super) fn row<'a>(bound: &'a Bound<'a>) -> Vec<Value<'a>> {
    let event = bound.event;
    let before: [_; BEFORE.len()] = [
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
        // Null is cheaper than an empty object that the server has to parse.
        envelope::Value::Json(json) => Value::Text(Some(&**json).filter(|json| *json != "{}")),
    });
    let mut row: Vec<Value<'a>> = before.into_iter().chain(columns).collect();
    if event.dedupe_key.is_none() {
        row.pop(); // the last of the columns
    }
    row
}

/// Many rows as the parameters of `enqueue_all.sql`, and the form of them.
pub(super) fn columns<'a>(rows: &[Vec<Value<'a>>]) -> (Form, Vec<Value<'a>>) {
    let Some(first) = rows.first() else {
        return (Form::Alike, Vec::new());
    };
    let mut own = parameters().map(|(name, _)| OWN.contains(&name));
    let is_alike = first
        .iter()
        .enumerate()
        .all(|(place, value)| own.next().unwrap_or(true) || rows[1..].iter().all(|row| row[place] == *value));
    let form = if is_alike { Form::Alike } else { Form::Mixed };
    let columns = parameters().enumerate().map(|(place, (name, _))| {
        if is_array(name, form) {
            array(rows, place)
        } else {
            first[place].clone()
        }
    });
    (form, columns.collect())
}

/// An array of what the rows have in this place. It has no elements if all are null.
fn array<'a>(rows: &[Vec<Value<'a>>], place: usize) -> Value<'a> {
    let cells = rows.iter().map(|row| &row[place]);
    match rows[0][place] {
        Value::Id(_) => Value::Ids(unless_null(cells.map(Value::id).collect())),
        Value::Text(_) => Value::Texts(unless_null(cells.map(Value::text).collect())),
        Value::Number(_) => Value::Numbers(cells.map(Value::number).collect()),
        Value::Bytes(_) => Value::Bodies(unless_null(cells.map(Value::bytes).collect())),
        Value::Ids(_) | Value::Texts(_) | Value::Numbers(_) | Value::Bodies(_) => {
            unreachable!("a row has no arrays")
        }
    }
}

fn unless_null<T>(cells: Vec<Option<T>>) -> Vec<Option<T>> {
    if cells.iter().any(Option::is_some) {
        cells
    } else {
        Vec::new()
    }
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
pub(super) fn deliver_at(event: &Event) -> Option<String> {
    event.deliver_at?.format(&Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: u128) -> Event {
        Event::new("shop", "orders")
            .id(Uuid::from_u128(n))
            .event_type("OrderCreated")
            .aggregate("order", n.to_string())
            .tenant(Uuid::nil())
            .ordering_key("key")
            .severity("low")
            .destination("broker")
            .bytes(&b"x"[..], "text/plain")
    }

    fn bind(events: &[Event]) -> (Vec<Vec<String>>, Form, Vec<String>) {
        let bound: Vec<Bound<'_>> = events.iter().map(Bound::of).collect();
        let rows: Vec<Vec<Value<'_>>> = bound.iter().map(row).collect();
        let (form, columns) = columns(&rows);
        let shown = |values: &Vec<Value<'_>>| values.iter().map(|value| format!("{value:?}")).collect();
        (rows.iter().map(shown).collect(), form, shown(&columns))
    }

    #[test]
    fn what_all_events_share_is_passed_once() {
        let (rows, form, columns) = bind(&[event(1), event(2)]);
        assert_eq!(form, Form::Alike);
        for (place, (name, _)) in parameters().enumerate() {
            let expected = if OWN.contains(&name) {
                &columns[place]
            } else {
                &rows[1][place]
            };
            assert_eq!(columns[place], *expected, "{name}");
            assert_eq!(columns[place].contains("s(["), OWN.contains(&name), "{name}");
        }
    }

    #[test]
    fn one_difference_makes_every_column_an_array() {
        let (rows, form, columns) = bind(&[event(1), event(2).version(2)]);
        assert_eq!(form, Form::Mixed);
        assert_eq!(columns.len(), rows[0].len());
        let version = parameters().position(|(name, _)| name == "event_version");
        assert_eq!(columns[version.expect("a column")], "Numbers([1, 2])");
    }

    #[test]
    fn a_column_without_values_is_an_array_without_elements() {
        let events = [Event::new("shop", "orders"), Event::new("shop", "stock")];
        let (_, form, columns) = bind(&events);
        assert_eq!(form, Form::Mixed);
        for (place, (name, _)) in parameters().enumerate() {
            let set = ["id", "payload", "namespace", "topic", "event_version"];
            assert_eq!(columns[place].ends_with("([])"), !set.contains(&name), "{name}");
        }
    }

    #[test]
    fn the_parameters_stand_in_the_same_order_in_the_statement_and_in_a_row() {
        let text = with_parameters("/*columns*/ | /*parameters*/ | /*dedupe_key*/", Form::Mixed);
        let event = event(1).dedupe_key("once");
        let (rows, ..) = bind(&[event]);
        assert!(text.starts_with("id, payload, body, destination, next_attempt_at, namespace, topic, "));
        assert!(text.ends_with(&format!("| ${}", rows[0].len())), "{text}");
        assert_eq!(rows[0].last().map(String::as_str), Some("Text(Some(\"once\"))"));
    }
}
