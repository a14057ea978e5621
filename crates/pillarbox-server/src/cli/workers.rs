//! `pillarbox workers`

use clap::{Args, Subcommand};
use pillarbox_store::operate::WorkerRecord;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::actor;
use super::database_args::DatabaseArgs;
use crate::failure::Failure;
use crate::output;

/// Lists workers.
#[derive(Debug, Subcommand)]
pub(crate) enum Workers {
    /// List workers with a heartbeat in the last day, newest first
    Ls(Ls),
}

/// Lists workers.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Workers {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Ls(ls) => ls.run().await,
        }
    }
}

impl Ls {
    async fn run(self) -> Result<(), Failure> {
        let database = self.database.open().await?;
        let workers = database.operate().workers(&actor::operator()).await?;
        if self.json {
            return workers.iter().try_for_each(output::json);
        }
        if workers.is_empty() {
            return output::line("no workers");
        }
        let headings = [
            "ID",
            "STATE",
            "HOST",
            "VERSION",
            "NAMESPACES",
            "STARTED",
            "SEEN",
            "LANES",
            "CLAIMED",
            "DELIVERED",
            "FAILED",
        ];
        output::table(&headings, &workers.iter().map(row).collect::<Vec<_>>())
    }
}

fn row(worker: &WorkerRecord) -> Vec<String> {
    let time = |at: OffsetDateTime| {
        let at = at.replace_nanosecond(0).unwrap_or(at);
        at.format(&Rfc3339).unwrap_or_default()
    };
    vec![
        worker.id.to_string(),
        if worker.alive { "alive" } else { "stopped" }.to_owned(),
        output::cut(&worker.host, 32),
        worker.version.clone(),
        output::cut(
            &worker
                .scope
                .as_ref()
                .map_or("all".to_owned(), |names| names.join(",")),
            32,
        ),
        time(worker.started_at),
        time(worker.seen_at),
        worker.lanes.to_string(),
        worker.claimed.to_string(),
        worker.delivered.to_string(),
        worker.failed.to_string(),
    ]
}
