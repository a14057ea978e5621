//! Liveness (`/healthz`) and readiness (`/readyz`).
//!
//! A daemon that waits for its database is alive but not ready: a restart would not help.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use super::problem::{Code, Problem};
use super::{App, DatabaseStatus};

/// How long the database may take to answer a readiness probe.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
}

/// The probes for other machines: a word and a status, and nothing about databases or workers.
pub(super) fn ops_router() -> Router<App> {
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(is_up))
}

async fn alive() -> Json<Value> {
    Json(json!({ "status": "alive" }))
}

async fn ready(State(app): State<App>) -> Result<Json<Value>, Problem> {
    let workers = workers(&app).await?;
    Ok(Json(json!({ "status": "ready", "workers": workers })))
}

async fn is_up(State(app): State<App>) -> (StatusCode, Json<Value>) {
    match workers(&app).await {
        Ok(_) => (StatusCode::OK, Json(json!({ "status": "ready" }))),
        Err(problem) => {
            let code = problem.code();
            (
                code.status(),
                Json(json!({ "status": "not_ready", "code": code.name() })),
            )
        }
    }
}

/// The workers by database, if all of them run and their databases answer.
async fn workers(app: &App) -> Result<serde_json::Map<String, Value>, Problem> {
    if app.shutdown.is_cancelled() {
        return Err(Code::ShuttingDown.into());
    }
    let answers = join_all(app.databases.iter().map(is_ready)).await;
    let mut workers = serde_json::Map::new();
    for (status, answer) in app.databases.iter().zip(answers) {
        let worker = answer.map_err(|problem| match app.databases.len() {
            1 => problem,
            _ => problem.for_database(&status.database),
        })?;
        workers.insert(status.database.clone(), json!(worker));
    }
    Ok(workers)
}

/// The worker of this database, if it runs and the database answers.
async fn is_ready(status: &DatabaseStatus) -> Result<Uuid, Problem> {
    let running = status.running()?;
    match tokio::time::timeout(CHECK_TIMEOUT, running.store.check()).await {
        Ok(answer) => answer?,
        Err(_) => return Err(Code::DatabaseUnavailable.into()),
    }
    Ok(running.worker)
}
