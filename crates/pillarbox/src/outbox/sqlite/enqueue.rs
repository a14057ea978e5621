//! Puts events into the outbox, on the caller's own transaction.
//!
//! **If we die here** the caller's transaction rolls back, and nothing happened.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::json;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row, Sqlite, SqlitePool, Transaction};
use time::{OffsetDateTime, UtcOffset};
use uuid::Uuid;

use super::{BUSY, ids_json, inbox, primary_code, row as decode, saga, store_error};
use crate::enqueue::{EnqueueError, Enqueued};
use crate::envelope::{COLUMNS, Value, with_columns};
use crate::error::StoreError;
use crate::event::Event;
use crate::inbox::Inbox;
use crate::outbox::{self, Connection, Outbox, sealed};
use crate::payload::Payload;
use crate::saga::{Request, Response};
use crate::validate::InvalidEvent;

/// How many events go in one statement: fewer than 32 values each, and SQLite takes 32,766 in all.
const CHUNK: usize = 1_000;

static INSERT: LazyLock<String> = LazyLock::new(|| with_columns(include_str!("sql/enqueue.sql")));
static ENQUEUED: LazyLock<String> = LazyLock::new(|| with_columns(include_str!("sql/enqueued.sql")));

/// One event's values. The last is when the row is due: never before it was written, which is now by default.
static ROW: LazyLock<String> = LazyLock::new(|| {
    let before = "?, ".repeat(COLUMNS.len() + 4);
    format!("({before}max(coalesce(?, ''), strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')))")
});

/// Begins a transaction that holds the write lock from its start. Waits for the lock here, up to the busy timeout.
///
/// # Errors
/// [`EnqueueError::Busy`] when the busy timeout ends first.
pub async fn begin(pool: &SqlitePool) -> Result<Transaction<'static, Sqlite>, EnqueueError> {
    pool.begin_with("BEGIN IMMEDIATE").await.map_err(begin_error)
}

/// The same on a connection.
///
/// # Errors
/// As for [`begin`].
pub async fn begin_on(connection: &mut SqliteConnection) -> Result<Transaction<'_, Sqlite>, EnqueueError> {
    connection
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(begin_error)
}

fn begin_error(error: sqlx::Error) -> EnqueueError {
    if is_busy(&error) {
        EnqueueError::Busy
    } else {
        store_error(error, "this file").into()
    }
}

