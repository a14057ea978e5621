//! The part that payment, stock and shipping share: take a command, do the work, reply.
//!
//! ```text
//! command ─▶ fault switch ─▶ the service's own table ─▶ reply into the outbox ─▶ commit
//! ```
//!
//! The mark in the inbox, the work and the reply commit in one transaction, which the consumer owns.
//!
//! **If we die here** the transaction rolls back, and the broker delivers the command again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::saga::message::REASON;
use pillarbox::saga::{Action, Answer, Command, Message};
use pillarbox::{Clock, Event, Outbox, SystemClock};
use pillarbox_consume::{Handler, HandlerError, Received};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{PgConnection, PgPool, PgTransaction};

use crate::environment::Environment;
use crate::faults::{self, Mode};
use crate::saga::{NAMESPACE, TOPIC};
use crate::services::Service;

/// The work for one kind of command or compensation.
///
/// * It is identified by its order. Finished work is answered as the first time, without a second effect.
/// * Undone work is not redone, because a command may arrive after its compensation.
/// * A compensation with nothing to undo is answered `done`.
pub(crate) trait Task: Send + Sync + 'static {
    /// The body of the command.
    type Input: DeserializeOwned + Send + Sync + 'static;
    /// The service that does it.
    const SERVICE: Service;

    /// Does the work in the consumer's transaction.
    fn perform(
        &self,
        connection: &mut PgConnection,
        input: &Self::Input,
    ) -> impl Future<Output = Result<Reply, sqlx::Error>> + Send;
}

/// How a service answers a command.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Done, with the content of the reply.
    Done(serde_json::Value),
    /// Nothing was done; another attempt may succeed.
    Failed(&'static str),
    /// Nothing was done, and never will be.
    Refused(&'static str),
}

impl Reply {
    /// Done, with an empty reply.
    pub(crate) fn done() -> Self {
        Self::Done(serde_json::json!({}))
    }

    /// Done, with this value in the reply.
    pub(crate) fn done_with(content: &impl Serialize) -> Self {
        Self::Done(serde_json::to_value(content).unwrap_or_default())
    }

    fn into_parts(self) -> (Answer, serde_json::Value, Option<&'static str>) {
        let empty = serde_json::json!({});
        match self {
            Self::Done(content) => (Answer::Done, content, None),
            Self::Failed(reason) => (Answer::Failed, empty, Some(reason)),
            Self::Refused(reason) => (Answer::Refused, empty, Some(reason)),
        }
    }
}

type Tx = PgTransaction<'static>;
type Handled<'a> = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + 'a>>;

/// The consumer's handler for this task.
pub(crate) fn handler<T: Task>(
    task: T,
    pool: &PgPool,
    environment: &Environment,
) -> impl Handler<Tx, T::Input> {
    let handler = Arc::new(TaskHandler {
        task,
        pool: pool.clone(),
        step_timeout: environment.step_timeout(),
    });
    function(move |transaction, event| {
        let handler = handler.clone();
        Box::pin(async move { handler.handle(transaction, event).await })
    })
}

/// Fixes the type of the closure: its future borrows the transaction for any lifetime.
fn function<T, F>(function: F) -> F
where
    F: for<'a> Fn(&'a mut Tx, Received<T>) -> Handled<'a>,
{
    function
}

/// Reads the command, applies the fault switch, does the task and replies.
struct TaskHandler<T> {
    task: T,
    /// For the fault switch only. The work uses the handler's transaction.
    pool: PgPool,
    step_timeout: Duration,
}

impl<T: Task> TaskHandler<T> {
    async fn handle(&self, transaction: &mut Tx, event: Received<T::Input>) -> Result<(), HandlerError> {
        let headers = event.headers.iter().map(|(name, value)| (name, value.as_str()));
        let Some(command) = Command::read(&Message::new(headers, &[])) else {
            return Err(HandlerError::reject(
                "the message has no saga headers, so no saga waits for a reply",
            ));
        };
        let mode = faults::mode(transaction, T::SERVICE, &command).await?;
        let reply = match mode {
            Mode::Refuse => Reply::Refused("fault switch: refuse"),
            Mode::Fail => Reply::Failed("fault switch: fail"),
            Mode::Flaky => Reply::Failed("fault switch: flaky, the first attempt fails"),
            Mode::Off | Mode::Slow | Mode::Crash | Mode::Twice => {
                self.task.perform(transaction, &event.body).await?
            }
        };
        if mode == Mode::Crash {
            faults::crash(&self.pool, T::SERVICE).await?;
        }
        // Late enough for the saga to have given up on this attempt.
        let late = (mode == Mode::Slow).then_some(self.step_timeout * 2);
        send(transaction, &command, reply, late).await
    }
}

async fn send(
    transaction: &mut Tx,
    command: &Command,
    reply: Reply,
    late: Option<Duration>,
) -> Result<(), HandlerError> {
    let (answer, content, reason) = reply.into_parts();
    let event_type = match command.attempt.action {
        Action::Command => "CommandAnswered",
        Action::Compensation => "CompensationAnswered",
    };
    let mut event = Event::new(NAMESPACE, TOPIC)
        .event_type(event_type)
        .aggregate("order", &command.id)
        .json(&content)?;
    if let Some(reason) = reason {
        event = event.header(REASON, reason);
    }
    if let Some(late) = late {
        event = event.deliver_at(SystemClock.wall() + late);
    }
    Outbox::default()
        .by_function()
        .enqueue(transaction, &command.reply(answer, event))
        .await?;
    Ok(())
}
