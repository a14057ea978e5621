//! Rows that the database cannot write out, or that no sink could send: their times are infinite, their JSON is 1 GB of text,
//! their bytes are damaged. A producer or an operator wrote them by plain SQL, past the table's constraints.
//!
//! Such a row fails the statement that reads it, and with it all its neighbours. So a claim that fails like this asks for the
//! ids alone, reads the rows in their order, and learns from the place of the failure which row it is. That row becomes dead
//! without being read, with the reason `unreadable: CODE`, and the claim is tried again. It costs two statements for each such
//! row and three for all of them, once. One statement may take seconds: the database fails only after the first GB of text.
//!
//! A claim does not know policies, so such a row blocks its key. The dispatcher [asks](crate::Store::take_unreadable) whether
//! there was one, and unblocks keys that are to continue.
//!
//! **If we die here** the next claim finds the same rows.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use pillarbox::Delivery;
use sqlx::Row;
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgRow, PgSeverity};
use uuid::Uuid;

use super::claim::candidates;
use super::decode::{OutOfRange, delivery};
use super::observer::Change;
use super::sql::Statement;
use super::{Inner, store_error};
use crate::store::{ClaimRequest, StoreError};

/// How many of them have a log line of their own.
const LOGGED: usize = 10;

/// Why rows were not read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// A row cannot be read.
    Unreadable(Unreadable),
    /// The rows are too large to be read together, or it took too long.
    TooLarge(StoreError),
    /// The database failed.
    Store(StoreError),
}

/// Why a row cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// The SQLSTATE: PostgreSQL's own, or the one that it has for what the row holds.
    code: String,
    pub(super) error: StoreError,
}

impl From<sqlx::Error> for ReadError {
    fn from(error: sqlx::Error) -> Self {
        match code_of(&error) {
            Some(code) => Self::Unreadable(Unreadable {
                code,
                error: store_error(error),
            }),
            None if is_timeout(&error) => Self::TooLarge(store_error(error)),
            None => Self::Store(store_error(error)),
        }
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ReadError> for StoreError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unreadable(Unreadable { error, .. })
            | ReadError::TooLarge(error)
            | ReadError::Store(error) => error,
        }
    }
}

/// Did the server's timeout end the statement?
fn is_timeout(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.is_some_and(|code| code == "57014")
}

/// The SQLSTATE of an error that is caused by what a row holds.
fn code_of(error: &sqlx::Error) -> Option<String> {
    match error {
        sqlx::Error::Database(answer) => {
            let code = answer.code()?;
            // Invalid data (22), a limit such as 1 GB of text (54), damaged data (XX) but for a damaged index (XX002).
            let caused = code != "XX002" && ["22", "54", "XX"].iter().any(|class| code.starts_with(class));
            (caused && !ended_the_connection(answer.as_ref())).then(|| code.into_owned())
        }
        sqlx::Error::ColumnDecode { source, .. } | sqlx::Error::Decode(source) => {
            let code = if source.is::<OutOfRange>() {
                "22008"
            } else {
                "22000"
            };
            Some(code.to_owned())
        }
        _ => None,
    }
}

/// A row fails a statement, never the connection. Some poolers report a lost server with XX000.
fn ended_the_connection(answer: &dyn DatabaseError) -> bool {
    let answer = answer.try_downcast_ref::<PgDatabaseError>();
    answer.is_some_and(|answer| matches!(answer.severity(), PgSeverity::Fatal | PgSeverity::Panic))
}

/// Rows of a statement that were read, and those that could not be.
#[derive(Debug)]
pub(super) struct Sorted<T> {
    pub(super) read: Vec<T>,
    pub(super) unreadable: Vec<(Uuid, Unreadable)>,
}

/// Reads these rows in their order with a [SELECT](Statement::in_order). Stops after an unreadable row if so much time has
/// passed.
///
/// A row that fails is read again, alone: a failure of the moment must not end a sound row.
pub(super) async fn read_in_order<T>(
    inner: &Inner,
    tenant: Option<Uuid>,
    statement: &Statement,
    mut ids: Vec<Uuid>,
    decode: impl Fn(&PgRow) -> Result<T, sqlx::Error>,
    budget: Duration,
) -> Result<Sorted<T>, StoreError> {
    let began = Instant::now();
    let mut sorted = Sorted {
        read: Vec::new(),
        unreadable: Vec::new(),
    };
    while !ids.is_empty() {
        let failed = read_until_failure(inner, tenant, statement, &ids, &decode, &mut sorted).await?;
        let Some((place, why)) = failed else { break };
        let Some(id) = ids.get(place).copied() else {
            return Err(why.error);
        };
        match read_until_failure(inner, tenant, statement, &[id], &decode, &mut sorted).await? {
            None => {}
            Some((0, again)) if again.code == why.code => sorted.unreadable.push((id, again)),
            Some((_, again)) => return Err(again.error),
        }
        ids.drain(..=place);
        if began.elapsed() >= budget {
            break;
        }
    }
    Ok(sorted)
}

