//! `pillarbox sagas resume` and `pillarbox sagas compensate`: send a request to a saga.
//!
//! Only the application that runs a saga knows its next command. So the command enqueues an event to the saga's own address,
//! and the application acts when it receives the event.

use clap::Args;
use pillarbox::saga::{Ask, AskResult, Status};
use pillarbox_store::sagas::SagaRecord;

use super::super::actor::Because;
use super::super::database_args::DatabaseArgs;
use super::{Which, title};
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
The command enqueues a message. The application that runs the saga acts when it receives it.

Examples:
  pillarbox sagas resume 42                     send the current command again now
  pillarbox sagas compensate 42 --name order    undo the completed steps";

/// A request to a saga.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Request {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    because: Because,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Request {
    pub(super) async fn run(self, ask: Ask) -> Result<(), Failure> {
        let database = self.database.open().await?;
        let (operate, actor) = (database.operate(), self.because.operator());
        let saga = self.which.find(operate.as_ref(), &actor).await?;
        let event = match operate.ask_saga(&actor, &saga.name, &saga.id, ask).await? {
            AskResult::Enqueued(event) => event,
            AskResult::NoEffect(status) => return Err(no_effect(&saga, status)),
            AskResult::NotFound => return Err(self.which.not_found()), // deleted meanwhile
        };
        if self.json {
            return output::json(&serde_json::json!({
                "name": saga.name, "id": saga.id, "asked": ask.as_str(), "event": event,
            }));
        }
        output::line(&format!(
            "{}: requested to {} by event {event} ({})",
            title(&saga),
            ask.as_str(),
            output::escape(&format!("{} / {}", saga.namespace, saga.topic))
        ))
    }
}

fn no_effect(saga: &SagaRecord, status: Status) -> Failure {
    let why = match status {
        Status::Running => "is running",
        Status::Compensating => {
            "is being compensated already (`sagas resume` sends its current compensation again)"
        }
        Status::Completed => "is completed",
        Status::Compensated => "is compensated",
    };
    Failure::failed(format!("saga {} {why}", title(saga)))
}
