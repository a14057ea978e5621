//! How many events are where (`/api/v1/stats`), and what this worker has done.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use pillarbox::operate::Stats;
use pillarbox_dispatch::Snapshot;
use serde::Serialize;
use uuid::Uuid;

use super::App;
use super::problem::Problem;

pub(super) fn router() -> Router<App> {
    Router::new().route("/api/v1/stats", get(stats))
}

/// The table's counts and the worker's own.
#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    stats: Stats,
    worker: Worker,
}

#[derive(Debug, Serialize)]
struct Worker {
    id: Uuid,
    #[serde(flatten)]
    counters: Snapshot,
}

async fn stats(State(app): State<App>) -> Result<Json<Answer>, Problem> {
    let running = app.running()?;
    let stats = running.operate.stats(&running.scope).await?;
    let worker = Worker {
        id: running.worker,
        counters: running.counters.snapshot(),
    };
    Ok(Json(Answer { stats, worker }))
}
