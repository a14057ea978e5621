//! `pillarbox events skip`

use clap::Args;
use uuid::Uuid;

use super::super::target::Target;
use super::report;
use crate::failure::Failure;

const EXAMPLES: &str = "\
A skipped event is dead (a pending one with the reason \"skipped by an operator\") and holds up nobody;
`events retry` can still send it, out of its order. `keys skip` finds the event by its key.

Examples:
  pillarbox events skip 0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55";

/// Lets the others of their keys go past events.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Skip {
    /// The rows' ids, from `events ls` or `keys ls`
    #[arg(required = true)]
    ids: Vec<Uuid>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

impl Skip {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let database = self.target.open().await?;
        let changed = database.operate().skip(&self.ids).await?;
        let why_not = "not there, without a key that waits for it, delivered, or in a worker's hands";
        report("skipped", &self.ids, &changed, why_not, self.json)
    }
}
