//! The port of operators: list, count, retry, skip, pause, delete.

use std::collections::BTreeMap;
use std::ops::Deref;

use async_trait::async_trait;
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::actor::{Actor, OperateError, Permission};
use crate::archive::Restored;
use crate::audit::{AuditFilter, AuditRecord};
use crate::retention::{DeleteOld, Pruned};
use crate::sagas::{SagaFilter, SagaLine, SagaRecord};
use crate::state::Status;
use crate::store::{OpenBreaker, Scope};
use pillarbox::Envelope;
use pillarbox::saga::{Ask, AskResult};

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
    /// With an unknown status.
    pub unknown: u64,
    /// Unrouted rows, which are pending too.
    pub unrouted: u64,
    /// Are these counts exact? For a large table `delivered` is an estimate, and the other counts stop at a cap.
    pub exact: bool,
    /// How long the oldest row that is due has waited, in seconds.
    pub oldest_pending_seconds: Option<f64>,
}

/// One row, as operators see it. The fields of its event read as the row's own; `id` is the row's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// The row's id.
    pub id: Uuid,
    /// The order of insertion.
    pub seq: i64,
    /// What the event says of itself. Its id differs from the row's only for siblings.
    #[serde(flatten)]
    pub event: Envelope,
    /// Where to.
    pub destination: Option<String>,
    /// Where it stands, in the table's own word.
    pub status: String,
    /// Has it left its lane? Then it neither waits for others of its key nor holds them up.
    pub unordered: bool,
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
    /// The payload; only where one row is asked for. JSON null for bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<serde_json::Value>,
    /// How many bytes the payload has if it is not JSON.
    pub body_bytes: Option<i64>,
}

impl Deref for Record {
    type Target = Envelope;

    fn deref(&self) -> &Envelope {
        &self.event
    }
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
    /// Rows of which destination.
    pub destination: Option<String>,
    /// Of which event: all rows of its family.
    pub event: Option<Uuid>,
    /// Only rows before this `seq`: the next page.
    pub before: Option<i64>,
    /// How many at the most; 50 if zero.
    pub limit: usize,
}

/// A key that does not continue: its first unfinished row failed or is dead, or no live worker serves its backlog.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlockedKey {
    /// Who published.
    pub namespace: String,
    /// Where to, if the row knows.
    pub destination: Option<String>,
    /// The key.
    pub ordering_key: String,
    /// The row that blocks the others.
    pub head: Uuid,
    /// Its place in the order of insertion.
    pub seq: i64,
    /// Where it stands: dead, or pending.
    pub status: String,
    /// How many attempts it had.
    pub attempts: i32,
    /// What went wrong last.
    pub reason: Option<String>,
    /// How long ago the row was written, in seconds.
    pub age_seconds: f64,
    /// When it is tried again, if it is pending.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_attempt_at: Option<OffsetDateTime>,
    /// How many rows wait behind it; stops at [`MOST_BEHIND`].
    pub behind: u64,
}

/// The error of a pending row that an operator skipped.
pub const SKIPPED: &str = "skipped by an operator";

impl BlockedKey {
    /// A key that no live worker serves.
    pub(crate) fn unserved(self) -> Self {
        let reason = match &self.destination {
            Some(name) => format!("no live worker serves the destination `{name}` in this namespace"),
            None => "no live worker serves this namespace".to_owned(),
        };
        Self {
            reason: Some(reason),
            ..self
        }
    }
}

/// Up to how many rows behind a blocked head are counted.
pub const MOST_BEHIND: u64 = 1000;

/// The state of a destination in the outbox.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DestinationRecord {
    /// Its name.
    pub name: String,
    /// Is it paused or disabled, since when and why?
    pub paused: Option<Paused>,
    /// How many rows wait for it; stops at [`MOST_WAITING`].
    pub pending: u64,
    /// How many of its rows are dead; stops at [`MOST_WAITING`].
    pub dead: u64,
}

/// Up to how many rows of a destination are counted.
pub const MOST_WAITING: u64 = 10_000;

/// How many destinations are listed apart from those that are known and those that are paused.
pub const MOST_NAMES: usize = 200;

/// Why nothing is sent to a destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Paused {
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// Why.
    pub reason: String,
    /// Did the destination ask for no more events? Otherwise an operator paused it.
    pub disabled: bool,
}

