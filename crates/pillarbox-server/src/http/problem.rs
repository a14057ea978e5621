//! Errors in the format of RFC 9457: `application/problem+json`.

use axum::Json;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use pillarbox::StoreError;
use pillarbox_store::OperateError;
use serde_json::json;

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
        }
    }

    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// The same with the name of the database.
    pub(super) fn for_database(self, database: &str) -> Self {
        Self::new(self.status, format!("database `{database}`: {}", self.detail))
    }

    /// The error text.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl From<OperateError> for Problem {
    fn from(error: OperateError) -> Self {
        match error {
            OperateError::Forbidden(refused) => Self::new(StatusCode::FORBIDDEN, refused.to_string()),
            OperateError::Store(error) => error.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Json(json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        }));
        let mut response = (self.status, body).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

pub(super) async fn not_found(uri: Uri) -> Problem {
    let detail = format!(
        "not found: {} (try /healthz, /readyz or /api/v1/stats)",
        uri.path()
    );
    Problem::new(StatusCode::NOT_FOUND, detail)
}

pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("method {method} is not allowed for {}", uri.path()),
    )
}
