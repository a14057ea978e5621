//! How many events are where (`/api/v1/stats`), who works on them, and what this worker has done.
//!
//! With several databases the answer is a list with one entry each; `?database=NAME` asks for one of them.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use futures_util::future::join_all;
use pillarbox_dispatch::Snapshot;
use pillarbox_store::operate::{AdoptedTableRecord, Stats, WorkerRecord};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::problem::Problem;
use super::{App, Seat};
use crate::destinations::{self, Listed};

pub(super) fn router() -> Router<App> {
    Router::new().route("/api/v1/stats", get(stats))
}

/// What may be asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    database: Option<String>,
}

/// The table's counts, its destinations, and the workers.
#[derive(Debug, Serialize)]
struct Answer {
    database: String,
    #[serde(flatten)]
    stats: Stats,
    /// This process's own.
    worker: Worker,
    /// All that were heard of in the last day.
    workers: Vec<WorkerRecord>,
    destinations: Vec<Listed>,
    /// The adopted tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    adopted_tables: Vec<AdoptedTableRecord>,
}

#[derive(Debug, Serialize)]
struct Worker {
    id: Uuid,
    #[serde(flatten)]
    counters: Snapshot,
}

async fn stats(
    State(app): State<App>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(asked) = asked.map_err(|refused| Problem::new(StatusCode::BAD_REQUEST, refused.body_text()))?;
    if let Some(seat) = app.seat(asked.database.as_deref())? {
        return Ok(Json(json!(of_one(seat).await?)));
    }
    let answers = join_all(app.seats.iter().map(of_one)).await;
    let databases: Vec<Value> = app
        .seats
        .iter()
        .zip(answers)
        .map(|(seat, answer)| match answer {
            Ok(answer) => json!(answer),
            Err(problem) => json!({ "database": seat.database, "unavailable": problem.detail() }),
        })
        .collect();
    Ok(Json(json!({ "databases": databases })))
}

async fn of_one(seat: &Seat) -> Result<Answer, Problem> {
    let running = seat.running()?;
    let operate = &running.operate;
    Ok(Answer {
        database: seat.database.clone(),
        stats: operate.stats(&running.scope).await?,
        worker: Worker {
            id: running.worker,
            counters: running.counters.snapshot(),
        },
        workers: operate.workers().await?,
        destinations: destinations::list(
            operate.destinations(&running.scope).await?,
            Some(&running.destinations),
        ),
        adopted_tables: operate.adopted_tables().await?,
    })
}
