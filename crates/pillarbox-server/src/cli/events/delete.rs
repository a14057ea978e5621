//! `pillarbox events delete`

use std::io::{IsTerminal, Write};

use clap::Args;
use uuid::Uuid;

use super::super::target::Target;
use super::report;
use crate::failure::Failure;

const EXAMPLES: &str = "\
What is deleted is never delivered, and nobody can bring it back.

Examples:
  pillarbox events delete 0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55 --yes";

/// Deletes events.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Delete {
    /// The events' ids
    #[arg(required = true)]
    ids: Vec<Uuid>,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

impl Delete {
    pub(super) async fn run(self) -> Result<(), Failure> {
        if !self.yes {
            confirm(self.ids.len())?;
        }
        let database = self.target.open().await?;
        let changed = database.operate().delete(&self.ids).await?;
        report(
            "deleted",
            &self.ids,
            &changed,
            "not there, or in a worker's hands",
            self.json,
        )
    }
}

/// Asks the person at the terminal. Where there is none, nobody can have meant it.
fn confirm(count: usize) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "nothing was deleted: say --yes where nobody can be asked",
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
        (Ok(_) | Err(_), _) => Err(Failure::failed("nothing was deleted")),
    }
}
