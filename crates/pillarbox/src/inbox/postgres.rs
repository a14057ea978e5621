//! Marks in PostgreSQL, apart from the library that runs the statements.

use uuid::Uuid;

use super::Inbox;
use crate::error::StoreError;
use crate::outbox::postgres::{Driver, DriverError, Value, parse};

/// Returns those of the ids that are new.
pub(crate) async fn mark<D: Driver + ?Sized>(
    driver: &mut D,
    inbox: &Inbox,
    consumer: &str,
    ids: &[Uuid],
) -> Result<Vec<Uuid>, StoreError> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    let rows = driver
        .rows(&inbox.sql.mark, values(consumer, &sorted), inbox.prepared)
        .await
        .map_err(|error| refusal(error, consumer))?;
    let count = rows.first().map_or(0, |(count, _)| *count);
    if usize::try_from(count) == Ok(ids.len()) {
        return Ok(sorted);
    }
    let new = rows.iter().flat_map(|(_, ids)| ids.split(','));
    new.filter(|id| !id.is_empty()).map(parse).collect()
}

pub(crate) async fn unmark<D: Driver + ?Sized>(
    driver: &mut D,
    inbox: &Inbox,
    consumer: &str,
    ids: &[Uuid],
) -> Result<(), StoreError> {
    driver
        .rows(&inbox.sql.unmark, values(consumer, ids), inbox.prepared)
        .await
        .map_err(|error| refusal(error, consumer))?;
    Ok(())
}

pub(crate) async fn prune<D: Driver + ?Sized>(
    driver: &mut D,
    inbox: &Inbox,
    consumer: &str,
    limit: i32,
) -> Result<u64, StoreError> {
    let Some(statement) = &inbox.sql.prune else {
        return Ok(0);
    };
    let keep = i32::try_from(inbox.keep.as_secs()).unwrap_or(i32::MAX);
    let values = vec![
        Value::Text(Some(consumer)),
        Value::Number(keep),
        Value::Number(limit),
    ];
    let rows = driver
        .rows(statement, values, inbox.prepared)
        .await
        .map_err(|error| refusal(error, consumer))?;
    let gone = rows.first().map_or(0, |(count, _)| *count);
    Ok(u64::try_from(gone).unwrap_or(0))
}

/// Adds what a role needs to a missing permission.
fn refusal(error: DriverError, consumer: &str) -> StoreError {
    match StoreError::from(error) {
        StoreError::Denied(why) => StoreError::Denied(format!(
            "{why}; the inbox needs `pillarbox grant consumer ROLE --name {consumer}`"
        )),
        other => other,
    }
}

fn values<'a>(consumer: &'a str, ids: &[Uuid]) -> Vec<Value<'a>> {
    vec![
        Value::Text(Some(consumer)),
        Value::Ids(ids.iter().copied().map(Some).collect()),
    ]
}
