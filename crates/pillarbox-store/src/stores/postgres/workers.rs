//! Heartbeats, leases of lane ranges, and paused destinations.
//!
//! What an idle worker runs often is one query by the simple protocol.
//!
//! **If we die here** the lanes are free when their lease expires.

use std::collections::BTreeMap;
use std::sync::Arc;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::lanes::{Change, Ranges, Seen, Step};
use super::sql::{Statement, destination};
use super::{Inner, Transaction, audit, interval, store_error};
use crate::actor::Actor;
use crate::audit::Line;
use crate::operate::WorkerRecord;
use crate::store::{Backlog, LaneRequest, Range, Scope, StoreError};
use crate::stores::sharing::{LiveWorker, Sharers};
use pillarbox::text::error_text;

/// How often a worker reads the ranges again, after another worker changed them or after ranges were created or
/// deleted.
const TRIES: usize = 5;
/// Of how many backlogs the ranges are deleted at a time.
const MOST_PRUNED: i64 = 1_000;

/// Runs a statement without a result on the separate connection.
pub(super) async fn execute(inner: Arc<Inner>, statement: Statement) -> Result<(), StoreError> {
    let mut connection = inner.connection_apart().await?;
    let done = sqlx::raw_sql(inner.bounded(&statement))
        .execute(&mut *connection)
        .await;
    done.map_err(store_error)?;
    Ok(())
}

pub(super) async fn lease_lanes(
    inner: Arc<Inner>,
    mut request: LaneRequest,
) -> Result<Vec<Range>, StoreError> {
    let mut seen = BTreeMap::new();
    for _ in 0..TRIES {
        let live;
        (seen, live) = read(&inner, &request.backlogs).await?;
        let steps: Vec<(&Backlog, Step)> = seen
            .iter()
            .map(|(backlog, ranges)| {
                let sharers = Sharers::of(backlog, &live, &request);
                (backlog, ranges.step(backlog, &sharers, &request))
            })
            .collect();
        if steps.iter().all(|(_, step)| *step == Step::Write(Vec::new())) {
            break;
        }
        if let Some(written) = write(&inner, &request, &steps).await? {
            return Ok(after(&seen, &written, request.worker));
        }
        // The released ranges are free now, and may be leased again.
        request.release.clear();
    }
    Ok(seen
        .iter()
        .flat_map(|(backlog, ranges)| ranges.ours(backlog, request.worker))
        .collect())
}

/// This worker's ranges after these changes.
fn after(seen: &BTreeMap<Backlog, Ranges>, written: &Written, worker: Uuid) -> Vec<Range> {
    let mut ours = Vec::new();
    for (backlog, ranges) in seen {
        for range in &ranges.seen {
            match written
                .get(backlog)
                .and_then(|changes| changes.get(&range.number))
            {
                Some(change) if change.owner == Some(worker) => ours.push(change.range(backlog)),
                Some(_) => {}
                None if range.held && range.owner == Some(worker) => ours.push(range.range(backlog)),
                None => {}
            }
        }
    }
    ours
}

/// The live workers, in the order of their start.
pub(super) async fn live_workers(inner: &Inner) -> Result<Vec<LiveWorker>, StoreError> {
    let mut connection = inner.connection().await?;
    let rows = sqlx::raw_sql(inner.bounded(&inner.sql.live_workers))
        .fetch_all(&mut *connection)
        .await
        .map_err(store_error)?;
    let mut live = Vec::with_capacity(rows.len());
    for row in &rows {
        live.extend(live_worker(row, owner(row)?).map_err(store_error)?);
    }
    Ok(live)
}

/// The ranges of these backlogs, and the live workers in the order of their start.
async fn read(
    inner: &Inner,
    backlogs: &[Backlog],
) -> Result<(BTreeMap<Backlog, Ranges>, Vec<LiveWorker>), StoreError> {
    let mut seen: BTreeMap<Backlog, Ranges> = backlogs
        .iter()
        .map(|backlog| (backlog.clone(), Ranges::default()))
        .collect();
    let mut live = Vec::new();
    let mut connection = inner.connection().await?;
    let rows = sqlx::raw_sql(inner.bounded(&inner.sql.lanes(backlogs)))
        .fetch_all(&mut *connection)
        .await
        .map_err(store_error)?;
    for row in &rows {
        let owner = owner(row)?;
        match row.try_get::<Option<i32>, _>("number").map_err(store_error)? {
            Some(number) => {
                let ranges = seen.entry(backlog(row).map_err(store_error)?).or_default();
                ranges.seen.push(range(row, number, owner).map_err(store_error)?);
            }
            None => live.extend(live_worker(row, owner).map_err(store_error)?),
        }
    }
    Ok((seen, live))
}

