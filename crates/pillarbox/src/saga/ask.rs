//! What people ask of a saga, where nobody knows its definition: a message to itself, and a line in its log.
//!
//! The definition is code of the application, so that only the application can say what the next command is. What is asked
//! for goes the way of every message, and is answered by whoever consumes the saga's address.
//!
//! **If we die here** nothing was asked: message and line commit together.

use uuid::Uuid;

use super::line::{Line, What};
use super::message::{ASK, ASK_TYPE, Ask, addressed};
use super::row::{Log, Request, Said};
use super::state::Status;
use crate::enqueue::EnqueueError;
use crate::error::StoreError;
use crate::event::Event;
use crate::outbox::sealed::Backend as _;
use crate::outbox::{Connection, Outbox};

/// What came of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// The saga will be told: by this event.
    Enqueued(Uuid),
    /// There is nothing to resume or to compensate: it stands here.
    Pointless(Status),
    /// There is no such saga.
    Unknown,
}

/// Asks something of a saga in the transaction that `connection` is in, as `pillarbox sagas resume` and `compensate` do.
/// Done when whoever runs the saga gets the message.
///
/// # Errors
/// When the database does not answer.
pub async fn ask<C: Connection + ?Sized>(
    connection: &mut C,
    outbox: &Outbox,
    name: &str,
    id: &str,
    ask: Ask,
) -> Result<Asked, StoreError> {
    let row = match connection
        .backend()
        .saga(outbox, Request::Lock { name, id })
        .await?
    {
        Said::Found(row) => *row,
        Said::Nothing | Said::Written => return Ok(Asked::Unknown),
    };
    let status = row.state.status;
    if status.has_ended() || (ask == Ask::Compensate && status == Status::Compensating) {
        return Ok(Asked::Pointless(status));
    }
    // It names what waits now, so that asking twice, or too late, does nothing the second time.
    let about = row.state.current();
    let event = Event::new(&row.namespace, &row.topic)
        .event_type(ASK_TYPE)
        .aggregate(name, id)
        .header(ASK, ask.as_str());
    let event = addressed(event, name, id, about.as_ref());
    let line = Line {
        what: What::Asked,
        about,
        detail: Some(ask.as_str().to_owned()),
    };
    connection
        .backend()
        .saga(outbox, Request::Note(&row, Log(&[line])))
        .await?;
    let enqueued = outbox.enqueue(connection, &event).await.map_err(refused)?;
    Ok(Asked::Enqueued(enqueued.id()))
}

/// What a refusal means to somebody who enqueued nothing of his own.
fn refused(error: EnqueueError) -> StoreError {
    match error {
        EnqueueError::Store(error) => error,
        EnqueueError::Busy => StoreError::Unavailable(error.to_string()),
        EnqueueError::Invalid(_)
        | EnqueueError::NoJson(_)
        | EnqueueError::Payload(_)
        | EnqueueError::IdTaken(_)
        | EnqueueError::NotImmediate => StoreError::Other(error.to_string()),
    }
}
