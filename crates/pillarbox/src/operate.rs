//! The port for people: look, count, retry, delete.

use async_trait::async_trait;
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::state::Status;
use crate::store::{Scope, StoreError};

/// How many rows there are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Stats {
    /// Waiting.
    pub pending: u64,
    /// Claimed.
    pub processing: u64,
    /// Done.
    pub delivered: u64,
    /// Given up on.
    pub dead: u64,
    /// With a status that somebody else wrote.
    pub unknown: u64,
    /// Are these counts exact? A large table is not counted: `delivered` is then an estimate, and the
    /// others stop at a cap.
    pub exact: bool,
    /// How long the oldest row that is due has waited, in seconds.
    pub oldest_pending_seconds: Option<f64>,
}

/// One row, as people see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// The row's id.
    pub id: Uuid,
    /// The event's id.
    pub event_id: Uuid,
    /// The order of insertion.
    pub seq: i64,
    /// Who published.
    pub namespace: String,
    /// What.
    pub topic: String,
    /// What happened.
    pub event_type: Option<String>,
    /// The version of the payload's shape.
    pub event_version: i32,
    /// What kind of thing it happened to.
    pub aggregate_type: Option<String>,
    /// Which one.
    pub aggregate_id: Option<String>,
    /// Whose.
    pub tenant_id: Option<Uuid>,
    /// The idempotency key.
    pub dedupe_key: Option<String>,
    /// The ordering key.
    pub ordering_key: Option<String>,
    /// How bad.
    pub severity: Option<String>,
    /// Where to.
    pub destination: Option<String>,
    /// Where it stands, in the table's own word.
    pub status: String,
    /// How many attempts there were.
    pub attempts: i32,
    /// How many there can be, if the row knows.
    pub max_attempts: Option<i32>,
    /// When the next is due.
    #[serde(with = "time::serde::rfc3339")]
    pub next_attempt_at: OffsetDateTime,
    /// Who holds it.
    pub locked_by: Option<Uuid>,
    /// Until when.
    #[serde(with = "time::serde::rfc3339::option")]
    pub locked_until: Option<OffsetDateTime>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// When it was written.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it changed last.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
    /// When it was delivered.
    #[serde(with = "time::serde::rfc3339::option")]
    pub delivered_at: Option<OffsetDateTime>,
    /// What kind of payload, if it is not JSON.
    pub content_type: Option<String>,
    /// How it is encoded.
    pub content_encoding: Option<String>,
    /// Sent along.
    pub headers: serde_json::Value,
    /// The payload; only where one row is asked for. JSON null for bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<serde_json::Value>,
    /// How many bytes the payload has if it is not JSON.
    pub body_bytes: Option<i64>,
}

/// Which rows to list. Newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Within which scope.
    pub scope: Scope,
    /// In which state. [`Status::Unknown`] with any text means every status that is not ours.
    pub status: Option<Status>,
    /// Of which topic.
    pub topic: Option<String>,
    /// Only rows before this `seq`: the next page.
    pub before: Option<i64>,
    /// How many at the most; 50 if zero.
    pub limit: usize,
}

/// What a person may do to an outbox.
///
/// Proven by `pillarbox_testkit::store_suite!`.
#[async_trait]
pub trait Operate: Send + Sync + 'static {
    /// Counts, within bounds.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn stats(&self, scope: &Scope) -> Result<Stats, StoreError>;

    /// Lists rows without their payloads.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError>;

    /// One row, with its payload.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn show(&self, id: Uuid) -> Result<Option<Record>, StoreError>;

    /// Makes dead or pending rows due now, with all their attempts. Returns the ids that it changed;
    /// rows that are delivered, in somebody's hands or of unknown status are left alone.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn retry(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError>;

    /// Deletes rows that nobody is working on: any but those under a lease that holds. Returns the ids.
    ///
    /// # Errors
    /// When the database does not answer.
    async fn delete(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError>;
}
