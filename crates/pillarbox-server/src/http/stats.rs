//! Statistics (`/api/v1/stats`): events by status, workers, destinations, and this worker's counters.
//!
//! With several databases the answer lists each of them; `?database=NAME` selects one.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::future::join_all;
use pillarbox_dispatch::Snapshot;
use pillarbox_store::Actor;
use pillarbox_store::actor::{Kind, Permission, Reach};
use pillarbox_store::operate::{AdoptedTableRecord, Stats, WorkerRecord};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::problem::{Code, Problem};
use super::{App, DatabaseStatus};
use crate::destinations::{self, Listed};

pub(super) fn router() -> Router<App> {
    Router::new().route("/api/v1/stats", get(stats))
}

/// The query parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    database: Option<String>,
}

/// The statistics of one database.
#[derive(Debug, Serialize)]
struct Answer {
    database: String,
    #[serde(flatten)]
    stats: Stats,
    /// The worker of this process.
    worker: Worker,
    /// All workers with a heartbeat in the last day.
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
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(parameters) = parameters.map_err(|_| Code::InvalidQuery)?;
    if let Some(status) = app.database(parameters.database.as_deref())? {
        return Ok(Json(json!(of_one(status).await?)));
    }
    let answers = join_all(app.databases.iter().map(of_one)).await;
    let databases: Vec<Value> = app
        .databases
        .iter()
        .zip(answers)
        .map(|(status, answer)| match answer {
            Ok(answer) => json!(answer),
            Err(problem) => json!({ "database": status.database, "unavailable": problem.code().name() }),
        })
        .collect();
    Ok(Json(json!({ "databases": databases })))
}

/// The caller is not known. The address says who may call.
fn reader() -> Actor {
    let permissions = [Permission::Read, Permission::Content];
    Actor::new(Kind::Service, "http", Reach::System, permissions)
}

async fn of_one(status: &DatabaseStatus) -> Result<Answer, Problem> {
    let running = status.running()?;
    let (operate, reader) = (&running.operate, reader());
    let workers = operate.workers(&reader).await?;
    Ok(Answer {
        database: status.database.clone(),
        stats: operate.stats(&reader, &running.scope).await?,
        worker: Worker {
            id: running.worker,
            counters: running.counters.snapshot(),
        },
        destinations: destinations::list(
            operate
                .destinations(&reader, &running.scope, &running.destinations)
                .await?,
            &workers,
            Some(&running.destinations),
        ),
        workers,
        adopted_tables: operate.adopted_tables(&reader).await?,
    })
}
