//! The statements of an enqueue into PostgreSQL, apart from the library that runs them.
//!
//! A library is a [`Driver`]: it binds [values](Value) to a statement and returns its rows, each a number and a text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::sealed::Backend;
use super::{Outbox, stored};
use crate::enqueue::{EnqueueError, Enqueued};
use crate::envelope::{self, COLUMNS, Column, Kind, listed, with_columns};
use crate::error::StoreError;
use crate::event::Event;
use crate::inbox::{self, Inbox};
use crate::payload::Payload;
use crate::saga;
use crate::schema::{error_of, in_schema};

/// How often an enqueue is tried if the event with its dedupe key is deleted meanwhile.
const TRIES: usize = 3;

/// The statements, with the schema's name in them.
#[derive(Debug)]
pub(crate) struct Statements {
    enqueue: Arc<str>,
    enqueue_all: Arc<str>,
    enqueued_before: Arc<str>,
    serialise: Arc<str>,
    enqueued: Arc<str>,
    ids_taken: Arc<str>,
}

impl Statements {
    pub(super) fn in_schema(schema: &str) -> Self {
        let statement = |text| in_schema(&with_parameters(text), schema).into();
        Self {
            enqueue: statement(include_str!("sql/enqueue.sql")),
            enqueue_all: statement(include_str!("sql/enqueue_all.sql")),
            enqueued_before: statement(include_str!("sql/enqueued_before.sql")),
            serialise: statement(include_str!("sql/serialise.sql")),
            enqueued: statement(include_str!("sql/enqueued.sql")),
            ids_taken: statement(include_str!("sql/ids_taken.sql")),
        }
    }
}

/// How many parameters come before those of the event's columns: see [`row`].
const BEFORE: usize = 5;

