//! Heartbeats, leases of lanes, and pauses. SQLite has one lane per backlog, and so one range.
//!
//! **If we die here** the lane is free when its lease expires.

use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, SqlitePool};
use uuid::Uuid;

use super::choose::destination;
use super::{MAX_LEASE, audit, decode, later, scope_json};
use crate::actor::Actor;
use crate::audit::Line;
use crate::operate::WorkerRecord;
use crate::store::{Backlog, Heartbeat, LANES, LaneRequest, Range, Scope};
use crate::stores::sharing::{LiveWorker, Sharers};

pub(super) async fn lease_lanes(writer: SqlitePool, request: LaneRequest) -> Result<Vec<Range>, sqlx::Error> {
    if request.backlogs.is_empty() && request.release.is_empty() {
        return Ok(Vec::new()); // nothing to lease: the write lock is not needed
    }
    let worker = request.worker.to_string();
    let asked = pairs(&request.backlogs);
    let lease = later(request.lease.min(MAX_LEASE));
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    if !request.release.is_empty() {
        let released: Vec<Backlog> = request
            .release
            .iter()
            .map(|range| range.backlog.clone())
            .collect();
        sqlx::query(include_str!("sql/release_lanes.sql"))
            .bind(&worker)
            .bind(pairs(&released))
            .execute(&mut *tx)
            .await?;
    }
    let live = live_workers(&mut tx).await?;
    let ours = |backlog: &&Backlog| Sharers::of(backlog, &live, &request).only() == Some(request.worker);
    let wanted = pairs(request.backlogs.iter().filter(ours));
    // Renew before lease: a lane that this worker is leaving must not be leased again.
    sqlx::query(include_str!("sql/renew_lanes.sql"))
        .bind(&worker)
        .bind(&asked)
        .bind(&lease)
        .bind(&wanted)
        .execute(&mut *tx)
        .await?;
    sqlx::query(include_str!("sql/lease_lanes.sql"))
        .bind(&worker)
        .bind(&wanted)
        .bind(&lease)
        .execute(&mut *tx)
        .await?;
    let leased = sqlx::query(include_str!("sql/leased_lanes.sql"))
        .bind(&worker)
        .bind(&asked)
        .fetch_all(&mut *tx)
        .await?;
    tx.commit().await?;
    leased
        .iter()
        .map(|row| {
            Ok(Range {
                backlog: decode::backlog(row)?,
                first: 0,
                last: LANES - 1,
                leaving: row.try_get("leaving")?,
            })
        })
        .collect()
}

/// Backlogs as a JSON array of [namespace, destination].
fn pairs<'a>(backlogs: impl IntoIterator<Item = &'a Backlog>) -> String {
    let pairs = backlogs
        .into_iter()
        .map(|backlog| json!([backlog.namespace, destination(backlog)]));
    pairs.collect::<serde_json::Value>().to_string()
}

/// The live workers, in the order of their start.
pub(super) async fn live_workers(tx: &mut SqliteConnection) -> Result<Vec<LiveWorker>, sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/live_workers.sql"))
        .fetch_all(tx)
        .await?;
    let live = |row: &SqliteRow| {
        let scope = decode::text(row, "scope")?;
        let scope = scope.and_then(|names| serde_json::from_str::<Vec<String>>(&names).ok());
        let serves = decode::text(row, "serves")?;
        Ok(LiveWorker {
            id: decode::uuid(row, "id")?.unwrap_or_default(),
            scope: scope.map_or(Scope::All, Scope::of),
            serves: serves
                .and_then(|serves| serde_json::from_str(&serves).ok())
                .unwrap_or_default(),
        })
    };
    rows.iter().map(live).collect()
}

pub(super) async fn prune_lanes(writer: SqlitePool) -> Result<usize, sqlx::Error> {
    let done = sqlx::query(include_str!("sql/prune_lanes.sql"))
        .execute(&writer)
        .await?;
    Ok(usize::try_from(done.rows_affected()).unwrap_or(usize::MAX))
}

pub(super) async fn heartbeat(writer: SqlitePool, heartbeat: Heartbeat) -> Result<(), sqlx::Error> {
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let breakers = heartbeat.breakers_json();
    let serves = heartbeat.serves_json();
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query(include_str!("sql/heartbeat.sql"))
        .bind(heartbeat.worker.to_string())
        .bind(heartbeat.host)
        .bind(heartbeat.version)
        .bind(scope_json(&heartbeat.scope))
        .bind(later(heartbeat.ttl.min(MAX_LEASE)))
        .bind(count(heartbeat.claimed))
        .bind(count(heartbeat.delivered))
        .bind(count(heartbeat.failed))
        .bind(breakers)
        .bind(serves)
        .execute(&mut *tx)
        .await?;
    sqlx::query(include_str!("sql/prune_workers.sql"))
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

pub(super) async fn deregister(writer: SqlitePool, worker: Uuid) -> Result<(), sqlx::Error> {
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("delete from pillarbox_workers where id = ?1")
        .bind(worker.to_string())
        .execute(&mut *tx)
        .await?;
    sqlx::query(include_str!("sql/release_lanes.sql"))
        .bind(worker.to_string())
        .bind(None::<String>)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

pub(super) async fn pause(
    writer: SqlitePool,
    destination: String,
    reason: String,
    disabled: bool,
    line: Line,
) -> Result<(), sqlx::Error> {
    let query = sqlx::query(include_str!("sql/pause.sql"))
        .bind(destination)
        .bind(reason)
        .bind(disabled);
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    if query.execute(&mut *tx).await?.rows_affected() > 0 {
        audit::write(&mut tx, line).await?;
    }
    tx.commit().await
}

pub(super) async fn resume(
    writer: SqlitePool,
    actor: Actor,
    destination: String,
) -> Result<bool, sqlx::Error> {
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    let disabled: Option<bool> = sqlx::query_scalar(include_str!("sql/resume.sql"))
        .bind(&destination)
        .fetch_optional(&mut *tx)
        .await?;
    if let Some(disabled) = disabled {
        audit::write(&mut tx, Line::resumed(&actor, &destination, disabled)).await?;
    }
    tx.commit().await?;
    Ok(disabled.is_some())
}

pub(super) async fn workers(readers: SqlitePool) -> Result<Vec<WorkerRecord>, sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/workers.sql"))
        .fetch_all(&readers)
        .await?;
    rows.iter().map(decode::worker).collect()
}
