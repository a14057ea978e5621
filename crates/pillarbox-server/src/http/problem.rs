//! Errors in the format of RFC 9457: `application/problem+json`, with a code from a closed list.
//!
//! A caller needs no password, so no answer has a database's error: it names hosts, roles and schemas. The log has it.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pillarbox::StoreError;
use pillarbox_store::OperateError;
use serde_json::json;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    InvalidQuery,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    UnknownDatabase,
    TooLarge,
    UnknownHost,
    Timeout,
    Connecting,
    DatabaseUnavailable,
    ShuttingDown,
}

impl Code {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::InvalidQuery => StatusCode::BAD_REQUEST,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound | Self::UnknownDatabase => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnknownHost => StatusCode::MISDIRECTED_REQUEST,
            Self::Timeout | Self::Connecting | Self::DatabaseUnavailable | Self::ShuttingDown => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InvalidQuery => "invalid_query",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UnknownDatabase => "unknown_database",
            Self::TooLarge => "too_large",
            Self::UnknownHost => "unknown_host",
            Self::Timeout => "timeout",
            Self::Connecting => "connecting",
            Self::DatabaseUnavailable => "database_unavailable",
            Self::ShuttingDown => "shutting_down",
        }
    }

    fn detail(self) -> &'static str {
        match self {
            Self::InvalidQuery => "invalid query (known parameter: database)",
            Self::Forbidden => "the reader lacks a permission (the log has the reason)",
            Self::NotFound => "not found (try /healthz, /readyz or /api/v1/stats)",
            Self::MethodNotAllowed => "only GET and HEAD are allowed",
            Self::UnknownDatabase => "no database of this name is served",
            Self::TooLarge => "the request has a body of more than 1 MiB",
            Self::UnknownHost => "the API has another name (add this one to `hosts` under [http])",
            Self::Timeout => "no answer in time",
            Self::Connecting => "connecting to the database",
            Self::DatabaseUnavailable => "the database does not answer (the log has the reason)",
            Self::ShuttingDown => "the daemon is shutting down",
        }
    }
}

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    code: Code,
    database: Option<String>,
}

impl Problem {
    pub(super) fn code(&self) -> Code {
        self.code
    }

    /// The same with the name of the database.
    pub(super) fn for_database(self, database: &str) -> Self {
        Self {
            database: Some(database.to_owned()),
            ..self
        }
    }
}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        Self { code, database: None }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::debug!(%error, "HTTP request failed: the database did not answer");
        Code::DatabaseUnavailable.into()
    }
}

impl From<OperateError> for Problem {
    fn from(error: OperateError) -> Self {
        match error {
            OperateError::Forbidden(refused) => {
                tracing::debug!(error = %refused, "HTTP request refused");
                Code::Forbidden.into()
            }
            OperateError::Store(error) => error.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let mut body = json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or("Error"),
            "status": status.as_u16(),
            "code": self.code.name(),
            "detail": self.code.detail(),
        });
        if let Some(database) = self.database {
            body["database"] = database.into();
        }
        let mut response = (status, Json(body)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

pub(super) async fn not_found() -> Problem {
    Code::NotFound.into()
}

pub(super) async fn method_not_allowed() -> Problem {
    Code::MethodNotAllowed.into()
}
