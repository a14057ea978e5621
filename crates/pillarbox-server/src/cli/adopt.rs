//! `pillarbox adopt`: inspects a table and proposes a layout. `adopt retry` retries rows that cannot be imported.

mod retry;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use pillarbox_store::stores::postgres::Postgres;
use pillarbox_store::stores::postgres::adopt::{
    AdoptError, ErrorText, SpeaksFor, Table, habits, missing_index,
};
use serde_json::{Value, json};

use super::database_args::DatabaseArgs;
use crate::adopt::facts::{self, Changes, FactsError};
use crate::adopt::promises::promises;
use crate::adopt::propose::{Facts, Proposal, nearest, propose};
use crate::adopt::toml;
use crate::database::{Database, IfMissing};
use crate::failure::Failure;
use crate::logs;
use crate::output;

const EXAMPLES: &str = "\
Changes nothing. Watches the table for a few seconds to find out whether another program changes it.
Stop that program before you run Pillarbox, or rows are sent twice.

Examples:
  pillarbox adopt --database postgres://app@localhost/shop --table outbox
  pillarbox adopt --table outbox_messages --schema outbox >> pillarbox.toml
  pillarbox adopt --table outbox --json
  pillarbox adopt retry outbox               import failed rows again, now

Exits with 1 if the table cannot be an outbox, and prints why.";

/// Inspects a table and proposes a layout.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Adopt {
    #[command(subcommand)]
    verb: Option<Verb>,

    /// Inspect this table, with or without its schema
    #[arg(long, value_name = "NAME", required = true)]
    table: Option<String>,

    /// Look for the table in this schema
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,

    /// Use this database: a URL, or a name in the configuration
    ///
    /// Without it, the variable PILLARBOX_DATABASE_URL overrides the URL in the configuration.
    #[arg(long, value_name = "URL|NAME")]
    database: Option<String>,

    /// Read the database from this file [default: pillarbox.toml]
    #[arg(long, env = "PILLARBOX_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Watch for changes by others for this long; 0s does not watch
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = humantime::parse_duration)]
    watch: Duration,

    /// Print JSON; `layout` is the built-in layout that fits, or null
    #[arg(long)]
    json: bool,
}

/// What to do with a table that is adopted already.
#[derive(Debug, Subcommand)]
enum Verb {
    /// Retry rows now that could not be imported
    Retry(retry::Retry),
}

/// What is printed.
struct Report {
    facts: Facts,
    proposal: Proposal,
    promises: Vec<String>,
    /// The statement that creates an index in the order of the import, if none has it.
    index: Option<String>,
    toml: String,
}

impl Adopt {
    pub(super) async fn run(mut self) -> Result<(), Failure> {
        match self.verb.take() {
            Some(Verb::Retry(retry)) => retry.run().await,
            None => self.propose().await,
        }
    }

    async fn propose(self) -> Result<(), Failure> {
        let database = DatabaseArgs {
            database: self.database.clone(),
            schema: None,
            config: self.config.clone(),
        };
        let found = database.find()?;
        let Database::Postgres(store) = Database::open(&found.database, IfMissing::Fail).await? else {
            return Err(Failure::usage(
                "adopting a table failed: this database is a SQLite file (use PostgreSQL)",
            ));
        };
        let facts = self.read(&store).await?;
        let mut proposal = match propose(&facts) {
            Ok(proposal) => proposal,
            Err(against) => return self.refuse(&facts.table, &against),
        };
        if let Some(against) = misfit(&store, &proposal).await? {
            return self.refuse(&facts.table, &[against]);
        }
        self.watch(&store, &mut proposal).await?;
        let poll = proposal.built_in.and_then(habits).map(|habits| habits.poll);
        let poll = poll.unwrap_or(crate::config::ADOPTED_POLL);
        let mut connection = store.connection().await?;
        let index = missing_index(&mut connection, &proposal.layout, &facts.columns).await?;
        let namespaces = facts::namespaces(&mut connection, &proposal.layout)
            .await
            .map_err(failed)?;
        let name = Some(found.database.name.as_str()).filter(|name| *name != "default");
        let report = Report {
            promises: promises(&proposal.layout, &facts, poll),
            index,
            toml: toml::toml(&proposal, name, &namespaces),
            facts,
            proposal,
        };
        if self.json {
            output::json(&report.json())
        } else {
            report.print()
        }
    }

    async fn read(&self, store: &Postgres) -> Result<Facts, Failure> {
        let table = self.table.as_deref().unwrap_or_default();
        let table = match &self.schema {
            Some(schema) => format!("{schema}.{table}"),
            None => table.to_owned(),
        };
        let mut connection = store.connection().await?;
        facts::read(&mut connection, &table).await.map_err(failed)
    }

