//! `pillarbox config check`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pillarbox_dispatch::Destination;

use crate::config;
use crate::daemon;
use crate::database::{Database, Missing};
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  pillarbox config check                    is every key known, every value right, every rule kept?
  pillarbox config check --connect          and are the database, the adopted tables and the destinations there?
  pillarbox config check --json             what is in force, secrets masked

Exits with 2 if the configuration is wrong, with 1 if something is not there.";

/// Looks at a configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Say whether a configuration can be run, and print what is in force
    Check(Check),
}

/// Checks a file.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// The configuration
    #[arg(value_name = "FILE", env = "PILLARBOX_CONFIG", default_value = super::target::CONFIG)]
    file: PathBuf,

    /// Also ask the database, adopted tables and every destination whether they are there; sends nothing
    #[arg(long)]
    connect: bool,

    /// Print the configuration in force as JSON, secrets masked
    #[arg(long)]
    json: bool,
}

impl Config {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Check(check) => check.run().await,
        }
    }
}

impl Check {
    async fn run(self) -> Result<(), Failure> {
        let name = self.file.display().to_string();
        let (config, warnings) = config::load(&self.file, &config::Flags::default())?;
        for warning in &warnings {
            eprintln!("warning: {}", warning.line(&name));
        }
        // A build without a sink finds out only when it builds one.
        let destinations = daemon::build(&config, &name).await?;
        if self.json {
            output::json(&config.effective())?;
        } else {
            let (to, routes) = (config.destinations.len(), config.routes.len());
            output::line(&format!(
                "{name}: good; {} destination{}, {routes} route{}",
                to,
                plural(to),
                plural(routes)
            ))?;
        }
        if self.connect {
            ask(&config, destinations, &name).await?;
        }
        Ok(())
    }
}

/// Asks everything that is configured whether it is there, and whether adopted tables are as `file` says.
async fn ask(config: &config::Config, destinations: Vec<Destination>, file: &str) -> Result<(), Failure> {
    let mut missing = Vec::new();
    let mut tell = |what: String, answer: Result<(), String>| {
        eprintln!(
            "{what}: {}",
            answer.as_ref().err().map_or("there", |reason| reason.as_str())
        );
        missing.extend(answer.err().map(|_| what));
    };
    for it in &config.databases {
        tell(format!("database {}", it.target), database(it).await);
        for adopt in config.adopted_in(&it.name) {
            let what = format!("table {}", adopt.table.layout.table);
            tell(what, table(it, &adopt, file).await);
        }
    }
    for to in destinations {
        tell(format!("destination {}", to.name), to.sink.check().await);
        to.sink.close().await;
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!("not there: {}", missing.join(", "))))
}

/// Is the table as the layout says, and may we work on it?
async fn table(config: &config::Database, adopt: &config::Adopt, file: &str) -> Result<(), String> {
    let database = Database::open(config, Missing::Refuse)
        .await
        .map_err(|error| error.to_string())?;
    let fits = database.adopt(std::slice::from_ref(adopt)).await;
    fits.map_err(|error| match config::adopt_finding([adopt], &error) {
        Some(finding) => finding.line(file),
        None => error.to_string(),
    })?;
    database.check_adopted().await.map_err(|error| error.to_string())
}

async fn database(config: &config::Database) -> Result<(), String> {
    let database = Database::open(config, Missing::Refuse)
        .await
        .map_err(|error| error.to_string())?;
    database.store().check().await.map_err(|error| error.to_string())
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
