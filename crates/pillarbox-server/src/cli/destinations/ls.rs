//! `pillarbox destinations ls`

use clap::Args;
use pillarbox_store::Scope;
use time::format_description::well_known::Rfc3339;

use super::super::database_args::{self, DatabaseArgs};
use crate::destinations::{self, Listed};
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  pillarbox destinations ls
  pillarbox destinations ls --json | jq 'select(.paused)'";

/// Lists destinations.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ls {
    /// Count only this namespace (repeatable)
    #[arg(long, value_name = "NAME")]
    namespace: Vec<String>,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Ls {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let found = self.database.find()?;
        let database = database_args::open(&found.database).await?;
        let records = database
            .operate()
            .destinations(&Scope::of(self.namespace))
            .await?;
        let listed = destinations::list(records, found.destinations.as_deref());
        if self.json {
            return listed.iter().try_for_each(output::json);
        }
        if listed.is_empty() {
            return output::line("no destinations");
        }
        let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
        output::table(
            &["NAME", "STATE", "SINCE", "PENDING", "DEAD", "REASON", "NOTE"],
            &rows,
        )
    }
}

fn row(to: &Listed) -> Vec<String> {
    let (state, since, reason) = match &to.paused {
        Some(paused) => {
            let since = paused.since.replace_nanosecond(0).unwrap_or(paused.since);
            (
                "paused",
                since.format(&Rfc3339).unwrap_or_default(),
                output::cut(&paused.reason, 60),
            )
        }
        None => ("open", "-".to_owned(), "-".to_owned()),
    };
    vec![
        to.name.clone(),
        state.to_owned(),
        since,
        destinations::count(to.pending),
        destinations::count(to.dead),
        reason,
        to.note.unwrap_or("-").to_owned(),
    ]
}