/// The statement with the event's columns and their parameters in it.
fn with_parameters(text: &str) -> String {
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

/// A parameter of a statement. JSON and times are passed as text, so that no library needs a feature for them.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Id(Option<Uuid>),
    Text(Option<&'a str>),
    Number(i32),
    Bytes(Option<&'a [u8]>),
    Ids(Vec<Option<Uuid>>),
    Texts(Vec<Option<&'a str>>),
    Numbers(Vec<i32>),
    Bodies(Vec<Option<&'a [u8]>>),
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

/// A library that can talk to PostgreSQL.
pub(crate) trait Driver: Send {
    /// Runs one statement whose rows are a number and a text. `prepared` asks for a statement that stays prepared,
    /// where that is a choice.
    fn rows(
        &mut self,
        statement: &Arc<str>,
        values: Vec<Value<'_>>,
        prepared: bool,
    ) -> impl Future<Output = Result<Vec<(i64, String)>, DriverError>> + Send;
}

impl<D: Driver> Backend for D {
    async fn write(
        &mut self,
        outbox: &Outbox,
        events: &[Cow<'_, Event>],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        write(self, outbox, events).await
    }

    async fn read(&mut self, outbox: &Outbox, namespace: Option<&str>) -> Result<Vec<Event>, StoreError> {
        read(self, outbox, namespace).await
    }

    async fn taken(&mut self, outbox: &Outbox, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        ids_taken(self, outbox, ids).await
    }

    async fn mark(&mut self, inbox: &Inbox, consumer: &str, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        inbox::postgres::mark(self, inbox, consumer, ids).await
    }

    async fn unmark(&mut self, inbox: &Inbox, consumer: &str, ids: &[Uuid]) -> Result<(), StoreError> {
        inbox::postgres::unmark(self, inbox, consumer, ids).await
    }

    async fn prune(&mut self, inbox: &Inbox, consumer: &str, limit: i32) -> Result<u64, StoreError> {
        inbox::postgres::prune(self, inbox, consumer, limit).await
    }

    async fn saga(
        &mut self,
        outbox: &Outbox,
        request: saga::Request<'_>,
    ) -> Result<saga::Response, StoreError> {
        saga::postgres::answer(self, outbox, request).await
    }
}

/// Implements [`Connection`](super::Connection) for a type that is a [`Driver`], or lends one.
#[cfg(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel-async"))]
macro_rules! connection {
    ($type:ty) => {
        $crate::outbox::postgres::connection!($type, Self, connection => connection);
    };
    ($type:ty, $driver:ty, $connection:ident => $lent:expr) => {
        impl $crate::outbox::sealed::Sealed for $type {}
        impl $crate::outbox::Connection for $type {
            type Backend = $driver;

            fn backend(&mut self) -> &mut Self::Backend {
                let $connection = self;
                $lent
            }
        }
    };
}
#[cfg(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel-async"))]
pub(super) use connection;

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum DriverError {
    /// The server answered with an error.
    Answer {
        code: String,
        message: String,
        detail: Option<String>,
    },
    /// The connection was lost.
    Lost(String),
    /// An error of the library.
    Other(String),
}

impl From<DriverError> for StoreError {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Answer { code, message, .. } => error_of(&code, &message),
            DriverError::Lost(why) => Self::Unavailable(why),
            DriverError::Other(why) => Self::Other(why),
        }
    }
}

/// Writes events, and finds those that were there before by their dedupe keys.
pub(crate) async fn write<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    events: &[Cow<'_, Event>],
) -> Result<Vec<Enqueued>, EnqueueError> {
    serialise(driver, outbox, events).await?;
    let mut enqueued: Vec<Option<Enqueued>> = vec![None; events.len()];
    for _ in 0..TRIES {
        let open: Vec<usize> = (0..events.len()).filter(|&i| enqueued[i].is_none()).collect();
        let batch: Vec<&Event> = open.iter().map(|&i| events[i].as_ref()).collect();
        let mut new = insert(driver, outbox, &batch).await?;
        let mut known = Vec::new();
        for &i in &open {
            // An id that came back is new once; a second event with that id was not written.
            match new.remove(&events[i].id) {
                Some(_) => enqueued[i] = Some(Enqueued::New(events[i].id)),
                None => known.push(i),
            }
        }
        if known.is_empty() {
            break;
        }
        let batch: Vec<&Event> = known.iter().map(|&i| events[i].as_ref()).collect();
        let before = enqueued_before(driver, outbox, &batch).await?;
        for (position, &i) in known.iter().enumerate() {
            enqueued[i] = before.get(&position).copied().map(Enqueued::Already);
        }
        if enqueued.iter().all(Option::is_some) {
            break;
        }
    }
    enqueued.into_iter().map(|one| one.ok_or_else(vanished)).collect()
}

/// Waits for writers of the same keys, if the outbox is serialised. Runs before any `seq` is assigned.
async fn serialise<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    events: &[Cow<'_, Event>],
) -> Result<(), EnqueueError> {
    if !outbox.serialised {
        return Ok(());
    }
    let keyed = events.iter().filter(|event| event.ordering_key.is_some());
    let (namespaces, keys): (Vec<_>, Vec<_>) = keyed
        .map(|event| (Some(event.namespace.as_str()), event.ordering_key.as_deref()))
        .unzip();
    if keys.is_empty() {
        return Ok(());
    }
    let values = vec![Value::Texts(namespaces), Value::Texts(keys)];
    let done = driver.rows(&outbox.sql.serialise, values, outbox.prepared).await;
    done.map_err(StoreError::from)?;
    Ok(())
}

/// Returns the ids of the events that were written, each with its `seq`.
async fn insert<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    events: &[&Event],
) -> Result<HashMap<Uuid, i64>, EnqueueError> {
    let bound: Vec<Bound<'_>> = events.iter().map(|event| Bound::of(event)).collect();
    let mut rows: Vec<Vec<Value<'_>>> = bound.iter().map(row).collect();
    let (statement, values) = match events {
        [_] => (&outbox.sql.enqueue, rows.pop().unwrap_or_default()),
        _ => (&outbox.sql.enqueue_all, columns(&rows)),
    };
    let rows = driver
        .rows(statement, values, outbox.prepared)
        .await
        .map_err(|error| enqueue_error(error, events))?;
    let parsed = rows.into_iter().map(|(seq, id)| Ok((parse(&id)?, seq)));
    parsed.collect()
}

/// Returns the ids of the events that came first, by position.
async fn enqueued_before<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    events: &[&Event],
) -> Result<HashMap<usize, Uuid>, EnqueueError> {
    let texts = |of: fn(&Event) -> Option<&str>| Value::Texts(events.iter().map(|event| of(event)).collect());
    let values = vec![
        texts(|event| Some(&event.namespace)),
        texts(|event| Some(&event.topic)),
        texts(|event| event.dedupe_key.as_deref()),
    ];
    let rows = driver
        .rows(&outbox.sql.enqueued_before, values, outbox.prepared)
        .await;
    let rows = rows.map_err(StoreError::from)?;
    let position = |ordinal: i64| usize::try_from(ordinal).unwrap_or(1).saturating_sub(1);
    let parsed = rows
        .into_iter()
        .map(|(ordinal, id)| Ok((position(ordinal), parse(&id)?)));
    parsed.collect()
}

/// The events that the transaction sees.
pub(crate) async fn read<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    namespace: Option<&str>,
) -> Result<Vec<Event>, StoreError> {
    let values = vec![Value::Text(namespace)];
    let rows = driver.rows(&outbox.sql.enqueued, values, outbox.prepared).await?;
    rows.iter().map(|(_, json)| stored::event(json)).collect()
}

/// Those of the ids that the transaction sees in the outbox.
pub(crate) async fn ids_taken<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    ids: &[Uuid],
) -> Result<Vec<Uuid>, StoreError> {
    let values = vec![Value::Ids(ids.iter().copied().map(Some).collect())];
    let rows = driver
        .rows(&outbox.sql.ids_taken, values, outbox.prepared)
        .await?;
    rows.iter().map(|(_, id)| parse(id)).collect()
}

