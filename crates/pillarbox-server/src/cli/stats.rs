//! `pillarbox stats`

use clap::Args;
use pillarbox_store::Scope;
use pillarbox_store::operate::{self, AdoptedTableRecord, MOST_UNKNOWN};

use super::actor;
use super::database_args::{self, DatabaseArgs};
use crate::destinations;
use crate::failure::Failure;
use crate::logs;
use crate::output;

const EXAMPLES: &str = "\
With several configured databases and no --database, each is counted. For adopted
tables it counts rows in progress, pending and rejected write-backs, rows that cannot be
imported, and rows with an unknown status.

Examples:
  pillarbox stats --database outbox.db
  pillarbox stats --namespace shop --json";

/// Counts events.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Stats {
    /// Count only this namespace (repeatable)
    #[arg(long, value_name = "NAME")]
    namespace: Vec<String>,

    /// Print one JSON object per database
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Stats {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let all = self.database.find_all()?;
        let scope = Scope::configured(self.namespace);
        for (index, found) in all.iter().enumerate() {
            let name = &found.database.name;
            let several = all.len() > 1;
            let counted = count(found, &scope).await;
            let counts = counted.map_err(|failure| {
                if several {
                    failure.for_database(name)
                } else {
                    failure
                }
            })?;
            match (self.json, several) {
                (true, true) => output::json(&Named {
                    database: name,
                    counts,
                })?,
                (true, false) => output::json(&counts)?,
                (false, true) => {
                    let gap = if index == 0 { "" } else { "\n" };
                    output::line(&format!("{gap}database {name}"))?;
                    print(&counts)?;
                }
                (false, false) => print(&counts)?,
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
    counts: Counts,
}

/// The counts of one database.
#[derive(serde::Serialize)]
struct Counts {
    #[serde(flatten)]
    stats: operate::Stats,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    adopted_tables: Vec<AdoptedTableRecord>,
}

async fn count(found: &database_args::ChosenDatabase, scope: &Scope) -> Result<Counts, Failure> {
    let database = database_args::open(&found.database).await?;
    // Counts what it can if a table does not match its layout. The daemon reports the mismatch as an error.
    if let Err(error) = database.adopt(&found.adopt).await {
        logs::warning(&error.to_string());
    }
    let (operate, actor) = (database.operate(), actor::operator());
    Ok(Counts {
        stats: operate.stats(&actor, scope).await?,
        adopted_tables: operate.adopted_tables(&actor).await?,
    })
}

fn print(counts: &Counts) -> Result<(), Failure> {
    print_stats(&counts.stats)?;
    if counts.adopted_tables.is_empty() {
        return Ok(());
    }
    output::line("")?;
    let rows: Vec<Vec<String>> = counts.adopted_tables.iter().map(row).collect();
    output::table(
        &[
            "ADOPTED",
            "IN PROGRESS",
            "PENDING WRITE-BACKS",
            "REJECTED WRITE-BACKS",
            "NOT IMPORTED",
            "UNKNOWN STATUS",
            "IMPORTER",
        ],
        &rows,
    )
}

fn row(table: &AdoptedTableRecord) -> Vec<String> {
    vec![
        table.name.clone(),
        destinations::count(table.in_progress),
        destinations::count(table.pending_write_backs),
        destinations::count(table.rejected_write_backs),
        destinations::count(table.not_imported),
        match table.unknown {
            Some(rows) if rows >= MOST_UNKNOWN => format!("{MOST_UNKNOWN}+"),
            Some(rows) => rows.to_string(),
            None => "-".to_owned(),
        },
        table
            .importer
            .map_or("none".to_owned(), |worker| worker.to_string()),
    ]
}

fn print_stats(stats: &operate::Stats) -> Result<(), Failure> {
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
            "of the pending, {} are unrouted: no route matches",
            stats.unrouted
        ))?;
    }
    if !stats.exact {
        output::line("(large table: `delivered` is an estimate, and the other counts are capped)")?;
    }
    match stats.oldest_pending_seconds {
        Some(seconds) => output::line(&format!("oldest due event: {seconds:.1} s")),
        None => Ok(()),
    }
}