/// Reads rows until the database fails. Returns the place of the row that failed, and why.
async fn read_until_failure<T>(
    inner: &Inner,
    tenant: Option<Uuid>,
    statement: &Statement,
    ids: &[Uuid],
    decode: &impl Fn(&PgRow) -> Result<T, sqlx::Error>,
    sorted: &mut Sorted<T>,
) -> Result<Option<(usize, Unreadable)>, StoreError> {
    let mut transaction = inner.begin_for(tenant).await?;
    let query = sqlx::query(statement.safe()).bind(ids.to_vec()).persistent(false);
    let mut rows = query.fetch(&mut *transaction);
    // The rows before the failure have arrived. The row that failed comes next.
    let mut next = 0;
    let failed = loop {
        match rows.try_next().await.map_err(ReadError::from) {
            Ok(None) => break None,
            Ok(Some(row)) => {
                let id = ids.get(next).copied();
                next += 1;
                // A row that was deleted meanwhile has no id.
                if row
                    .try_get::<Option<Uuid>, _>("id")
                    .map_err(store_error)?
                    .is_none()
                {
                    continue;
                }
                match decode(&row).map_err(ReadError::from) {
                    Ok(one) => sorted.read.push(one),
                    Err(ReadError::Unreadable(why)) => sorted.unreadable.extend(id.map(|id| (id, why))),
                    Err(error) => return Err(error.into()),
                }
            }
            Err(ReadError::Unreadable(why)) => break Some((next, why)),
            Err(error) => return Err(error.into()),
        }
    };
    drop(rows);
    transaction.rollback().await.map_err(store_error)?;
    Ok(failed)
}

/// Finds the rows of this claim that cannot be read, and makes them dead. Returns how many it found.
pub(super) async fn end(inner: &Inner, request: &ClaimRequest) -> Result<usize, StoreError> {
    let ids = candidates(inner, request).await?;
    let statement = inner.sql.read.in_order(&inner.sql.schema);
    let decode = |row: &PgRow| delivery(row, request.claim, false).map(|_: Delivery| ());
    let budget = inner.options.timeout / 6;
    let found = read_in_order(inner, None, &statement, ids, decode, budget)
        .await?
        .unreadable;
    if found.is_empty() {
        return Ok(0);
    }
    let (ids, why): (Vec<Uuid>, Vec<Unreadable>) = found.into_iter().unzip();
    let reasons: Vec<String> = why
        .iter()
        .map(|why| format!("unreadable: {}", why.code))
        .collect();
    let mut transaction = inner.begin().await?;
    let query = sqlx::query_scalar(inner.sql.end_unreadable.safe())
        .bind(&ids)
        .bind(reasons)
        .persistent(false);
    let dead: Vec<Uuid> = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    let observer = inner.observer();
    // The rows are locked already, so waiting for more locks could deadlock.
    let Some(locked) = observer.try_lock(&mut transaction, &dead).await? else {
        // Another transaction writes one of them back. The next claim finds them again.
        transaction.rollback().await.map_err(store_error)?;
        return Ok(0);
    };
    observer
        .changed(&mut transaction, locked, Change::default())
        .await?;
    transaction.commit().await.map_err(store_error)?;
    if !dead.is_empty() {
        inner.has_unreadable.store(true, Ordering::Release);
    }
    log(&ids, &why, &dead);
    Ok(ids.len())
}

fn log(ids: &[Uuid], why: &[Unreadable], dead: &[Uuid]) {
    let ended = ids.iter().zip(why).filter(|(id, _)| dead.contains(id));
    for (event_id, Unreadable { code, error }) in ended.take(LOGGED) {
        tracing::error!(%event_id, code, %error, "event is dead: its row cannot be read");
    }
    let suppressed = dead.len().saturating_sub(LOGGED);
    if suppressed > 0 {
        tracing::error!(suppressed, "more events are dead: their rows cannot be read");
    }
}