/// The last heartbeat of a worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerRecord {
    /// The worker: a new id at each start.
    pub id: Uuid,
    /// On which machine.
    pub host: String,
    /// Which version of Pillarbox.
    pub version: String,
    /// For which namespaces; all if there are none.
    pub scope: Option<Vec<String>>,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// The time of its last heartbeat.
    #[serde(with = "time::serde::rfc3339")]
    pub seen_at: OffsetDateTime,
    /// Did its last heartbeat arrive in time?
    pub alive: bool,
    /// How many lanes it leases.
    pub lanes: u32,
    /// Rows claimed since its start.
    pub claimed: u64,
    /// Rows delivered.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Its breakers that are not closed, by destination.
    pub breakers: BTreeMap<String, OpenBreaker>,
}

/// An adopted table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdoptedTableRecord {
    /// Its name in the configuration.
    pub name: String,
    /// How many of its rows are in progress; stops at [`MOST_WAITING`].
    pub in_progress: u64,
    /// How many write-backs are pending, because another session holds the row; stops at [`MOST_WAITING`].
    pub pending_write_backs: u64,
    /// How many write-backs the table rejected. They are retried once a minute; stops at [`MOST_WAITING`].
    pub rejected_write_backs: u64,
    /// How many of its rows cannot be imported, because their values do not fit, another event has their id, or the database
    /// rejects them. They are retried with a slow backoff; stops at [`MOST_WAITING`].
    pub not_imported: u64,
    /// How many of its rows have a status that the layout does not know; stops at [`MOST_UNKNOWN`]. `None` where the layout
    /// is not configured, or the count took too long.
    pub unknown: Option<u64>,
    /// The worker that imports its rows, if any.
    pub importer: Option<Uuid>,
}

/// Up to how many rows of a table with an unknown status are counted.
pub const MOST_UNKNOWN: u64 = 1000;

/// How many rows that cannot be imported are retried in one call.
pub const MOST_RETRIED: usize = 10_000;

/// What an operator may do with an outbox.
///
/// Every call has an [`Actor`]. It fails with [`OperateError::Forbidden`] if the actor lacks the permission. An actor of a tenant
/// sees and changes the rows of that tenant. Rows of others are answered like rows that do not exist, and so are sagas, which have
/// no tenant. Workers, pauses and adopted tables belong to all tenants, so they need [`Reach::System`](crate::actor::Reach).
/// Every change writes a line of the [audit](crate::audit) in its transaction.
///
/// Proven by `pillarbox_testkit::store_suite!`.
#[async_trait]
pub trait Operate: Send + Sync + 'static {
    /// Counts, within bounds.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn stats(&self, actor: &Actor, scope: &Scope) -> Result<Stats, OperateError>;

    /// Lists rows without their payloads.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn list(&self, actor: &Actor, filter: &Filter) -> Result<Vec<Record>, OperateError>;

    /// One row, with its payload.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn show(&self, actor: &Actor, id: Uuid) -> Result<Option<Record>, OperateError>;

    /// Makes dead or pending rows due now, with all their attempts. Returns the ids that it changed. Rows that are delivered,
    /// in flight or of unknown status are left alone.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn retry(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError>;

    /// Deletes rows that are not in flight. Returns their ids.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn delete(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError>;

    /// Deletes a bounded number of events that ended long ago. See [`DeleteOld`]. The actor reaches the whole outbox.
    ///
    /// The audit gets one line when a pass begins, in a transaction of its own.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn delete_old(&self, actor: &Actor, request: &DeleteOld) -> Result<Pruned, OperateError>;

    /// Puts archived rows back, as the history that they were. Rows that exist are left out. A dead row leaves its lane, so that
    /// it does not block its key again. The actor reaches the whole outbox.
    ///
    /// # Errors
    /// When the actor lacks a permission, a row is refused, or the database does not answer. Nothing is restored then.
    async fn restore(&self, actor: &Actor, rows: &[String], dry_run: bool) -> Result<Restored, OperateError>;

    /// Blocked keys, oldest head first. Then keys whose backlog no live worker serves, unless no worker is alive at all.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn blocked(
        &self,
        actor: &Actor,
        scope: &Scope,
        limit: usize,
    ) -> Result<Vec<BlockedKey>, OperateError>;

    /// Skips rows, so that they no longer block their keys. Pending ones become dead. Returns the ids that it changed. Rows that
    /// have no lane, are delivered or in flight are left alone.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn skip(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError>;

    /// Destinations that are paused or have pending or dead rows, in the order of their names: all of these `known` ones and
    /// the paused ones, and the first [`MOST_NAMES`] by name. Producers can name any number of them.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn destinations(
        &self,
        actor: &Actor,
        scope: &Scope,
        known: &[String],
    ) -> Result<Vec<DestinationRecord>, OperateError>;

    /// Pauses a destination: its rows are not claimed until an operator resumes it. Restarts do not change that.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn pause(&self, actor: &Actor, destination: &str, reason: &str) -> Result<(), OperateError>;

    /// Resumes a destination. Returns whether it was paused.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn resume(&self, actor: &Actor, destination: &str) -> Result<bool, OperateError>;

    /// The workers with a heartbeat in the last day, the latest start first.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn workers(&self, actor: &Actor) -> Result<Vec<WorkerRecord>, OperateError>;

    /// The adopted tables, by name. Empty if the store cannot adopt tables.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn adopted_tables(&self, actor: &Actor) -> Result<Vec<AdoptedTableRecord>, OperateError> {
        actor.may_in_system(Permission::Read)?;
        Ok(Vec::new())
    }

    /// Makes rows of an adopted table due that cannot be imported: those with these ids, or all of them. Returns their ids, at
    /// most [`MOST_RETRIED`]. Without ids, a row that was made due before is left out, so another call takes the next ones.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn retry_imports(
        &self,
        actor: &Actor,
        _table: &str,
        _rows: Option<&[String]>,
    ) -> Result<Vec<String>, OperateError> {
        actor.may_in_system(Permission::Write)?;
        Ok(Vec::new())
    }

    /// Lists sagas, without their data. Empty if the store has no sagas.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn sagas(&self, actor: &Actor, _filter: &SagaFilter) -> Result<Vec<SagaRecord>, OperateError> {
        actor.may(Permission::Read)?;
        Ok(Vec::new())
    }

    /// One saga, with its data.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn saga(&self, actor: &Actor, _name: &str, _id: &str) -> Result<Option<SagaRecord>, OperateError> {
        actor.may(Permission::Read)?;
        Ok(None)
    }

    /// The last lines of a saga's log, in their order; at most [`MOST_LINES`](crate::sagas::MOST_LINES).
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn saga_log(&self, actor: &Actor, _name: &str, _id: &str) -> Result<Vec<SagaLine>, OperateError> {
        actor.may(Permission::Read)?;
        Ok(Vec::new())
    }

    /// Enqueues a request to a saga. It takes effect when the application that runs the saga receives it.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn ask_saga(
        &self,
        actor: &Actor,
        _name: &str,
        _id: &str,
        _ask: Ask,
    ) -> Result<AskResult, OperateError> {
        actor.may(Permission::Write)?;
        Ok(AskResult::NotFound)
    }

    /// Lines of the audit, newest first. An actor of a tenant sees those of the tenant's own actors.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    async fn audit(&self, actor: &Actor, filter: &AuditFilter) -> Result<Vec<AuditRecord>, OperateError>;
}

