//! Is the process alive (`/healthz`), and should anybody count on it (`/readyz`)?
//!
//! A daemon that waits for its database is alive and not ready: restarting it would help nobody.

use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use super::problem::Problem;
use super::{App, Seat};

/// An answer that takes longer is no answer to whoever decides about restarts.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
}

async fn alive() -> Json<Value> {
    Json(json!({ "status": "alive" }))
}

async fn ready(State(app): State<App>) -> Result<Json<Value>, Problem> {
    if app.shutdown.is_cancelled() {
        return Err(Problem::unavailable("shutting down"));
    }
    let answers = join_all(app.seats.iter().map(is_ready)).await;
    let mut workers = serde_json::Map::new();
    for (seat, answer) in app.seats.iter().zip(answers) {
        let worker = answer.map_err(|problem| match app.seats.len() {
            1 => problem,
            _ => problem.about(&seat.database),
        })?;
        workers.insert(seat.database.clone(), json!(worker));
    }
    Ok(Json(json!({ "status": "ready", "workers": workers })))
}

/// The worker that serves this database, if it does and the database answers.
async fn is_ready(seat: &Seat) -> Result<Uuid, Problem> {
    let running = seat.running()?;
    match tokio::time::timeout(PATIENCE, running.store.check()).await {
        Ok(answer) => answer?,
        Err(_) => {
            return Err(Problem::unavailable(format!(
                "the database did not answer within {PATIENCE:?}"
            )));
        }
    }
    Ok(running.worker)
}
