//! Metrics (`/metrics`) in the format of Prometheus. A scrape reads memory, and makes no call to a database.

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;

use super::App;

const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn router() -> Router<App> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(State(app): State<App>) -> impl IntoResponse {
    ([(CONTENT_TYPE, FORMAT)], app.metrics.render())
}