impl sealed::Backend for SqliteConnection {
    /// All or none, a thousand per statement.
    ///
    /// Not to be dropped half-way: with more than a thousand events the connection may then be left
    /// inside a savepoint.
    async fn write(&mut self, _: &Outbox, events: &[Cow<'_, Event>]) -> Result<Vec<Enqueued>, EnqueueError> {
        let written = if events.len() <= CHUNK {
            insert(self, events).await // one statement does all or nothing by itself
        } else {
            insert_in_chunks(self, events).await
        };
        match written {
            Ok(new) => report(self, events, new).await,
            Err(Failed::Refused(error)) => Err(error),
            Err(Failed::Database(error)) => Err(explain(self, events, error).await),
        }
    }

    async fn read(&mut self, _: &Outbox, namespace: Option<&str>) -> Result<Vec<Event>, StoreError> {
        let rows = sqlx::query(ENQUEUED.as_str())
            .bind(namespace)
            .fetch_all(self)
            .await;
        let events = rows.and_then(|rows| rows.iter().map(decode::enqueued).collect());
        events.map_err(|error| store_error(error, "this file"))
    }

    async fn taken(&mut self, _: &Outbox, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        ids_taken(self, ids)
            .await
            .map_err(|error| store_error(error, "this file"))
    }

    async fn mark(&mut self, _: &Inbox, consumer: &str, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        inbox::mark(self, consumer, ids).await
    }

    async fn unmark(&mut self, _: &Inbox, consumer: &str, ids: &[Uuid]) -> Result<(), StoreError> {
        inbox::unmark(self, consumer, ids).await
    }

    async fn prune(&mut self, inbox: &Inbox, consumer: &str, limit: i32) -> Result<u64, StoreError> {
        inbox::prune(self, inbox, consumer, limit).await
    }

    async fn saga(&mut self, _: &Outbox, request: Request<'_>) -> Result<Response, StoreError> {
        saga::answer(self, request).await
    }
}

macro_rules! connection {
    ($type:ty, $connection:ident => $lent:expr) => {
        impl sealed::Sealed for $type {}
        impl Connection for $type {
            type Backend = SqliteConnection;

            fn backend(&mut self) -> &mut SqliteConnection {
                let $connection = self;
                $lent
            }
        }
    };
}

connection!(SqliteConnection, connection => connection);
connection!(Transaction<'_, Sqlite>, transaction => &mut **transaction);
connection!(PoolConnection<Sqlite>, connection => &mut **connection);

impl outbox::Transaction for Transaction<'_, Sqlite> {
    async fn commit(self) -> Result<(), StoreError> {
        self.commit()
            .await
            .map_err(|error| store_error(error, "this file"))
    }
}

/// Why an insert did not happen.
enum Failed {
    Refused(EnqueueError),
    Database(sqlx::Error),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

async fn insert_in_chunks(
    connection: &mut SqliteConnection,
    events: &[Cow<'_, Event>],
) -> Result<BTreeSet<Uuid>, Failed> {
    sqlx::query("savepoint pillarbox_enqueue")
        .execute(&mut *connection)
        .await?;
    let mut new = BTreeSet::new();
    for chunk in events.chunks(CHUNK) {
        match insert(connection, chunk).await {
            Ok(ids) => new.extend(ids),
            Err(failed) => {
                sqlx::raw_sql("rollback to pillarbox_enqueue; release pillarbox_enqueue")
                    .execute(&mut *connection)
                    .await?;
                return Err(failed);
            }
        }
    }
    sqlx::query("release pillarbox_enqueue")
        .execute(&mut *connection)
        .await?;
    Ok(new)
}

/// Returns the ids of those that were not there before.
async fn insert(
    connection: &mut SqliteConnection,
    events: &[Cow<'_, Event>],
) -> Result<BTreeSet<Uuid>, Failed> {
    if events.is_empty() {
        return Ok(BTreeSet::new());
    }
    let rows = vec![ROW.as_str(); events.len()].join(", ");
    let mut query = sqlx::query(AssertSqlSafe(INSERT.replace("/*rows*/", &rows)))
        // A batch of an odd size is hardly ever seen again.
        .persistent(events.len() == 1 || events.len() == CHUNK);
    for event in events {
        let (payload, body) = content(&event.payload).map_err(Failed::Refused)?;
        for value in event.values() {
            query = match value {
                Value::Text(text) => query.bind(text),
                Value::Number(number) => query.bind(number),
                Value::Id(id) => query.bind(id.map(|id| id.to_string())),
                Value::Json(json) => query.bind(json),
            };
        }
        query = query
            .bind(event.id.to_string())
            .bind(payload)
            .bind(body)
            .bind(&event.destination)
            .bind(event.deliver_at.map(timestamp));
    }
    let mut new = BTreeSet::new();
    for row in query.fetch_all(connection).await? {
        new.extend(decode::uuid(&row, "id")?);
    }
    Ok(new)
}

/// A time as the columns hold it, rounded up: due times hold.
pub fn timestamp(at: OffsetDateTime) -> String {
    let at = (at + time::Duration::nanoseconds(999)).to_offset(UtcOffset::UTC);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        at.year().max(0), // what is so long ago is due now
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        at.microsecond()
    )
}

/// The two columns of a payload.
fn content(payload: &Payload) -> Result<(&str, Option<&[u8]>), EnqueueError> {
    match payload {
        Payload::Json(text) => match std::str::from_utf8(text) {
            Ok(text) => Ok((text, None)),
            Err(error) => Err(InvalidEvent::NotJson(error.to_string()).into()),
        },
        Payload::Bytes(body) => Ok(("null", Some(body))),
    }
}

/// Which are new, and which came second.
async fn report(
    connection: &mut SqliteConnection,
    events: &[Cow<'_, Event>],
    mut new: BTreeSet<Uuid>,
) -> Result<Vec<Enqueued>, EnqueueError> {
    let fates: Vec<Option<Enqueued>> = events
        .iter()
        .map(|event| new.remove(&event.id).then_some(Enqueued::New(event.id)))
        .collect();
    let second: Vec<&Event> = events
        .iter()
        .zip(&fates)
        .filter(|(_, fate)| fate.is_none())
        .map(|(event, _)| event.as_ref())
        .collect();
    let mut first = enqueued_before(connection, &second)
        .await
        .map_err(|error| EnqueueError::from(store_error(error, "this file")))?
        .into_values();
    let known = |fate: Option<Enqueued>| fate.or_else(|| first.next().map(Enqueued::Duplicate));
    Ok(fates.into_iter().filter_map(known).collect())
}

/// The ids of the events that came first, by their place in `events`.
async fn enqueued_before(
    connection: &mut SqliteConnection,
    events: &[&Event],
) -> Result<BTreeMap<i64, Uuid>, sqlx::Error> {
    if events.is_empty() {
        return Ok(BTreeMap::new());
    }
    let keys: Vec<_> = events
        .iter()
        .map(|event| (&event.namespace, &event.topic, &event.dedupe_key))
        .collect();
    let rows = sqlx::query(include_str!("sql/enqueued_before.sql"))
        .bind(json!(keys).to_string())
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            Ok((
                row.try_get("place")?,
                decode::uuid(row, "id")?.unwrap_or_default(),
            ))
        })
        .collect()
}

/// What the caller should know about a failed insert.
async fn explain(
    connection: &mut SqliteConnection,
    events: &[Cow<'_, Event>],
    error: sqlx::Error,
) -> EnqueueError {
    if is_busy(&error) {
        // A transaction that was begun as it should never waits here: it has its turn already.
        return if is_in_transaction(connection).await {
            EnqueueError::NotImmediate
        } else {
            EnqueueError::Busy
        };
    }
    let sqlx::Error::Database(refused) = &error else {
        return store_error(error, "this file").into();
    };
    if refused.message().contains("payload_is_json") {
        return EnqueueError::Payload(refused.message().to_owned());
    }
    if refused.message().contains("outbox_events.id")
        && let Some(id) = taken(connection, events).await
    {
        return EnqueueError::IdTaken(id);
    }
    store_error(error, "this file").into()
}

/// The first id that is there already, or twice in the call.
async fn taken(connection: &mut SqliteConnection, events: &[Cow<'_, Event>]) -> Option<Uuid> {
    let ids: Vec<Uuid> = events.iter().map(|event| event.id).collect();
    let there = ids_taken(connection, &ids).await.unwrap_or_default();
    let mut seen: BTreeSet<Uuid> = there.into_iter().collect();
    ids.into_iter().find(|id| !seen.insert(*id))
}

/// Those of the ids that are there already.
async fn ids_taken(connection: &mut SqliteConnection, ids: &[Uuid]) -> Result<Vec<Uuid>, sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/ids_taken.sql"))
        .bind(ids_json(ids))
        .fetch_all(connection)
        .await?;
    let id = |row| decode::uuid(row, "id").map(Option::unwrap_or_default);
    rows.iter().map(id).collect()
}

/// SQLite refuses a BEGIN inside a transaction; there is no other way to ask through this driver.
async fn is_in_transaction(connection: &mut SqliteConnection) -> bool {
    if sqlx::query("begin").execute(&mut *connection).await.is_err() {
        return true;
    }
    // It was outside; leave it so. A failure here would show itself at the caller's next statement.
    sqlx::query("rollback").execute(connection).await.is_err()
}

fn is_busy(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(refused) if primary_code(refused.as_ref()) == Some(BUSY))
}
