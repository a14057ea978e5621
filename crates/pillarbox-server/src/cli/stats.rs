//! `pillarbox stats`

use clap::Args;
use pillarbox::Scope;

use super::target::Target;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  pillarbox stats --database outbox.db
  pillarbox stats --namespace shop --json";

/// Counts.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Stats {
    /// Only this namespace; may be given again
    #[arg(long, value_name = "NAME")]
    namespace: Vec<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

impl Stats {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let database = self.target.open().await?;
        database.store().check().await?;
        let stats = database.operate().stats(&Scope::of(self.namespace)).await?;
        if self.json {
            return output::json(&stats);
        }
        let mut rows = Vec::new();
        for (name, count) in [
            ("pending", stats.pending),
            ("processing", stats.processing),
            ("delivered", stats.delivered),
            ("dead", stats.dead),
            ("unknown", stats.unknown),
        ] {
            rows.push(vec![name.to_owned(), count.to_string()]);
        }
        output::table(&["STATUS", "EVENTS"], &rows)?;
        if !stats.exact {
            output::line("(the table is large: `delivered` is an estimate, and the others stop at a cap)")?;
        }
        match stats.oldest_pending_seconds {
            Some(seconds) => output::line(&format!("the oldest event that is due has waited {seconds:.1} s")),
            None => Ok(()),
        }
    }
}
