//! Is the process alive (`/healthz`), and should anybody count on it (`/readyz`)?
//!
//! A daemon that waits for its database is alive and not ready: restarting it would help nobody.

use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::App;
use super::problem::Problem;

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
    let running = app.running()?;
    match tokio::time::timeout(PATIENCE, running.store.check()).await {
        Ok(answer) => answer?,
        Err(_) => {
            return Err(Problem::unavailable(format!(
                "the database did not answer within {PATIENCE:?}"
            )));
        }
    }
    Ok(Json(json!({ "status": "ready", "worker": running.worker })))
}
