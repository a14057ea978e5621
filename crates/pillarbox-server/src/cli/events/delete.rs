//! `pillarbox events delete`

use std::io::{IsTerminal, Write};

use clap::Args;
use uuid::Uuid;

use super::super::actor::Because;
use super::super::database_args::DatabaseArgs;
use super::{delete_old, report};
use crate::failure::Failure;

const EXAMPLES: &str = "\
A deleted event is never delivered and cannot be restored.

With --older-than, an event is deleted with the rows of all its destinations, when each of them has ended so long ago. A dead
event that blocks its ordering key stays: skip it first.

Examples:
  pillarbox events delete 0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55 --yes
  pillarbox events delete --status delivered --older-than 30d --dry-run
  pillarbox events delete --status dead --older-than 90d --namespace shop --reason 'ticket 4711'";

/// Deletes events.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Delete {
    /// Name the events' ids
    #[arg(required_unless_present = "older_than", conflicts_with = "older_than")]
    ids: Vec<Uuid>,

    #[command(flatten)]
    old: delete_old::Old,

    /// Delete without asking
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    because: Because,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Delete {
    pub(super) async fn run(self) -> Result<(), Failure> {
        if let Some(which) = self.old.which() {
            let run = delete_old::Run {
                which,
                yes: self.yes,
                json: self.json,
                actor: self.because.operator(),
            };
            return run.delete(&self.database.open().await?).await;
        }
        if !self.yes {
            confirm(self.ids.len())?;
        }
        let database = self.database.open().await?;
        let changed = database
            .operate()
            .delete(&self.because.operator(), &self.ids)
            .await?;
        report(
            "deleted",
            &self.ids,
            &changed,
            "not found, or in flight",
            self.json,
        )
    }
}

/// Asks for confirmation. Without a terminal, --yes is required.
pub(super) fn confirm(count: usize) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "nothing deleted: no terminal to confirm on (use --yes)",
        ));
    }
    eprint!(
        "Delete {count} event{} for good? [y/N] ",
        if count == 1 { "" } else { "s" }
    );
    let mut answer = String::new();
    let read = std::io::stderr()
        .flush()
        .and_then(|()| std::io::stdin().read_line(&mut answer));
    match (read, answer.trim()) {
        (Ok(_), "y" | "Y" | "yes") => Ok(()),
        (Ok(_) | Err(_), _) => Err(Failure::failed("nothing deleted: not confirmed")),
    }
}
