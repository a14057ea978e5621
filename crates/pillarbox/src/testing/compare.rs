//! In what two events differ.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Json;
use time::{Duration, OffsetDateTime};

use crate::envelope::{COLUMNS, Value};
use crate::event::Event;
use crate::payload::Payload;
use crate::trace::{TRACEPARENT, TRACESTATE};

/// One thing that is not as it was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where, for example `event_version` or `payload.total`.
    pub field: String,
    /// What should be there, if anything.
    pub expected: Option<String>,
    /// What is there, if anything.
    pub found: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_nothing = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
        let (expected, found) = (or_nothing(&self.expected), or_nothing(&self.found));
        write!(out, "{}: expected {expected}, found {found}", self.field)
    }
}

/// Differences, as they are found.
#[derive(Default)]
pub(super) struct Differences(pub(super) Vec<Difference>);

impl Differences {
    pub(super) fn field<T: fmt::Debug + PartialEq>(
        &mut self,
        field: &str,
        expected: &Option<T>,
        found: &Option<T>,
    ) {
        if expected != found {
            self.add(field, expected.as_ref().map(debug), found.as_ref().map(debug));
        }
    }

    fn add(&mut self, field: &str, expected: Option<String>, found: Option<String>) {
        self.0.push(Difference {
            field: field.to_owned(),
            expected,
            found,
        });
    }

    /// Compares JSON. With `whole`, there may be no more than is expected; without, objects may have more fields.
    pub(super) fn json(&mut self, path: &str, expected: &Json, found: &Json, whole: bool) {
        let (Json::Object(wanted), Json::Object(there)) = (expected, found) else {
            if expected != found {
                self.add(path, Some(expected.to_string()), Some(found.to_string()));
            }
            return;
        };
        for (name, expected) in wanted {
            let path = format!("{path}.{name}");
            match there.get(name) {
                Some(found) => self.json(&path, expected, found, whole),
                None => self.add(&path, Some(expected.to_string()), None),
            }
        }
        for (name, found) in there.iter().filter(|_| whole) {
            if !wanted.contains_key(name) {
                self.add(&format!("{path}.{name}"), None, Some(found.to_string()));
            }
        }
    }

    /// Compares what JSON is expected to be with a payload, which may be none.
    pub(super) fn json_payload(&mut self, expected: &Json, found: &Payload, whole: bool) {
        match parsed(found) {
            Some(found) => self.json("payload", expected, &found, whole),
            None => self.add("payload", Some(expected.to_string()), Some(describe(found))),
        }
    }
}

/// Everything but the id and the trace.
pub(super) fn whole(expected: &Event, found: &Event) -> Vec<Difference> {
    let mut all = Differences::default();
    for ((column, expected), found) in COLUMNS.iter().zip(expected.values()).zip(found.values()) {
        match (expected, found) {
            _ if column.name == "content_type" => {} // below: as it is sent
            (Value::Text(expected), Value::Text(found)) => all.field(column.name, &expected, &found),
            (Value::Id(expected), Value::Id(found)) => all.field(column.name, &expected, &found),
            (Value::Number(expected), Value::Number(found)) => {
                all.field(column.name, &Some(expected), &Some(found));
            }
            _ => {} // headers: below, one by one
        }
    }
    all.field(
        "content_type",
        &Some(expected.media_type()),
        &Some(found.media_type()),
    );
    all.field("destination", &expected.destination, &found.destination);
    if !same_moment(expected.deliver_at, found.deliver_at) {
        all.field("deliver_at", &expected.deliver_at, &found.deliver_at);
    }
    let (wanted, there) = (headers(expected), headers(found));
    for name in wanted
        .keys()
        .chain(there.keys().filter(|name| !wanted.contains_key(*name)))
    {
        all.field(&format!("headers.{name}"), &wanted.get(name), &there.get(name));
    }
    match parsed(&expected.payload) {
        Some(json) => all.json_payload(&json, &found.payload, true),
        None if expected.payload == found.payload => {}
        None => all.add(
            "payload",
            Some(describe(&expected.payload)),
            Some(describe(&found.payload)),
        ),
    }
    all.0
}

/// Stores keep times to the microsecond; some round up, some to the nearest.
fn same_moment(expected: Option<OffsetDateTime>, found: Option<OffsetDateTime>) -> bool {
    match (expected, found) {
        (Some(expected), Some(found)) => (expected - found).abs() < Duration::MICROSECOND,
        (expected, found) => expected == found,
    }
}

/// Headers without those of the trace, which come from where the event was enqueued.
fn headers(event: &Event) -> BTreeMap<&String, &String> {
    let is_own = |name: &str| {
        ![TRACEPARENT, TRACESTATE]
            .iter()
            .any(|trace| name.eq_ignore_ascii_case(trace))
    };
    event.headers.iter().filter(|(name, _)| is_own(name)).collect()
}

fn parsed(payload: &Payload) -> Option<Json> {
    match payload {
        Payload::Json(text) => serde_json::from_slice(text).ok(),
        Payload::Bytes(_) => None,
    }
}

fn describe(payload: &Payload) -> String {
    match payload {
        Payload::Json(text) => String::from_utf8_lossy(text).into_owned(),
        Payload::Bytes(bytes) => format!("{} bytes: {}", bytes.len(), bytes.escape_ascii()),
    }
}

fn debug(value: impl fmt::Debug) -> String {
    format!("{value:?}")
}
