//! Takes and reads the sample of this outbox.
//!
//! One statement decides whose turn it is. The sample is one transaction that reads one snapshot, within a timeout of its own. If
//! it takes long, the next one counts half as many rows.
//!
//! **If we die here** the turn ends, and another worker takes the sample. Until then all show the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};
use time::OffsetDateTime;
use tokio::time::Instant;
use uuid::Uuid;

use super::pool::begin_snapshot;
use super::{Inner, Transaction, adopt, interval, store_error};
use crate::sample::{
    AdoptedRows, Depth, INTERVAL, MOST_COUNTED, MOST_DESTINATIONS, MOST_NAMES, STALE_AFTER, Sample,
    SampleRequest, Sampled,
};
use crate::store::{StoreError, UNROUTED};

/// The timeout of each statement of a sample.
const TIMEOUT: Duration = Duration::from_secs(6);
/// For how long it is a worker's turn.
const TURN: Duration = Duration::from_secs(30);
/// How many times as long as a sample the wait after it is, so that it takes at most a twentieth of the time.
const REST: u32 = 19;
/// A sample counts at least so many rows.
const FEWEST_COUNTED: u64 = 1000;
/// A sample that is slower makes the next one count half as many, and one that is quicker may let it count more.
const SLOW: Duration = Duration::from_secs(4);
const QUICK: Duration = Duration::from_millis(200);
/// The SQLSTATE of a statement that took too long.
const TIMED_OUT: &str = "57014";

pub(super) async fn sample(inner: Arc<Inner>, request: SampleRequest) -> Result<Sampled, StoreError> {
    let newest = newest(&inner).await?;
    if !newest.due_in.is_zero() {
        return Ok(newest);
    }
    let Some(cap) = turn(&inner, request.worker).await? else {
        return Ok(newest);
    };
    let began = Instant::now();
    let taken = take(&inner, &request, cap).await;
    let took = began.elapsed();
    let (taken, cap) = match taken {
        Ok(taken) => {
            let next = next_cap(cap, took, taken.0.largest());
            (Ok(taken), next)
        }
        Err(error) if error.to_string().contains(TIMED_OUT) => {
            let cap = next_cap(cap, Duration::MAX, cap);
            // The database is available: it took too long for this statement.
            let error =
                format!("counting took too long, so the next sample counts up to {cap} rows: {error}");
            (Err(StoreError::Other(error)), cap)
        }
        Err(error) => return Err(error),
    };
    let rest = INTERVAL.max(took.saturating_mul(REST));
    store(&inner, request.worker, taken.as_ref().ok(), rest, cap).await?;
    taken?;
    self::newest(&inner).await
}

/// Up to how many rows the next sample counts, after one that took so long and whose largest count was this. It grows only
/// when no count reaches it, so that a large backlog does not seem to come and go.
fn next_cap(cap: u64, took: Duration, largest: u64) -> u64 {
    if took > SLOW {
        (cap / 2).max(FEWEST_COUNTED)
    } else if took < QUICK && largest < cap {
        cap.saturating_mul(2).min(MOST_COUNTED)
    } else {
        cap
    }
}

/// What is stored.
async fn newest(inner: &Inner) -> Result<Sampled, StoreError> {
    let mut connection = inner.connection().await?;
    let row = sqlx::raw_sql(inner.bounded(&inner.sql.sample_newest))
        .fetch_one(&mut *connection)
        .await
        .map_err(store_error)?;
    read(&row).map_err(store_error)
}

fn read(row: &PgRow) -> Result<Sampled, sqlx::Error> {
    let seconds = |column| -> Result<Duration, sqlx::Error> {
        let seconds: Option<f64> = row.try_get(column)?;
        Ok(Duration::try_from_secs_f64(seconds.unwrap_or_default()).unwrap_or_default())
    };
    let sample: Option<String> = row.try_get("sample")?;
    let now = time::Duration::seconds_f64(row.try_get("now")?);
    Ok(Sampled {
        // One that another version wrote and that this one cannot read is taken again in a moment.
        sample: sample.and_then(|text| serde_json::from_str(&text).ok()),
        age: seconds("age")?,
        due_in: seconds("due_in")?,
        manual_retries: row.try_get::<i64, _>("manual_retries")?.unsigned_abs(),
        now: OffsetDateTime::UNIX_EPOCH + now,
    })
}

/// Up to how many rows to count, if it is this worker's turn.
async fn turn(inner: &Inner, worker: Uuid) -> Result<Option<u64>, StoreError> {
    let mut transaction = inner.begin().await?;
    let cap: Option<i64> = sqlx::query_scalar(inner.sql.sample_turn.safe())
        .bind(worker)
        .bind(interval(TURN))
        .bind(bound(MOST_COUNTED))
        .persistent(false)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(cap.map(i64::unsigned_abs))
}