/// What an actor sees only with [`Permission::Content`].
pub(crate) trait Content: Sized {
    /// The same without it.
    fn without_content(self) -> Self;

    /// What this actor may see.
    fn seen_by(self, actor: &Actor) -> Self {
        if actor.has(Permission::Content) {
            self
        } else {
            self.without_content()
        }
    }
}

impl<T: Content> Content for Option<T> {
    fn without_content(self) -> Self {
        self.map(T::without_content)
    }
}

impl<T: Content> Content for Vec<T> {
    fn without_content(self) -> Self {
        self.into_iter().map(T::without_content).collect()
    }
}

impl Content for Record {
    fn without_content(mut self) -> Self {
        self.event.headers.clear();
        Self {
            payload: None,
            last_error: None,
            ..self
        }
    }
}

impl Content for BlockedKey {
    fn without_content(self) -> Self {
        Self { reason: None, ..self }
    }
}

impl Content for SagaRecord {
    fn without_content(self) -> Self {
        Self {
            data: None,
            last_error: None,
            ..self
        }
    }
}

impl Content for SagaLine {
    fn without_content(self) -> Self {
        Self { detail: None, ..self }
    }
}

/// The reason of a pause may be the answer of a receiver that all tenants share.
impl Content for DestinationRecord {
    fn without_content(mut self) -> Self {
        if let Some(paused) = &mut self.paused {
            paused.reason.clear();
        }
        self
    }

    fn seen_by(self, actor: &Actor) -> Self {
        if actor.has(Permission::Content) && actor.tenant().is_none() {
            self
        } else {
            self.without_content()
        }
    }
}

/// The breakers say what destinations answered.
impl Content for WorkerRecord {
    fn without_content(mut self) -> Self {
        for breaker in self.breakers.values_mut() {
            breaker.reason.clear();
        }
        self
    }
}