    /// Warns if another program changes the table.
    async fn watch(&self, store: &Postgres, proposal: &mut Proposal) -> Result<(), Failure> {
        let mut connection = store.connection().await?;
        let table = &proposal.layout.table;
        let leased = facts::leased(&mut connection, &proposal.layout)
            .await
            .map_err(failed)?;
        if leased > 0 {
            proposal.warnings.push(format!(
                "{leased} rows are leased by another poller (stop it first)"
            ));
        }
        if self.watch.is_zero() {
            return Ok(());
        }
        let changes = facts::watch(&mut connection, table, self.watch)
            .await
            .map_err(failed)?;
        if changes.any() {
            let imported = facts::is_imported(&mut connection, store.schema())
                .await
                .map_err(failed)?;
            proposal.warnings.push(busy(changes, self.watch, imported));
        }
        Ok(())
    }

    fn refuse(&self, table: &str, against: &[String]) -> Result<(), Failure> {
        if self.json {
            output::json(&json!({ "table": table, "layout": null, "refused": against }))?;
        }
        let reasons: Vec<String> = against.iter().map(|reason| format!("\n  - {reason}")).collect();
        Err(Failure::failed(format!(
            "{table} cannot be an outbox:{}",
            reasons.concat()
        )))
    }
}

fn busy(changes: Changes, time: Duration, imported: bool) -> String {
    let perhaps = if imported {
        ", perhaps by a Pillarbox worker, which imports in this database"
    } else {
        ""
    };
    format!(
        "another program updated {} rows and deleted {} within {}{perhaps} (stop the other poller first, or rows are sent \
         twice)",
        changes.updated,
        changes.deleted,
        humantime::format_duration(time),
    )
}

/// Why the store rejects the layout, if it does.
async fn misfit(store: &Postgres, proposal: &Proposal) -> Result<Option<String>, Failure> {
    let table = Table {
        name: "proposal".to_owned(),
        layout: proposal.layout.clone(),
        poll: Duration::from_secs(1),
        batch: 1,
        prune: None,
        speaks_for: SpeaksFor {
            // The proposal names those that the table has.
            namespaces: proposal.layout.namespace.iter().map(|_| "*".to_owned()).collect(),
            tenants: Vec::new(),
        },
        prune_dead: None,
        prune_interval: Duration::from_secs(60),
        error_text: ErrorText::default(),
    };
    match store.adopt(&[table]).await {
        Ok(()) => Ok(None),
        Err(AdoptError::Layout { error, .. }) => Ok(Some(error.to_string())),
        Err(AdoptError::Store(error)) => Err(error.into()),
        Err(error @ AdoptError::Twice) => Err(Failure::failed(error.to_string())),
    }
}

fn failed(error: FactsError) -> Failure {
    match error {
        FactsError::NoTable(message) => Failure::failed(message),
        FactsError::Database(error) => error.into(),
    }
}

impl Report {
    fn json(&self) -> Value {
        let Proposal {
            built_in,
            layout,
            reasons,
            warnings,
        } = &self.proposal;
        let mut columns: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for reason in reasons {
            columns.entry(&reason.key).or_default().push(&reason.column);
        }
        // A list only if a key has several columns.
        let columns: BTreeMap<&str, Value> = columns
            .into_iter()
            .map(|(key, names)| match names.as_slice() {
                [only] => (key, json!(only)),
                _ => (key, json!(names)),
            })
            .collect();
        json!({
            "table": self.facts.table,
            "layout": built_in,
            "columns": columns,
            "definition": layout,
            "reasons": reasons,
            "promises": self.promises,
            "warnings": warnings,
            "index": self.index,
            "toml": self.toml,
        })
    }

    /// Prints TOML, with everything else in comments, so that the output can be appended to the file.
    fn print(&self) -> Result<(), Failure> {
        for warning in &self.proposal.warnings {
            logs::warning(warning);
        }
        output::line(&format!("# {}", output::escape(&self.headline())))?;
        if self.proposal.built_in.is_none() {
            for reason in &self.proposal.reasons {
                let line = format!("#   {} = \"{}\": {}", reason.key, reason.column, reason.why);
                output::line(&output::escape(&line))?;
            }
        }
        output::line("# Promises:")?;
        for promise in &self.promises {
            output::line(&output::escape(&format!("#   {promise}")))?;
        }
        for warning in &self.proposal.warnings {
            output::line(&output::escape(&format!("# Warning: {warning}")))?;
        }
        if let Some(index) = &self.index {
            output::line(
                "# Index: none has the order of the import; with a backlog of millions, create one:",
            )?;
            output::line(&output::escape(&format!("#   {index}")))?;
        }
        output::line(&output::escape_text(&self.toml))
    }

    fn headline(&self) -> String {
        let table = &self.facts.table;
        match (self.proposal.built_in, nearest(&self.facts)) {
            (Some(name), _) => {
                let columns = self.proposal.reasons.iter().map(|reason| &reason.column);
                let columns: BTreeSet<&String> = columns.collect();
                format!(
                    "{table} fits the built-in layout `{name}`: all {} columns exist",
                    columns.len()
                )
            }
            (None, Some((name, found, of))) => {
                format!(
                    "{table} fits no built-in layout; the nearest is `{name}`, with {found} of {of} columns"
                )
            }
            (None, None) => format!("{table} fits no built-in layout"),
        }
    }
}
