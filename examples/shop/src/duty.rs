//! What payment, stock and shipping have in common: a command comes, something is done, an answer goes out.
//!
//! ```text
//! command ─▶ fault switch ─▶ the service's own table ─▶ answer into the outbox ─▶ commit
//! ```
//!
//! The inbox mark of the command, the work and the answer are in one transaction: the consumer's.
//!
//! **If we die here** nothing of it happened, and the command comes again.

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

use crate::faults::{self, Mode};
use crate::places::Places;
use crate::saga::{NAMESPACE, TOPIC};
use crate::services::Service;

/// One thing that a service can be told to do, or to undo.
///
/// * Known by its order: done already, it is answered as the first time, and nothing happens.
/// * What was undone is not done any more: a command may come after its compensation.
/// * There may be nothing to undo. That is done.
pub(crate) trait Duty: Send + Sync + 'static {
    /// What it is told.
    type Told: DeserializeOwned + Send + Sync + 'static;
    /// Whose it is.
    const SERVICE: Service;

    /// Does it, and says how it went.
    fn carry_out(
        &self,
        connection: &mut PgConnection,
        told: &Self::Told,
    ) -> impl Future<Output = Result<Said, sqlx::Error>> + Send;
}

/// What a service says to a command.
#[derive(Debug)]
pub(crate) enum Said {
    /// It is done, and this is to be known of it.
    Done(serde_json::Value),
    /// Nothing was done; it may work another time.
    Failed(&'static str),
    /// Nothing was done, and never will be.
    Refused(&'static str),
}

impl Said {
    /// It is done, and there is nothing else to know.
    pub(crate) fn done() -> Self {
        Self::Done(serde_json::json!({}))
    }

    /// It is done.
    pub(crate) fn done_with(what: &impl Serialize) -> Self {
        Self::Done(serde_json::to_value(what).unwrap_or_default())
    }

    fn into_parts(self) -> (Answer, serde_json::Value, Option<&'static str>) {
        let nothing = serde_json::json!({});
        match self {
            Self::Done(what) => (Answer::Done, what, None),
            Self::Failed(why) => (Answer::Failed, nothing, Some(why)),
            Self::Refused(why) => (Answer::Refused, nothing, Some(why)),
        }
    }
}

type Tx = PgTransaction<'static>;
type Handled<'a> = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + 'a>>;

/// The handler of a duty's command.
pub(crate) fn on_duty<D: Duty>(duty: D, pool: &PgPool, places: &Places) -> impl Handler<Tx, D::Told> {
    let on_duty = Arc::new(OnDuty {
        duty,
        pool: pool.clone(),
        patience: places.patience(),
    });
    function(move |transaction, event| {
        let on_duty = on_duty.clone();
        Box::pin(async move { on_duty.handle(transaction, event).await })
    })
}

/// Tells the compiler that the future lives as long as the transaction, whichever it is.
fn function<T, F>(function: F) -> F
where
    F: for<'a> Fn(&'a mut Tx, Received<T>) -> Handled<'a>,
{
    function
}

/// Whoever has the duty.
struct OnDuty<D> {
    duty: D,
    /// For the fault switch alone; the work is done in the handler's transaction.
    pool: PgPool,
    patience: Duration,
}

impl<D: Duty> OnDuty<D> {
    async fn handle(&self, transaction: &mut Tx, event: Received<D::Told>) -> Result<(), HandlerError> {
        let headers = event.headers.iter().map(|(name, value)| (name, value.as_str()));
        let Some(command) = Command::read(&Message::new(headers, &[])) else {
            return Err(HandlerError::reject(
                "it has no headers of a saga: nobody waits for an answer",
            ));
        };
        let mode = faults::mode(transaction, D::SERVICE, &command).await?;
        let said = match mode {
            Mode::Refuse => Said::Refused("the fault switch says refuse"),
            Mode::Fail => Said::Failed("the fault switch says fail"),
            Mode::Flaky => Said::Failed("the fault switch says flaky: the first attempt fails"),
            Mode::Off | Mode::Slow | Mode::Crash | Mode::Twice => {
                self.duty.carry_out(transaction, &event.body).await?
            }
        };
        if mode == Mode::Crash {
            faults::crash(&self.pool, D::SERVICE).await?;
        }
        // So late that the saga has given this attempt up.
        let late = (mode == Mode::Slow).then_some(self.patience * 2);
        answer(transaction, &command, said, late).await
    }
}

async fn answer(
    transaction: &mut Tx,
    command: &Command,
    said: Said,
    late: Option<Duration>,
) -> Result<(), HandlerError> {
    let (answer, what, why) = said.into_parts();
    let event_type = match command.attempt.action {
        Action::Command => "CommandAnswered",
        Action::Compensation => "CompensationAnswered",
    };
    let mut event = Event::new(NAMESPACE, TOPIC)
        .event_type(event_type)
        .aggregate("order", &command.id)
        .json(&what)?;
    if let Some(why) = why {
        event = event.header(REASON, why);
    }
    if let Some(late) = late {
        event = event.deliver_at(SystemClock.wall() + late);
    }
    Outbox::default()
        .enqueue(transaction, &command.reply(answer, event))
        .await?;
    Ok(())
}
