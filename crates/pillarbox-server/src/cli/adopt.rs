//! `pillarbox adopt`: looks at a table and says how it can be worked on as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pillarbox_store::stores::postgres::Postgres;
use pillarbox_store::stores::postgres::adopt::{AdoptError, Table, habits};
use serde_json::{Value, json};

use super::target::Target;
use crate::adopt::facts::{self, Changes, Trouble};
use crate::adopt::promises::promises;
use crate::adopt::propose::{Facts, Proposal, nearest, propose};
use crate::adopt::written;
use crate::database::{Database, Missing};
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Changes nothing. Looks at the table, then once more a few seconds later, to see whether somebody
else works on it: stop that first, or rows are sent twice.

Examples:
  pillarbox adopt --database postgres://app@localhost/shop --table outbox
  pillarbox adopt --table outbox_messages --schema outbox >> pillarbox.toml
  pillarbox adopt --table outbox --json

Exits with 1 if the table cannot be an outbox, and says why.";

/// Proposes a layout.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Adopt {
    /// The table; its schema may stand before a dot
    #[arg(long, value_name = "NAME")]
    table: String,

    /// The table's schema, if it is not found without
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,

    /// postgres://user@host/database, or the name of one of several in the configuration
    #[arg(
        long,
        env = "PILLARBOX_DATABASE_URL",
        hide_env_values = true,
        value_name = "URL|NAME"
    )]
    database: Option<String>,

    /// Take the database from this file where --database is not given [default: pillarbox.toml, if it is there]
    #[arg(long, env = "PILLARBOX_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// How long to watch whether somebody else changes rows; 0s looks only once
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = humantime::parse_duration)]
    watch: Duration,

    /// Print JSON; `layout` is the built-in one that fits, or null
    #[arg(long)]
    json: bool,
}

/// Everything that there is to say.
struct Report {
    facts: Facts,
    proposal: Proposal,
    promises: Vec<String>,
    toml: String,
}

impl Adopt {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let target = Target {
            database: self.database.clone(),
            schema: None,
            config: self.config.clone(),
        };
        let found = target.find()?;
        let Database::Postgres(store) = Database::open(&found.database, Missing::Refuse).await? else {
            return Err(Failure::usage(
                "tables are adopted in PostgreSQL only; this is a SQLite file",
            ));
        };
        let facts = self.read(&store).await?;
        let mut proposal = match propose(&facts) {
            Ok(proposal) => proposal,
            Err(against) => return self.refuse(&facts.table, &against),
        };
        if let Some(against) = doubts(&store, &proposal).await? {
            return self.refuse(&facts.table, &[against]);
        }
        self.watch(&store, &mut proposal).await?;
        let poll = proposal.built_in.and_then(habits).map(|habits| habits.poll);
        let poll = poll.unwrap_or(crate::config::ADOPTED_POLL);
        let name = Some(found.database.name.as_str()).filter(|name| *name != "default");
        let report = Report {
            promises: promises(&proposal.layout, &facts, poll),
            toml: written::toml(&proposal, name),
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
        let table = match &self.schema {
            Some(schema) => format!("{schema}.{}", self.table),
            None => self.table.clone(),
        };
        let mut connection = store
            .pool()
            .acquire()
            .await
            .map_err(Trouble::from)
            .map_err(failed)?;
        facts::read(&mut connection, &table).await.map_err(failed)
    }

    /// Is somebody else at work?
    async fn watch(&self, store: &Postgres, proposal: &mut Proposal) -> Result<(), Failure> {
        let mut connection = store
            .pool()
            .acquire()
            .await
            .map_err(Trouble::from)
            .map_err(failed)?;
        let table = &proposal.layout.table;
        let held = facts::held(&mut connection, &proposal.layout)
            .await
            .map_err(failed)?;
        if held > 0 {
            proposal.warnings.push(format!(
                "{held} rows are in somebody's hands right now: another poller works on this table; stop it first"
            ));
        }
        if self.watch.is_zero() {
            return Ok(());
        }
        let changes = facts::watch(&mut connection, table, self.watch)
            .await
            .map_err(failed)?;
        if changes.any() {
            let ours = facts::is_ours(&mut connection, store.schema())
                .await
                .map_err(failed)?;
            proposal.warnings.push(busy(changes, self.watch, ours));
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

fn busy(changes: Changes, time: Duration, ours: bool) -> String {
    let ours = if ours {
        " (a Pillarbox worker imports in this database: it may be that one)"
    } else {
        ""
    };
    format!(
        "within {} {} rows were updated and {} deleted by somebody else{ours}: stop the other poller first, or rows are \
         sent twice",
        humantime::format_duration(time),
        changes.updated,
        changes.deleted,
    )
}

/// What the store says against the layout, if anything: it has the last word.
async fn doubts(store: &Postgres, proposal: &Proposal) -> Result<Option<String>, Failure> {
    let table = Table {
        name: "proposal".to_owned(),
        layout: proposal.layout.clone(),
        poll: Duration::from_secs(1),
        batch: 1,
        prune: None,
    };
    match store.adopt(&[table]).await {
        Ok(()) => Ok(None),
        Err(AdoptError::Layout { error, .. }) => Ok(Some(error.to_string())),
        Err(AdoptError::Store(error)) => Err(error.into()),
        Err(error @ AdoptError::Twice) => Err(Failure::failed(error.to_string())),
    }
}

fn failed(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::NoTable(message) => Failure::failed(message),
        Trouble::Database(error) => error.into(),
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
        // A list only where there can be several.
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
            "toml": self.toml,
        })
    }

    /// Everything that is not TOML is a comment, so that it can go into the file as it is.
    fn print(&self) -> Result<(), Failure> {
        for warning in &self.proposal.warnings {
            eprintln!("warning: {}", output::escape(warning));
        }
        output::line(&format!("# {}", output::escape(&self.headline())))?;
        if self.proposal.built_in.is_none() {
            for reason in &self.proposal.reasons {
                let line = format!("#   {} = \"{}\": {}", reason.key, reason.column, reason.why);
                output::line(&output::escape(&line))?;
            }
        }
        output::line("# What holds:")?;
        for promise in &self.promises {
            output::line(&output::escape(&format!("#   {promise}")))?;
        }
        for warning in &self.proposal.warnings {
            output::line(&output::escape(&format!("# Mind: {warning}")))?;
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
                    "{table} is as `{name}` has it: all {} columns are there",
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
