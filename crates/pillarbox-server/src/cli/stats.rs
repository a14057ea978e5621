//! `pillarbox stats`

use clap::Args;
use pillarbox::Scope;
use pillarbox::operate;

use super::target::{self, Target};
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Where several databases are configured and none is chosen, each is counted.

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

    /// Print JSON: one object, or one per line and database where there are several
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

impl Stats {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let all = self.target.find_all()?;
        let scope = Scope::of(self.namespace);
        for (index, found) in all.iter().enumerate() {
            let name = &found.database.name;
            let several = all.len() > 1;
            let counted = count(found, &scope).await;
            let stats = counted.map_err(|failure| if several { failure.about(name) } else { failure })?;
            match (self.json, several) {
                (true, true) => output::json(&Named {
                    database: name,
                    stats,
                })?,
                (true, false) => output::json(&stats)?,
                (false, true) => {
                    let gap = if index == 0 { "" } else { "\n" };
                    output::line(&format!("{gap}database {name}"))?;
                    print(&stats)?;
                }
                (false, false) => print(&stats)?,
            }
        }
        Ok(())
    }
}

/// The counts of one of several databases.
#[derive(serde::Serialize)]
struct Named<'a> {
    database: &'a str,
    #[serde(flatten)]
    stats: operate::Stats,
}

async fn count(found: &target::Found, scope: &Scope) -> Result<operate::Stats, Failure> {
    let database = target::open(&found.database).await?;
    Ok(database.operate().stats(scope).await?)
}

fn print(stats: &operate::Stats) -> Result<(), Failure> {
    let rows = [
        ("pending", stats.pending),
        ("processing", stats.processing),
        ("delivered", stats.delivered),
        ("dead", stats.dead),
        ("unknown", stats.unknown),
    ]
    .map(|(name, count)| vec![name.to_owned(), count.to_string()]);
    output::table(&["STATUS", "EVENTS"], &rows)?;
    if stats.unrouted > 0 {
        output::line(&format!(
            "of the pending, {} are unrouted: no route leads anywhere",
            stats.unrouted
        ))?;
    }
    if !stats.exact {
        output::line("(the table is large: `delivered` is an estimate, and the others stop at a cap)")?;
    }
    match stats.oldest_pending_seconds {
        Some(seconds) => output::line(&format!("the oldest event that is due has waited {seconds:.1} s")),
        None => Ok(()),
    }
}
