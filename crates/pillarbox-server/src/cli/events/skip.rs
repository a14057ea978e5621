//! `pillarbox events skip`

use clap::Args;
use uuid::Uuid;

use super::super::actor::Because;
use super::super::database_args::DatabaseArgs;
use super::report;
use crate::failure::Failure;

const EXAMPLES: &str = "\
A skipped event is dead and no longer blocks its key. It keeps its last error. Without one, the
reason is \"skipped by an operator\". `events retry` can still send it, out of order. `keys skip`
finds the event by its key.

Examples:
  pillarbox events skip 0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55";

/// Skips events.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Skip {
    /// Name the rows' ids, as `events ls` or `keys ls` shows them
    #[arg(required = true)]
    ids: Vec<Uuid>,

    #[command(flatten)]
    because: Because,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Skip {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let database = self.database.open().await?;
        let changed = database
            .operate()
            .skip(&self.because.operator(), &self.ids)
            .await?;
        let why_not = "not found, blocks no key, delivered, or in flight";
        report("skipped", &self.ids, &changed, why_not, self.json)
    }
}
