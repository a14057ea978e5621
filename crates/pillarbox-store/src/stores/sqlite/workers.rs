//! Who is alive, and who takes care of which lane. SQLite has one lane a namespace, and so one range.
//!
//! **If we die here** the lane is free when its lease has ended.

use serde_json::json;
use sqlx::{Row, SqlitePool};
use uuid::Uuid;

use super::{MAX_LEASE, decode, later, scope_json};
use crate::operate::WorkerRecord;
use crate::store::{Heartbeat, LANES, LaneRequest, Range};

pub(super) async fn lease_lanes(writer: SqlitePool, request: LaneRequest) -> Result<Vec<Range>, sqlx::Error> {
    if request.namespaces.is_empty() && request.give_up.is_empty() {
        return Ok(Vec::new()); // nothing to take care of: no need to take the write lock
    }
    let worker = request.worker.to_string();
    let namespaces = json!(request.namespaces).to_string();
    let lease = later(request.lease.min(MAX_LEASE));
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    if !request.give_up.is_empty() {
        let given_up: Vec<&str> = request
            .give_up
            .iter()
            .map(|range| range.namespace.as_str())
            .collect();
        sqlx::query(include_str!("sql/lanes_given_up.sql"))
            .bind(&worker)
            .bind(json!(given_up).to_string())
            .execute(&mut *tx)
            .await?;
    }
    // What is ours is kept before anything is taken: a lane that we are to leave is not taken again.
    for sql in [
        include_str!("sql/lanes_kept.sql"),
        include_str!("sql/lanes_taken.sql"),
    ] {
        sqlx::query(sql)
            .bind(&worker)
            .bind(&namespaces)
            .bind(&lease)
            .execute(&mut *tx)
            .await?;
    }
    let mine = sqlx::query(include_str!("sql/lanes_mine.sql"))
        .bind(&worker)
        .bind(&namespaces)
        .fetch_all(&mut *tx)
        .await?;
    tx.commit().await?;
    mine.iter()
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

pub(super) async fn heartbeat(writer: SqlitePool, said: Heartbeat) -> Result<(), sqlx::Error> {
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query(include_str!("sql/heartbeat.sql"))
        .bind(said.worker.to_string())
        .bind(said.host)
        .bind(said.version)
        .bind(scope_json(&said.scope))
        .bind(later(said.ttl.min(MAX_LEASE)))
        .bind(count(said.claimed))
        .bind(count(said.delivered))
        .bind(count(said.failed))
        .execute(&mut *tx)
        .await?;
    sqlx::query(include_str!("sql/forget_workers.sql"))
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
    sqlx::query(include_str!("sql/lanes_given_up.sql"))
        .bind(worker.to_string())
        .bind(None::<String>)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

pub(super) async fn workers(readers: SqlitePool) -> Result<Vec<WorkerRecord>, sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/workers.sql"))
        .fetch_all(&readers)
        .await?;
    rows.iter().map(decode::worker).collect()
}
