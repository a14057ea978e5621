//! `pillarbox config check`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pillarbox::StoreError;
use pillarbox_dispatch::Destination;

use super::database_args::CONFIG;
use crate::config;
use crate::daemon;
use crate::database::{Database, IfMissing};
use crate::failure::Failure;
use crate::logs;
use crate::output;
use crate::trust::{self, Distrust};

const EXAMPLES: &str = "\
Examples:
  pillarbox config check                    check keys, values and rules
  pillarbox config check --connect          also connect to everything that is configured
  pillarbox config check --json             print the effective configuration, secrets masked

Exits with 2 if the configuration is invalid, with 1 if the check of a connection fails.";

/// Checks a configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Check a configuration, and print what is in effect
    Check(Check),
}

/// Checks a file.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// Read this configuration, like --config
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Also connect to databases, tables and destinations; send nothing
    #[arg(long)]
    connect: bool,

    /// Print the effective configuration as JSON, secrets masked
    #[arg(long)]
    json: bool,
}

impl Config {
    pub(super) async fn run(self, config: Option<PathBuf>) -> Result<(), Failure> {
        match self {
            Self::Check(check) => check.run(config).await,
        }
    }
}

impl Check {
    async fn run(self, config: Option<PathBuf>) -> Result<(), Failure> {
        let file = self.file.or(config).unwrap_or_else(|| CONFIG.into());
        let name = file.display().to_string();
        let flags = config::Flags::default();
        let (config, warnings, destinations) = daemon::load(&file, &flags).await?;
        for warning in &warnings {
            logs::warning(&warning.line(&name));
        }
        if self.json {
            output::json(&config.effective())?;
        } else {
            let (to, routes) = (config.destinations.len(), config.written_routes);
            output::line(&format!(
                "{name}: ok; {} destination{}, {routes} route{}",
                to,
                plural(to),
                plural(routes)
            ))?;
            output::line(&config::retention_summary(&config.dispatch.retention))?;
        }
        if self.connect {
            connect(&config, destinations, &name).await?;
        }
        Ok(())
    }
}

/// Connects to everything that is configured, and compares adopted tables with their layouts.
async fn connect(config: &config::Config, destinations: Vec<Destination>, file: &str) -> Result<(), Failure> {
    let mut failed = Vec::new();
    let mut report = |what: String, answer: Result<(), String>| {
        let text = answer.as_ref().err().map_or("ok", |reason| reason.as_str());
        logs::progress(&format!("{what}: {text}"));
        failed.extend(answer.err().map(|_| what));
    };
    for it in &config.databases {
        report(format!("database {}", it.url), database(it, config).await);
        for adopt in config.adopted_in(&it.name) {
            let what = format!("table {}", adopt.table.layout.table);
            report(what, table(it, &adopt, config.strict, file).await);
        }
    }
    for to in destinations {
        report(format!("destination {}", to.name), to.sink.check().await);
        to.sink.close().await;
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!("check failed: {}", failed.join(", "))))
}

/// Does the table match its layout, and does the role have the permissions?
async fn table(
    config: &config::Database,
    adopt: &config::Adopt,
    strict: bool,
    file: &str,
) -> Result<(), String> {
    let database = Database::open(config, IfMissing::Fail)
        .await
        .map_err(|error| error.to_string())?;
    let fits = database.adopt(std::slice::from_ref(adopt)).await;
    fits.map_err(|error| match config::adopt_finding([adopt], &error) {
        Some(finding) => finding.line(file),
        None => error.to_string(),
    })?;
    database
        .check_adopted()
        .await
        .map_err(|error| error.to_string())?;
    let found = trust::table(&database, adopt).await;
    judge(&found.map_err(|error| error.to_string())?, strict)
}

/// Is it a database with an outbox, in which the role may do what the daemon does?
async fn database(database: &config::Database, config: &config::Config) -> Result<(), String> {
    let check = async || -> Result<Vec<Distrust>, StoreError> {
        let database = Database::open(database, IfMissing::Fail).await?;
        database.check_dispatcher().await?;
        database.store().check().await?;
        trust::role(&database).await
    };
    let found = check().await.map_err(|error| error.to_string())?;
    judge(&found, config.strict)
}

/// Warns, or fails if `strict`.
fn judge(found: &[Distrust], strict: bool) -> Result<(), String> {
    if strict && !found.is_empty() {
        return Err(trust::refusal_of_one(found));
    }
    for it in found {
        logs::warning(&it.line());
    }
    Ok(())
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
