//! `pillarbox sagas resume` and `pillarbox sagas compensate`: a message to the saga.
//!
//! What a saga's next command is, only the application knows that runs it. So it is asked, by an event to the saga's own
//! address, and does it when it gets that.

use clap::Args;
use pillarbox::saga::{Ask, Asked, SagaRecord, Status};

use super::super::target::Target;
use super::{Which, called};
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
The application that runs the saga does it, when it gets the message that this enqueues.

Examples:
  pillarbox sagas resume 42                     send the current command again now
  pillarbox sagas compensate 42 --name order    give up, and undo what was done";

/// Which saga.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Asking {
    #[command(flatten)]
    which: Which,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

impl Asking {
    pub(super) async fn run(self, ask: Ask) -> Result<(), Failure> {
        let database = self.target.open().await?;
        let operate = database.operate();
        let saga = self.which.find(operate.as_ref()).await?;
        let event = match operate.ask_saga(&saga.name, &saga.id, ask).await? {
            Asked::Enqueued(event) => event,
            Asked::Pointless(status) => return Err(pointless(&saga, status)),
            Asked::Unknown => return Err(self.which.not_found()), // deleted meanwhile
        };
        if self.json {
            return output::json(&serde_json::json!({
                "name": saga.name, "id": saga.id, "asked": ask.as_str(), "event": event,
            }));
        }
        output::line(&format!(
            "{}: asked to {} by the event {event} ({})",
            called(&saga),
            ask.as_str(),
            output::escape(&format!("{} / {}", saga.namespace, saga.topic))
        ))
    }
}

fn pointless(saga: &SagaRecord, status: Status) -> Failure {
    let why = match status {
        Status::Running => "is running",
        Status::Compensating => {
            "is being compensated already; `sagas resume` sends its current compensation again"
        }
        Status::Completed => "is completed, and what is completed stays so",
        Status::Compensated => "is compensated, and there is nothing left to do",
    };
    Failure::failed(format!("the saga {} {why}", called(saga)))
}
