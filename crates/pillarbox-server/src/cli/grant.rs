//! `pillarbox grant`

use clap::{Args, Subcommand};
use pillarbox_store::stores::postgres::{self, Duty};

use super::target::{self, Target};
use crate::database::Database;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Run it as the owner of the outbox. Safe to run twice; it takes no rights away.

Examples:
  pillarbox grant producer shop --database postgres://owner@localhost/shop
  pillarbox grant dispatcher pillarbox_daemon --create --database postgres://owner@localhost/shop
  pillarbox grant producer shop --print --schema shop_outbox | psql …

A role that is created has no password: set one by `alter role … password`, or let the server
know it by other means.";

/// Lets a database role enqueue, consume or deliver, and no more (PostgreSQL).
#[derive(Debug, Subcommand)]
pub(crate) enum Grant {
    /// Let a role enqueue: it sees no content and changes nothing that is there
    Producer(Role),
    /// Let a role remember in the inbox what it has handled
    Consumer(Role),
    /// Let a role run sagas; their commands it enqueues as a producer
    Orchestrator(Role),
    /// Let a role run the daemon
    Dispatcher(Role),
}

/// Which role, and how.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Role {
    /// The role's name
    role: String,

    /// Create the role, with the right to log in, if it is not there
    #[arg(long)]
    create: bool,

    /// Print the SQL instead of running it; no database is touched
    #[arg(long, conflicts_with = "json")]
    print: bool,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

impl Grant {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Producer(role) => role.grant(Duty::Producer).await,
            Self::Consumer(role) => role.grant(Duty::Consumer).await,
            Self::Orchestrator(role) => role.grant(Duty::Orchestrator).await,
            Self::Dispatcher(role) => role.grant(Duty::Dispatcher).await,
        }
    }
}

impl Role {
    async fn grant(self, duty: Duty) -> Result<(), Failure> {
        if self.print {
            return self.print(duty);
        }
        let found = self.target.find()?;
        let Database::Postgres(store) = target::open(&found.database).await? else {
            return Err(Failure::usage(
                "SQLite has no roles: whoever can open the file can do everything; `grant` is for PostgreSQL",
            ));
        };
        let created = store.grant(duty, &self.role, self.create).await?;
        let (name, schema) = (duty.name(), store.schema());
        if self.json {
            return output::json(&serde_json::json!({
                "role": self.role, "duty": name, "schema": schema, "created": created,
            }));
        }
        let created = if created { "created, and " } else { "" };
        output::line(&output::escape(&format!(
            "{}: {created}may do what a {name} does in the schema {schema}",
            self.role
        )))
    }

    fn print(&self, duty: Duty) -> Result<(), Failure> {
        let schema = self.target.schema.as_deref().unwrap_or(postgres::SCHEMA);
        let unsound = |error: pillarbox::StoreError| Failure::usage(error.to_string());
        let grants = postgres::grants(duty, schema, &self.role).map_err(unsound)?;
        let create = self.create.then(|| postgres::create_role(&self.role));
        let create = create.transpose().map_err(unsound)?.unwrap_or_default();
        output::line((create + &grants).trim_end())
    }
}
