//! Requests of an operator to a saga: a message to the saga itself, and a line in its log.
//!
//! Only the application has the saga's definition, so only it can decide on the next command. A request is therefore an
//! event like every other message. The consumer of the saga's address carries it out.
//!
//! **If we die here** there is no request: message and line commit together.

use uuid::Uuid;

use super::line::{Line, What};
use super::message::{ASK, ASK_TYPE, Ask, addressed};
use super::row::{Log, Request, Response};
use super::state::Status;
use crate::enqueue::EnqueueError;
use crate::error::StoreError;
use crate::event::Event;
use crate::outbox::sealed::Backend as _;
use crate::outbox::{Connection, Outbox};

/// The result of a request to a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskResult {
    /// This event carries the request to the saga.
    Enqueued(Uuid),
    /// There is nothing to resume or to compensate: the saga has this status.
    NoEffect(Status),
    /// There is no such saga.
    NotFound,
}

/// Asks something of a saga in the transaction that `connection` is in, as `pillarbox sagas resume` and `compensate` do.
/// The saga moves when its consumer handles the message.
///
/// # Errors
/// When the database fails.
pub async fn ask<C: Connection + ?Sized>(
    connection: &mut C,
    outbox: &Outbox,
    name: &str,
    id: &str,
    ask: Ask,
) -> Result<AskResult, StoreError> {
    let row = match connection
        .backend()
        .saga(outbox, Request::Lock { name, id })
        .await?
    {
        Response::Found(row) => *row,
        Response::Nothing | Response::Written => return Ok(AskResult::NotFound),
    };
    let status = row.state.status;
    if status.has_ended() || (ask == Ask::Compensate && status == Status::Compensating) {
        return Ok(AskResult::NoEffect(status));
    }
    // It names the attempt that waits now, so that a second or late request changes nothing.
    let about = row.state.current();
    let event = Event::new(&row.namespace, &row.topic)
        .event_type(ASK_TYPE)
        .aggregate(name, id)
        .header(ASK, ask.as_str());
    let event = addressed(event, name, id, about.as_ref(), &row.own_token);
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
    Ok(AskResult::Enqueued(enqueued.id()))
}

/// The error of an enqueue, for a caller that enqueued no event of its own.
fn refused(error: EnqueueError) -> StoreError {
    match error {
        EnqueueError::Store(error) => error,
        EnqueueError::Busy | EnqueueError::QuotaExceeded(_) => StoreError::Unavailable(error.to_string()),
        EnqueueError::Invalid(_)
        | EnqueueError::NoJson(_)
        | EnqueueError::Payload(_)
        | EnqueueError::Rejected(_)
        | EnqueueError::IdTaken(_)
        | EnqueueError::NotImmediate => StoreError::Other(error.to_string()),
    }
}
