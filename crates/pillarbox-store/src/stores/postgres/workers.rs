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

use super::lanes::{Change, Namespace, Seen, Step};
use super::sql::Statement;
use super::{Inner, Transaction, interval, store_error};
use crate::operate::WorkerRecord;
use crate::store::{LaneRequest, Range, StoreError};
use pillarbox::internal::acquire;
use pillarbox::text::error_text;

/// How often a worker reads the ranges again, after another worker changed them or after ranges were created or divided.
const TRIES: usize = 5;

/// Runs a statement without a result on the separate connection.
pub(super) async fn execute(inner: Arc<Inner>, statement: Statement) -> Result<(), StoreError> {
    let mut connection = acquire(&inner.apart()).await?;
    let done = sqlx::raw_sql(statement.safe()).execute(&mut *connection).await;
    done.map_err(store_error)?;
    Ok(())
}

pub(super) async fn lease_lanes(
    inner: Arc<Inner>,
    mut request: LaneRequest,
) -> Result<Vec<Range>, StoreError> {
    let mut seen = BTreeMap::new();
    for _ in 0..TRIES {
        seen = read(&inner, &request.namespaces).await?;
        let steps: Vec<(&String, Step)> = seen
            .iter()
            .map(|(name, lanes)| (name, lanes.step(name, &request)))
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
        .flat_map(|(name, lanes)| lanes.ours(name, request.worker))
        .collect())
}

/// This worker's ranges after these changes.
fn after(
    seen: &BTreeMap<String, Namespace>,
    written: &BTreeMap<String, BTreeMap<u16, Change>>,
    worker: Uuid,
) -> Vec<Range> {
    let mut ours = Vec::new();
    for (name, lanes) in seen {
        for range in &lanes.seen {
            match written.get(name).and_then(|changes| changes.get(&range.number)) {
                Some(change) if change.owner == Some(worker) => ours.push(change.range(name)),
                Some(_) => {}
                None if range.held && range.owner == Some(worker) => ours.push(range.range(name)),
                None => {}
            }
        }
    }
    ours
}

async fn read(inner: &Inner, namespaces: &[String]) -> Result<BTreeMap<String, Namespace>, StoreError> {
    let mut seen: BTreeMap<String, Namespace> = namespaces
        .iter()
        .map(|name| (name.clone(), Namespace::default()))
        .collect();
    let rows = sqlx::raw_sql(inner.sql.lanes(namespaces).safe())
        .fetch_all(&mut *inner.connection().await?)
        .await
        .map_err(store_error)?;
    for row in &rows {
        let name: String = row.try_get("namespace").map_err(store_error)?;
        let owner = row
            .try_get::<Option<String>, _>("owner")
            .map_err(store_error)?
            .and_then(|id| Uuid::parse_str(&id).ok());
        let lanes = seen.entry(name).or_default();
        match row.try_get::<Option<i32>, _>("number").map_err(store_error)? {
            Some(number) => lanes.seen.push(range(row, number, owner).map_err(store_error)?),
            None => lanes.workers.extend(owner),
        }
    }
    Ok(seen)
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

type Written = BTreeMap<String, BTreeMap<u16, Change>>;

/// Writes these steps in one transaction. Returns the changes if no further step is needed.
async fn write(
    inner: &Inner,
    request: &LaneRequest,
    steps: &[(&String, Step)],
) -> Result<Option<Written>, StoreError> {
    let mut transaction = inner.begin().await?;
    let mut written = Written::new();
    let mut is_done = true;
    for (name, step) in steps {
        let (statement, ranges) = match step {
            Step::Create(ranges) => (&inner.sql.create_lanes, *ranges),
            Step::Divide(ranges) => (&inner.sql.divide_lanes, *ranges),
            Step::Release(changes) | Step::Write(changes) => {
                is_done &= matches!(step, Step::Write(_));
                let changes = changes.iter().map(|change| (change.was.number, change.clone()));
                written.insert((*name).clone(), changes.collect());
                continue;
            }
        };
        is_done = false;
        let query = sqlx::query(statement.safe())
            .bind((*name).clone())
            .bind(i32::from(ranges));
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
    let names = written
        .iter()
        .flat_map(|(name, changes)| vec![name.clone(); changes.len()]);
    let query = sqlx::query_scalar(inner.sql.lease_lanes.safe())
        .bind(names.collect::<Vec<_>>())
        .bind(column(written, |change| i32::from(change.was.number)))
        .bind(column(written, |change| i32::from(change.was.ranges)))
        .bind(column(written, |change| change.was.owner))
        .bind(column(written, |change| change.was.held))
        .bind(column(written, |change| i32::from(change.wanted)))
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
) -> Result<(), StoreError> {
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.pause.safe())
        .bind(destination)
        .bind(error_text(&reason))
        .bind(disabled)
        .persistent(false);
    query.execute(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)
}

pub(super) async fn resume(inner: Arc<Inner>, destination: String) -> Result<bool, StoreError> {
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.resume.safe())
        .bind(destination)
        .persistent(false);
    let done = query.execute(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(done.rows_affected() > 0)
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
