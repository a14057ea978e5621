//! `pillarbox bench`

use std::time::Duration;

use clap::Args;

use super::database_args::DatabaseArgs;
use crate::bench::{self, Figures, Plan};
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
It measures in a schema of its own (PostgreSQL) or a file in the temporary folder (SQLite), and
removes it at the end. --schema has no effect. The role must be allowed to create a schema.

Your outbox is not touched, but the load is real: use a test database. The database of
PILLARBOX_DATABASE_URL or the configuration is used only with --yes. Without one it measures SQLite.

Examples:
  pillarbox bench
  pillarbox bench --database postgres://localhost/test --events 100000
  pillarbox bench --database postgres://localhost/test --rate 200 --seconds 60 --json";

/// Measures this machine and database.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Bench {
    /// Enqueue and drain this many events
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    events: u32,

    /// Give the events this many ordering keys; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0)]
    keys: u32,

    /// Make each payload this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = 300, value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    payload: u32,

    /// Measure the latency at this many events per second
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rate: u32,

    /// Measure the latency for this long
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,

    /// Measure the configured database
    #[arg(long)]
    yes: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Bench {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let chosen = self.database.find_if_any()?.map(|found| found.database);
        if let Some(configured) = chosen
            .as_ref()
            .filter(|_| self.database.database.is_none() && !self.yes)
        {
            return Err(Failure::usage(format!(
                "cannot load the configured database {}: not confirmed (name a test database with --database, or confirm \
                 with --yes)",
                configured.url
            )));
        }
        let plan = Plan {
            events: self.events,
            keys: self.keys,
            payload: usize::try_from(self.payload).unwrap_or(usize::MAX),
            rate: self.rate,
            duration: Duration::from_secs(self.seconds.into()),
        };
        let figures = bench::run(chosen, plan).await?;
        if self.json {
            return output::json(&figures);
        }
        print(&figures)
    }
}

fn print(figures: &Figures) -> Result<(), Failure> {
    let per_second = |rate: f64| format!("{rate:.0} events/s");
    let milliseconds = |time: f64| format!("{time:.1} ms");
    let latency = &figures.latency;
    let rows = [
        ("enqueue, 100 per transaction", per_second(figures.enqueue)),
        ("drain into a sink that does nothing", per_second(figures.drain)),
        ("latency from commit to sink, p50", milliseconds(latency.p50)),
        ("latency from commit to sink, p99", milliseconds(latency.p99)),
        (
            "latency from commit to sink, slowest",
            milliseconds(latency.slowest),
        ),
    ];
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(what, figure)| vec![what.to_owned(), figure])
        .collect();
    output::table(&["MEASURED", "RESULT"], &rows)
}