fn owner(row: &PgRow) -> Result<Option<Uuid>, StoreError> {
    let id: Option<String> = row.try_get("owner").map_err(store_error)?;
    Ok(id.and_then(|id| Uuid::parse_str(&id).ok()))
}

pub(super) fn backlog(row: &PgRow) -> Result<Backlog, sqlx::Error> {
    let destination: String = row.try_get("destination")?;
    Ok(Backlog {
        destination: Some(destination).filter(|name| !name.is_empty()),
        namespace: row.try_get("namespace")?,
    })
}

fn live_worker(row: &PgRow, id: Option<Uuid>) -> Result<Option<LiveWorker>, sqlx::Error> {
    let scope: Option<String> = row.try_get("scope")?;
    let serves: Option<String> = row.try_get("serves")?;
    let scope = scope.and_then(|names| serde_json::from_str::<Vec<String>>(&names).ok());
    Ok(id.map(|id| LiveWorker {
        id,
        scope: scope.map_or(Scope::All, Scope::of),
        serves: serves
            .and_then(|serves| serde_json::from_str(&serves).ok())
            .unwrap_or_default(),
    }))
}

fn range(row: &PgRow, number: i32, owner: Option<Uuid>) -> Result<Seen, sqlx::Error> {
    // The table's check constraints keep them between 0 and 4096.
    let small = |number: i32| u16::try_from(number).unwrap_or_default();
    Ok(Seen {
        number: small(number),
        ranges: small(row.try_get("ranges")?),
        wanted: small(row.try_get("wanted")?),
        owner,
        held: row.try_get("held")?,
        leaving: row.try_get("leaving")?,
        remaining: row.try_get("remaining")?,
    })
}

type Written = BTreeMap<Backlog, BTreeMap<u16, Change>>;

/// Writes these steps in one transaction. Returns the changes if no further step is needed.
async fn write(
    inner: &Inner,
    request: &LaneRequest,
    steps: &[(&Backlog, Step)],
) -> Result<Option<Written>, StoreError> {
    let mut transaction = inner.begin().await?;
    let mut written = Written::new();
    let mut created: Vec<(&Backlog, i32, i32)> = Vec::new();
    let mut deleted: Vec<&Backlog> = Vec::new();
    let mut is_done = true;
    for (backlog, step) in steps {
        is_done &= matches!(step, Step::Write(_));
        match step {
            Step::Create(ranges, wanted) => created.push((backlog, i32::from(*ranges), i32::from(*wanted))),
            Step::Delete => deleted.push(backlog),
            Step::Release(changes) | Step::Write(changes) => {
                let changes = changes.iter().map(|change| (change.was.number, change.clone()));
                written.insert((*backlog).clone(), changes.collect());
            }
        }
    }
    if !deleted.is_empty() {
        delete(inner, &mut transaction, &deleted).await?;
    }
    if !created.is_empty() {
        let backlogs: Vec<&Backlog> = created.iter().map(|(backlog, ..)| *backlog).collect();
        let (namespaces, destinations) = names(&backlogs);
        let query = sqlx::query(inner.sql.create_lanes.safe())
            .bind(namespaces)
            .bind(destinations)
            .bind(created.iter().map(|(_, ranges, _)| *ranges).collect::<Vec<_>>())
            .bind(created.iter().map(|(.., wanted)| *wanted).collect::<Vec<_>>());
        let done = query.persistent(false).execute(&mut *transaction).await;
        done.map_err(store_error)?;
    }
    let all: usize = written.values().map(BTreeMap::len).sum();
    if all > 0 && write_changes(inner, &mut transaction, request, &written).await? != all {
        transaction.rollback().await.map_err(store_error)?;
        return Ok(None);
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(Some(written).filter(|_| is_done))
}

pub(super) fn names(backlogs: &[&Backlog]) -> (Vec<String>, Vec<String>) {
    let pairs = backlogs
        .iter()
        .map(|backlog| (backlog.namespace.clone(), destination(backlog)));
    pairs.unzip()
}

/// Deletes the ranges of these backlogs, except where one is leased. Returns of how many backlogs.
async fn delete(
    inner: &Inner,
    transaction: &mut Transaction,
    backlogs: &[&Backlog],
) -> Result<usize, StoreError> {
    let (namespaces, destinations) = names(backlogs);
    let query = sqlx::query_scalar(inner.sql.delete_lanes.safe())
        .bind(namespaces)
        .bind(destinations)
        .persistent(false);
    let count: i64 = query.fetch_one(&mut **transaction).await.map_err(store_error)?;
    Ok(usize::try_from(count).unwrap_or_default())
}

pub(super) async fn prune_lanes(inner: Arc<Inner>) -> Result<usize, StoreError> {
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.unleased_lanes.safe())
        .bind(MOST_PRUNED)
        .persistent(false);
    let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    let unleased: Vec<Backlog> = rows
        .iter()
        .map(backlog)
        .collect::<Result<_, _>>()
        .map_err(store_error)?;
    let deleted = if unleased.is_empty() {
        0
    } else {
        delete(
            inner.as_ref(),
            &mut transaction,
            &unleased.iter().collect::<Vec<_>>(),
        )
        .await?
    };
    transaction.commit().await.map_err(store_error)?;
    Ok(deleted)
}

