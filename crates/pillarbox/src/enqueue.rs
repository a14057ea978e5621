//! The result of [`Outbox::enqueue`](crate::Outbox::enqueue).

use uuid::Uuid;

use crate::error::StoreError;
use crate::validate::InvalidEvent;

/// The result of enqueuing an [`Event`](struct@crate::Event).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// The event is in the outbox as soon as the caller's transaction commits.
    New(Uuid),
    /// An event with this namespace, topic and `dedupe_key` exists; nothing was written.
    /// The id is that of the event that came first.
    Duplicate(Uuid),
}

impl Enqueued {
    /// The id of the event in the outbox: this one's, or that of the first.
    pub fn id(self) -> Uuid {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }

    /// Did this call write the event?
    pub fn is_new(self) -> bool {
        matches!(self, Self::New(_))
    }
}

/// Why an event was not enqueued. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum EnqueueError {
    /// The event cannot be stored or sent.
    #[error(transparent)]
    Invalid(#[from] InvalidEvent),
    /// A typed event has no JSON form, for example because of a map whose keys are not texts.
    #[error("the event has no JSON form: {0}")]
    NoJson(serde_json::Error),
    /// The database refused the payload although it looked like JSON, for example a number that no
    /// database holds or a lone surrogate.
    #[error("the database rejected the payload: {0} (send it as bytes to keep it as it is)")]
    Payload(String),
    /// The database rejected the event, such as a payload over the limit of the outbox.
    #[error("the database rejected the event: {0}")]
    Rejected(String),
    /// PostgreSQL: the role or the tenant has more pending events than its quota allows. Try again when some are delivered.
    #[error("{0}")]
    QuotaExceeded(String),
    /// Another event has this id.
    #[error("event id {0} is taken: another event has it (use a new id for every event)")]
    IdTaken(Uuid),
    /// SQLite: the transaction began with a plain `BEGIN`, and another connection wrote since.
    #[error(
        "the transaction cannot write, because it was begun by a plain BEGIN and another connection wrote since; \
         begin it with BEGIN IMMEDIATE (`pillarbox::sqlite::begin`)"
    )]
    NotImmediate,
    /// SQLite: another connection held the write lock for longer than the busy timeout.
    #[error("the database file is locked by another writer; try again, or raise the busy timeout")]
    Busy,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
