//! What came of handing an event over by [`Outbox::enqueue`](crate::Outbox::enqueue).

use uuid::Uuid;

use crate::error::StoreError;
use crate::validate::InvalidEvent;

/// What became of an [`Event`](struct@crate::Event) that was handed to `enqueue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// The event is in the outbox, if the caller's transaction commits.
    New(Uuid),
    /// An event with this namespace, topic and `dedupe_key` was there before; nothing was written.
    /// The id is that of the event that came first.
    Already(Uuid),
}

impl Enqueued {
    /// The id under which the event is known, whoever enqueued it.
    pub fn id(self) -> Uuid {
        match self {
            Self::New(id) | Self::Already(id) => id,
        }
    }

    /// Did this call write the event?
    pub fn is_new(self) -> bool {
        matches!(self, Self::New(_))
    }
}

/// Why an event was not enqueued. Nothing was written; the caller's transaction decides about the rest.
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
    #[error("the database refused the payload: {0}; send it as bytes if it must stay as it is")]
    Payload(String),
    /// Another event has this id.
    #[error("an event with the id {0} exists; every event needs an id of its own")]
    IdTaken(Uuid),
    /// SQLite: the transaction was begun without the right to write, and somebody wrote meanwhile.
    #[error(
        "the transaction cannot write, because it was begun by a plain BEGIN and another connection wrote since; \
         begin it with BEGIN IMMEDIATE (`pillarbox::sqlite::begin`)"
    )]
    NotImmediate,
    /// SQLite: somebody else is writing, for longer than the busy timeout.
    #[error("the database file is locked by another writer; try again, or raise the busy timeout")]
    Busy,
    /// The database did not answer as it should.
    #[error(transparent)]
    Store(#[from] StoreError),
}
