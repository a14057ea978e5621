//! `pillarbox audit export`

use clap::Args;
use pillarbox_store::audit::{AuditFilter, MOST_LINES};

use super::super::actor;
use super::super::database_args::DatabaseArgs;
use super::Which;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  pillarbox audit export > audit.jsonl
  pillarbox audit export --since 2027-01-01T00:00:00Z --until 2027-02-01T00:00:00Z";

/// Exports the audit.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Export {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Export {
    /// Page by page, so that memory does not grow with the audit.
    pub(super) async fn run(self) -> Result<(), Failure> {
        let (operate, actor) = (self.database.open().await?.operate(), actor::operator());
        let mut filter = AuditFilter {
            limit: MOST_LINES,
            ..self.which.filter()
        };
        loop {
            let page = operate.audit(&actor, &filter).await?;
            page.iter().try_for_each(output::json)?;
            let Some(last) = page.last() else { return Ok(()) };
            filter.before = Some(last.seq);
        }
    }
}
