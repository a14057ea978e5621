//! Writes events, and finds duplicates by their dedupe keys.
//!
//! Events without a dedupe key are inserted, and nothing comes back. Those with one are inserted in the order of their keys,
//! so that two callers cannot deadlock. They are sorted here, which is cheaper than in the database.
//!
//! **If we die here** the caller's transaction rolls back.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::bind::{Bound, columns, row};
use super::{Driver, DriverError, Value, function, parse};
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
    if outbox.by_function {
        return function::write(driver, outbox, events).await;
    }
    serialise(driver, outbox, events).await?;
    let mut enqueued: Vec<Option<Enqueued>> = vec![None; events.len()];
    for _ in 0..TRIES {
        let open: Vec<usize> = (0..events.len()).filter(|&i| enqueued[i].is_none()).collect();
        let batch: Vec<&Event> = open.iter().map(|&i| events[i].as_ref()).collect();
        let mut written = insert(driver, outbox, &batch).await?;
        let mut known = Vec::new();
        for &i in &open {
            if written.take(events[i].id) {
                enqueued[i] = Some(Enqueued::New(events[i].id));
            } else {
                known.push(i);
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

/// Which events of a batch were written.
enum Written {
    All,
    Only(HashSet<Uuid>),
}

impl Written {
    /// Was an event with this id written? Only the first of two events with one id was.
    fn take(&mut self, id: Uuid) -> bool {
        match self {
            Self::All => true,
            Self::Only(ids) => ids.remove(&id),
        }
    }
}

async fn insert<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    events: &[&Event],
) -> Result<Written, EnqueueError> {
    let bound: Vec<Bound<'_>> = events.iter().map(|event| Bound::of(event)).collect();
    let has_keys = events.iter().any(|event| event.dedupe_key.is_some());
    let (statement, values) = match (&bound[..], has_keys) {
        ([one], false) => (&outbox.sql.enqueue, row(one)),
        ([one], true) => (&outbox.sql.enqueue_once, row(one)),
        (many, false) => {
            let rows: Vec<_> = many.iter().map(row).collect();
            let (form, values) = columns(&rows);
            (outbox.sql.enqueue_all.form(form), values)
        }
        (many, true) => {
            let order = by_dedupe_key(events);
            let rows: Vec<_> = order.iter().map(|&i| row(&many[i])).collect();
            let (form, mut values) = columns(&rows);
            let keys = order.iter().map(|&i| events[i].dedupe_key.as_deref());
            values.push(Value::Texts(keys.collect()));
            let place = |&i: &usize| i32::try_from(i + 1).unwrap_or(i32::MAX);
            values.push(Value::Numbers(order.iter().map(place).collect()));
            (outbox.sql.enqueue_all_once.form(form), values)
        }
    };
    let rows = driver
        .rows(statement, values, outbox.prepared)
        .await
        .map_err(|error| enqueue_error(error, events))?;
    written(&rows, events.len(), has_keys)
}

/// The events' positions in the order in which their dedupe keys are locked. The SQL functions have the same order.
fn by_dedupe_key(events: &[&Event]) -> Vec<usize> {
    let key = |&i: &usize| {
        let event = events[i];
        (event.dedupe_key.as_deref(), &*event.namespace, &*event.topic)
    };
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by(|a, b| key(a).cmp(&key(b))); // stable: the first of two events with one key is written
    order
}

/// Reads a statement's rows: of a count and the ids, if not all events were written.
fn written(rows: &[(i64, String)], events: usize, has_keys: bool) -> Result<Written, EnqueueError> {
    let count = rows.first().map_or(0, |(count, _)| *count);
    if !has_keys || usize::try_from(count) == Ok(events) {
        return Ok(Written::All);
    }
    let ids = rows
        .iter()
        .flat_map(|(_, ids)| ids.split(','))
        .filter(|id| !id.is_empty());
    let ids: Result<HashSet<Uuid>, StoreError> = ids.map(parse).collect();
    Ok(Written::Only(ids?))
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

/// The code of the outbox's own error.
const QUOTA_EXCEEDED: &str = "PBQ01";

/// What a role needs to enqueue.
const DUTIES: &str = "to insert, a role needs `pillarbox grant writer ROLE`; \
    `Outbox::by_function()` needs `pillarbox grant producer ROLE --namespace NAME`";

pub(super) fn enqueue_error(error: DriverError, events: &[&Event]) -> EnqueueError {
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
        // Invalid for the functions, or rejected by a constraint of the table.
        DriverError::Answer { code, message, .. } if matches!(code.as_str(), "22023" | "23514") => {
            EnqueueError::Rejected(message)
        }
        DriverError::Answer { code, message, .. } if code == QUOTA_EXCEEDED => {
            EnqueueError::QuotaExceeded(message)
        }
        other => match StoreError::from(other) {
            StoreError::Denied(why) => StoreError::Denied(format!("{why}; {DUTIES}")).into(),
            other => other.into(),
        },
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
