//! Sagas as operators see them.

use serde::Serialize;
use time::OffsetDateTime;

use pillarbox::saga::Status;

/// One saga.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SagaRecord {
    /// Of which kind.
    pub name: String,
    /// Which one.
    pub id: String,
    /// The order of starting.
    pub seq: i64,
    /// Where its timeouts and what is asked of it are sent: the namespace,
    pub namespace: String,
    /// and the topic.
    pub topic: String,
    /// Where it stands, in the table's own word.
    pub status: String,
    /// The step that it is at; none if it has ended.
    pub step: Option<String>,
    /// Which try at that step.
    pub attempt: i64,
    /// The steps that were begun and not undone, in their order.
    pub path: Vec<String>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// Until when it waits for an answer.
    #[serde(with = "time::serde::rfc3339::option")]
    pub timeout_at: Option<OffsetDateTime>,
    /// When it was started.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it went on last.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
    /// The application's own; only where one saga is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
}

/// A line of a saga's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SagaLine {
    /// The order of writing.
    pub seq: i64,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// What happened.
    pub what: String,
    /// At which step.
    pub step: Option<String>,
    /// Doing it or undoing it.
    pub action: Option<String>,
    /// Which try.
    pub attempt: Option<i64>,
    /// What else there is to say.
    pub detail: Option<String>,
}

/// Which sagas to list. The latest started first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SagaFilter {
    /// In which state.
    pub status: Option<Status>,
    /// Of which kind.
    pub name: Option<String>,
    /// With which id, of whatever kind.
    pub id: Option<String>,
    /// Only those before this `seq`: the next page.
    pub before: Option<i64>,
    /// How many at the most; 50 if zero.
    pub limit: usize,
}

/// Up to how many lines of a log are shown: the last.
pub const MOST_LINES: u32 = 1000;