/// A sample, and the time of its snapshot.
async fn take(
    inner: &Inner,
    request: &SampleRequest,
    cap: u64,
) -> Result<(Sample, OffsetDateTime), StoreError> {
    let mut transaction = inner.begin_with(AssertSqlSafe(begin_snapshot(TIMEOUT))).await?;
    let (at, served) = known(inner, &mut transaction).await?;
    let own = request.destinations.iter().cloned();
    let mut known: BTreeSet<String> = own.take(MOST_DESTINATIONS).collect();
    for name in served {
        if known.len() < MOST_DESTINATIONS {
            known.insert(name);
        }
    }
    known.insert(UNROUTED.to_owned());
    let mut sample = Sample {
        cap,
        destinations: known.into_iter().map(|name| (name, Depth::default())).collect(),
        ..Sample::default()
    };
    destinations(inner, &mut transaction, &mut sample).await?;
    others(inner, &mut transaction, &mut sample).await?;
    rest(inner, &mut transaction, &mut sample).await?;
    sample.adopted_tables = adopted_tables(inner, &mut transaction).await?;
    transaction.commit().await.map_err(store_error)?;
    Ok((sample, at))
}

async fn known(
    inner: &Inner,
    transaction: &mut Transaction,
) -> Result<(OffsetDateTime, Vec<String>), StoreError> {
    let row = sqlx::query(inner.sql.sample_known.safe())
        .bind(bound(MOST_DESTINATIONS as u64))
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    let at = row.try_get("at").map_err(store_error)?;
    Ok((at, row.try_get("destinations").map_err(store_error)?))
}

fn names(sample: &Sample) -> Vec<String> {
    sample.destinations.keys().cloned().collect()
}

async fn destinations(
    inner: &Inner,
    transaction: &mut Transaction,
    sample: &mut Sample,
) -> Result<(), StoreError> {
    let mut names = names(sample);
    names.push(String::new());
    let rows = sqlx::query(inner.sql.sample_destinations.safe())
        .bind(names)
        .bind(bound(sample.cap))
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    for row in &rows {
        let name: String = row.try_get("destination").map_err(store_error)?;
        count(row, sample.depth(&name)).map_err(store_error)?;
    }
    Ok(())
}

async fn others(inner: &Inner, transaction: &mut Transaction, sample: &mut Sample) -> Result<(), StoreError> {
    let row = sqlx::query(inner.sql.sample_others.safe())
        .bind(names(sample))
        .bind(bound(sample.cap))
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    count(&row, &mut sample.other).map_err(store_error)
}

fn count(row: &PgRow, depth: &mut Depth) -> Result<(), sqlx::Error> {
    depth.pending = row.try_get::<i64, _>("pending")?.unsigned_abs();
    depth.dead = row.try_get::<i64, _>("dead")?.unsigned_abs();
    depth.oldest_pending_seconds = row.try_get("oldest")?;
    Ok(())
}

async fn rest(inner: &Inner, transaction: &mut Transaction, sample: &mut Sample) -> Result<(), StoreError> {
    let rows = sqlx::query(inner.sql.sample_rest.safe())
        .bind(bound(sample.cap))
        .bind(STALE_AFTER.as_secs_f64())
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    for row in &rows {
        let (what, name): (String, String) = (
            row.try_get("what").map_err(store_error)?,
            row.try_get("name").map_err(store_error)?,
        );
        let value: f64 = row.try_get("value").map_err(store_error)?;
        sample.fact(&what, &name, value);
    }
    Ok(())
}

async fn adopted_tables(
    inner: &Inner,
    transaction: &mut Transaction,
) -> Result<BTreeMap<String, AdoptedRows>, StoreError> {
    let names: Vec<String> = sqlx::query_scalar(inner.sql.adopted_tables.safe())
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    let mut tables = BTreeMap::new();
    for name in names.into_iter().take(MOST_NAMES) {
        let table = adopt::table(inner, transaction, name).await?;
        let rows = AdoptedRows {
            in_progress: table.in_progress,
            write_back_pending: table.pending_write_backs,
            write_back_rejected: table.rejected_write_backs,
            not_imported: table.not_imported,
        };
        tables.insert(table.name, rows);
    }
    Ok(tables)
}

async fn store(
    inner: &Inner,
    worker: Uuid,
    taken: Option<&(Sample, OffsetDateTime)>,
    rest: Duration,
    cap: u64,
) -> Result<(), StoreError> {
    let mut transaction = inner.begin().await?;
    let stored = sqlx::query(inner.sql.sample_store.safe())
        .bind(worker)
        .bind(taken.map(|(sample, _)| serde_json::json!(sample).to_string()))
        .bind(taken.map(|(_, at)| *at))
        .bind(interval(rest))
        .bind(bound(cap))
        .persistent(false)
        .execute(&mut *transaction)
        .await;
    stored.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)
}

fn bound(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_falls_after_a_slow_sample_and_grows_once_no_count_reaches_it() {
        let second = Duration::from_secs;
        assert_eq!(next_cap(100_000, second(5), 100_000), 50_000);
        assert_eq!(
            next_cap(10_000, Duration::ZERO, 10_000),
            10_000,
            "the backlog is still there"
        );
        assert_eq!(next_cap(10_000, Duration::ZERO, 9_999), 20_000);
        assert_eq!(next_cap(10_000, second(1), 0), 10_000);
        assert_eq!(next_cap(1000, Duration::MAX, 1000), FEWEST_COUNTED);
        assert_eq!(next_cap(MOST_COUNTED, Duration::ZERO, 0), MOST_COUNTED);
    }
}
