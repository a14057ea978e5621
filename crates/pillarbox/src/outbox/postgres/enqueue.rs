//! Writes events, and finds duplicates by their dedupe keys.
//!
//! **If we die here** the caller's transaction rolls back.

use std::borrow::Cow;
use std::collections::HashMap;

use uuid::Uuid;

use super::bind::{Bound, columns, row};
use super::{Driver, DriverError, Value, parse};
use crate::enqueue::{EnqueueError, Enqueued};
use crate::error::StoreError;
use crate::event::Event;
use crate::outbox::Outbox;

/// How often an enqueue is tried if the event with its dedupe key is deleted meanwhile.
const TRIES: usize = 3;

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
            enqueued[i] = before.get(&position).copied().map(Enqueued::Duplicate);
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

fn vanished() -> EnqueueError {
    StoreError::Unavailable(
        "an event with this dedupe key was deleted, or written after this transaction began (retry the transaction)".to_owned(),
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
}