/// Writes the changes of ranges that are still as they were read. Returns how many were written.
async fn write_changes(
    inner: &Inner,
    transaction: &mut Transaction,
    request: &LaneRequest,
    written: &Written,
) -> Result<usize, StoreError> {
    fn column<T>(written: &Written, of: impl Fn(&Change) -> T) -> Vec<T> {
        written.values().flat_map(BTreeMap::values).map(of).collect()
    }
    let backlogs: Vec<&Backlog> = written
        .iter()
        .flat_map(|(backlog, changes)| vec![backlog; changes.len()])
        .collect();
    let (namespaces, destinations) = names(&backlogs);
    let query = sqlx::query_scalar(inner.sql.lease_lanes.safe())
        .bind(namespaces)
        .bind(destinations)
        .bind(column(written, |change| i32::from(change.was.number)))
        .bind(column(written, |change| i32::from(change.was.ranges)))
        .bind(column(written, |change| change.was.owner))
        .bind(column(written, |change| change.was.held))
        .bind(column(written, |change| change.owner))
        .bind(column(written, |change| change.is_new))
        .bind(column(written, |change| change.leaving))
        .bind(interval(request.lease))
        .persistent(false);
    let count: i64 = query.fetch_one(&mut **transaction).await.map_err(store_error)?;
    Ok(usize::try_from(count).unwrap_or_default())
}

pub(super) async fn pause(
    inner: Arc<Inner>,
    destination: String,
    reason: String,
    disabled: bool,
    line: Line,
) -> Result<(), StoreError> {
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.pause.safe())
        .bind(destination)
        .bind(error_text(&reason))
        .bind(disabled)
        .persistent(false);
    let done = query.execute(&mut *transaction).await.map_err(store_error)?;
    if done.rows_affected() > 0 {
        audit::write(&inner, &mut transaction, line).await?;
    }
    transaction.commit().await.map_err(store_error)
}

pub(super) async fn resume(inner: Arc<Inner>, actor: Actor, destination: String) -> Result<bool, StoreError> {
    let mut transaction = inner.begin().await?;
    let query = sqlx::query_scalar(inner.sql.resume.safe())
        .bind(&destination)
        .persistent(false);
    let disabled: Option<bool> = query
        .fetch_optional(&mut *transaction)
        .await
        .map_err(store_error)?;
    if let Some(disabled) = disabled {
        let line = Line::resumed(&actor, &destination, disabled);
        audit::write(&inner, &mut transaction, line).await?;
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(disabled.is_some())
}

pub(super) async fn workers(inner: Arc<Inner>) -> Result<Vec<WorkerRecord>, StoreError> {
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.workers.safe()).persistent(false);
    let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    rows.iter()
        .map(worker)
        .collect::<Result<_, _>>()
        .map_err(store_error)
}

fn worker(row: &PgRow) -> Result<WorkerRecord, sqlx::Error> {
    let count =
        |column: &str| -> Result<u64, sqlx::Error> { Ok(row.try_get::<i64, _>(column)?.unsigned_abs()) };
    Ok(WorkerRecord {
        id: row.try_get("id")?,
        host: row.try_get("host")?,
        version: row.try_get("version")?,
        scope: row.try_get("scope")?,
        started_at: row.try_get("started_at")?,
        seen_at: row.try_get("seen_at")?,
        alive: row.try_get("alive")?,
        lanes: row.try_get::<i32, _>("lanes")?.unsigned_abs(),
        claimed: count("claimed")?,
        delivered: count("delivered")?,
        failed: count("failed")?,
        breakers: serde_json::from_value(row.try_get("breakers")?).unwrap_or_default(),
    })
}
