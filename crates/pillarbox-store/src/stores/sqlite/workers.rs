//! Heartbeats, leases of lanes, and pauses. SQLite has one lane per namespace, and so one range.
//!
//! **If we die here** the lane is free when its lease expires.

use serde_json::json;
use sqlx::{Row, SqlitePool};
use uuid::Uuid;

use super::{MAX_LEASE, decode, later, scope_json};
use crate::operate::WorkerRecord;
use crate::store::{Heartbeat, LANES, LaneRequest, Range};

pub(super) async fn lease_lanes(writer: SqlitePool, request: LaneRequest) -> Result<Vec<Range>, sqlx::Error> {
    if request.namespaces.is_empty() && request.release.is_empty() {
        return Ok(Vec::new()); // nothing to lease: the write lock is not needed
    }
    let worker = request.worker.to_string();
    let namespaces = json!(request.namespaces).to_string();
    let lease = later(request.lease.min(MAX_LEASE));
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    if !request.release.is_empty() {
        let released: Vec<&str> = request
            .release
            .iter()
            .map(|range| range.namespace.as_str())
            .collect();
        sqlx::query(include_str!("sql/release_lanes.sql"))
            .bind(&worker)
            .bind(json!(released).to_string())
            .execute(&mut *tx)
            .await?;
    }
    // Renew before lease: a lane that this worker is leaving must not be leased again.
    for sql in [
        include_str!("sql/renew_lanes.sql"),
        include_str!("sql/lease_lanes.sql"),
    ] {
        sqlx::query(sql)
            .bind(&worker)
            .bind(&namespaces)
            .bind(&lease)
            .execute(&mut *tx)
            .await?;
    }
    let leased = sqlx::query(include_str!("sql/leased_lanes.sql"))
        .bind(&worker)
        .bind(&namespaces)
        .fetch_all(&mut *tx)
        .await?;
    tx.commit().await?;
    leased
        .iter()
        .map(|row| {
            Ok(Range {
                namespace: decode::text(row, "namespace")?.unwrap_or_default(),
                first: 0,
                last: LANES - 1,
                leaving: row.try_get("leaving")?,
            })
        })
        .collect()
}

pub(super) async fn heartbeat(writer: SqlitePool, heartbeat: Heartbeat) -> Result<(), sqlx::Error> {
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let breakers = heartbeat.breakers_json();
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
) -> Result<(), sqlx::Error> {
    let query = sqlx::query(include_str!("sql/pause.sql"))
        .bind(destination)
        .bind(reason)
        .bind(disabled);
    query.execute(&writer).await?;
    Ok(())
}

pub(super) async fn workers(readers: SqlitePool) -> Result<Vec<WorkerRecord>, sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/workers.sql"))
        .fetch_all(&readers)
        .await?;
    rows.iter().map(decode::worker).collect()
}
