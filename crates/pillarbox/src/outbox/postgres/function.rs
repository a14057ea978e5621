//! Enqueues by the SQL functions, which run as the owner of the outbox. So the role needs no permission on the table, and is
//! confined to the namespaces, tenants and destinations that it was granted.
//!
//! All events go in one call, as a JSON array. A body is in base64.
//!
//! **If we die here** the caller's transaction rolls back.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use super::bind::deliver_at;
use super::enqueue::enqueue_error;
use super::{Driver, Value, parse};
use crate::enqueue::{EnqueueError, Enqueued};
use crate::envelope::{self, COLUMNS};
use crate::error::StoreError;
use crate::event::Event;
use crate::outbox::Outbox;
use crate::payload::Payload;

type Object = BTreeMap<&'static str, Box<RawValue>>;

/// Writes events with one call of `pillarbox.enqueue_many`.
pub(super) async fn write<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    events: &[Cow<'_, Event>],
) -> Result<Vec<Enqueued>, EnqueueError> {
    let objects: Result<Vec<Object>, _> = events.iter().map(|event| object(event)).collect();
    let json = objects.and_then(|objects| serde_json::to_string(&objects));
    let json = json.map_err(EnqueueError::NoJson)?;
    let values = vec![
        Value::Text(Some(&json)),
        Value::Number(i32::from(outbox.serialised)),
    ];
    let rows = driver
        .rows(&outbox.sql.by_function, values, outbox.prepared)
        .await
        .map_err(|error| {
            let events: Vec<&Event> = events.iter().map(AsRef::as_ref).collect();
            enqueue_error(error, &events)
        })?;
    rows.iter().map(|(_, answer)| Ok(enqueued(answer)?)).collect()
}

/// Reads `+` or `=`, and the id.
fn enqueued(answer: &str) -> Result<Enqueued, StoreError> {
    match answer.strip_prefix('+') {
        Some(id) => Ok(Enqueued::New(parse(id)?)),
        None => Ok(Enqueued::Duplicate(parse(answer.trim_start_matches('='))?)),
    }
}

/// Those of the ids that are in the outbox, in what the role may enqueue.
pub(super) async fn ids_taken<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    ids: &[Uuid],
) -> Result<Vec<Uuid>, StoreError> {
    let values = vec![Value::Ids(ids.iter().copied().map(Some).collect())];
    let rows = driver
        .rows(&outbox.sql.ids_by_function, values, outbox.prepared)
        .await?;
    rows.iter().map(|(_, id)| parse(id)).collect()
}

/// The event as an element of the array: what it has, and nothing that is null.
fn object(event: &Event) -> Result<Object, serde_json::Error> {
    let mut object = Object::new();
    object.insert("id", to_raw_value(&event.id)?);
    for (column, value) in COLUMNS.iter().zip(event.values()) {
        let json = match value {
            envelope::Value::Text(text) => some(&text)?,
            envelope::Value::Number(number) => some(&Some(number))?,
            envelope::Value::Id(id) => some(&id)?,
            envelope::Value::Json(json) => Some(RawValue::from_string(json.into_owned())?),
        };
        object.extend(json.map(|json| (column.name, json)));
    }
    let (name, content) = match &event.payload {
        // Checked to be UTF-8 by `validate`, since it is JSON.
        Payload::Json(text) => {
            let text = String::from_utf8_lossy(text).into_owned();
            ("payload", RawValue::from_string(text)?)
        }
        Payload::Bytes(body) => ("body", to_raw_value(&STANDARD.encode(body))?),
    };
    object.insert(name, content);
    object.extend(some(&event.destination)?.map(|json| ("destination", json)));
    object.extend(some(&deliver_at(event))?.map(|json| ("deliver_at", json)));
    Ok(object)
}

fn some<T: Serialize>(value: &Option<T>) -> Result<Option<Box<RawValue>>, serde_json::Error> {
    value.as_ref().map(to_raw_value).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_an_object_with_what_it_has() {
        let event = Event::new("shop", "orders")
            .id(Uuid::nil())
            .json_text("{\"total\": 1.10}");
        let text = serde_json::to_string(&object(&event).unwrap()).unwrap();
        assert_eq!(
            text,
            "{\"event_version\":1,\"headers\":{},\"id\":\"00000000-0000-0000-0000-000000000000\",\
             \"namespace\":\"shop\",\"payload\":{\"total\": 1.10},\"topic\":\"orders\"}"
        );
        let bytes = Event::new("shop", "orders").bytes(vec![0, 255], "image/png");
        let object = object(&bytes).unwrap();
        assert_eq!(object["body"].get(), "\"AP8=\"");
        assert!(!object.contains_key("payload"));
    }
}