/// An event with its parameters, converted.
struct Bound<'a> {
    event: &'a Event,
    envelope: [envelope::Value<'a>; COLUMNS.len()],
    deliver_at: Option<String>,
}

impl<'a> Bound<'a> {
    fn of(event: &'a Event) -> Self {
        Self {
            event,
            envelope: event.values(),
            deliver_at: deliver_at(event),
        }
    }
}

/// One event as the parameters of `enqueue.sql`.
fn row<'a>(bound: &'a Bound<'a>) -> Vec<Value<'a>> {
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
fn columns<'a>(rows: &[Vec<Value<'a>>]) -> Vec<Value<'a>> {
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

pub(crate) fn parse(id: &str) -> Result<Uuid, StoreError> {
    Uuid::parse_str(id).map_err(|error| StoreError::Other(format!("{id:?} is not a UUID: {error}")))
}

fn vanished() -> EnqueueError {
    StoreError::Unavailable(
        "an event with this dedupe key was there and is not to be seen; try the transaction again".to_owned(),
    )
    .into()
}

fn enqueue_error(error: DriverError, events: &[&Event]) -> EnqueueError {
    match error {
        DriverError::Answer { code, detail, .. } if code == "23505" => {
            EnqueueError::IdTaken(taken(detail.as_deref(), events))
        }
        // Invalid text, an untranslatable character, a number out of range, nesting too deep.
        DriverError::Answer { code, message, .. }
            if matches!(
                code.as_str(),
                "22P02" | "22P05" | "22003" | "54001" | "54000" | "22021"
            ) =>
        {
            EnqueueError::Payload(message)
        }
        other => StoreError::from(other).into(),
    }
}

/// Which id it is: PostgreSQL says `Key (id)=(…) already exists.`, if it may.
fn taken(detail: Option<&str>, events: &[&Event]) -> Uuid {
    let named = detail.and_then(|text| {
        let (_, rest) = text.split_once("=(")?;
        Uuid::parse_str(rest.split_once(')')?.0).ok()
    });
    named.or_else(|| Some(events.first()?.id)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_schema_replaces_every_mention() {
        let sql = Statements::in_schema("my_outbox");
        for text in [
            &sql.enqueue,
            &sql.enqueue_all,
            &sql.enqueued_before,
            &sql.serialise,
            &sql.enqueued,
            &sql.ids_taken,
        ] {
            assert!(!text.contains("pillarbox."), "{text}");
        }
        assert!(sql.enqueue.contains("\"my_outbox\".outbox_events"));
    }

    #[test]
    fn the_id_that_is_taken_is_the_one_that_the_server_names() {
        let (first, second) = (Event::new("a", "b"), Event::new("a", "b"));
        let detail = format!("Key (id)=({}) already exists.", second.id);
        let events = [&first, &second];
        assert_eq!(taken(Some(&detail), &events), second.id);
        assert_eq!(taken(None, &events), first.id);
        assert_eq!(
            taken(Some("Schlüssel »(id)=(?)« existiert bereits."), &events),
            first.id
        );
    }

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
