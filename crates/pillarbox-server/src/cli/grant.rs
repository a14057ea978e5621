//! `pillarbox grant`

use clap::{Args, Subcommand};
use pillarbox_store::stores::postgres::{self, Duty};

use super::actor::Because;
use super::database_args::{self, DatabaseArgs};
use crate::database::Database;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Run it as the owner of the outbox. It is safe to run twice, and it revokes nothing.

Examples:
  pillarbox grant producer shop --database postgres://owner@localhost/shop
  pillarbox grant dispatcher pillarbox_daemon --create --database postgres://owner@localhost/shop
  pillarbox grant producer shop --print --schema shop_outbox | psql …

A created role has no password: set one with `alter role … password`, or configure another
authentication method.";

/// Grants a database role the permissions of one duty (PostgreSQL).
#[derive(Debug, Subcommand)]
pub(crate) enum Grant {
    /// Allow a role to enqueue events, and not to read or change them
    Producer(Role),
    /// Allow a role to mark handled events in the inbox
    Consumer(Role),
    /// Allow a role to run sagas (it also needs `producer`)
    Orchestrator(Role),
    /// Allow a role to run the daemon
    Dispatcher(Role),
}

/// The role and the options.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Role {
    /// Name the role
    role: String,

    /// Create the role, with login, if it does not exist
    #[arg(long)]
    create: bool,

    /// Print the SQL instead of running it
    #[arg(long, conflicts_with = "json")]
    print: bool,

    #[command(flatten)]
    because: Because,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
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
        let found = self.database.find()?;
        let Database::Postgres(store) = database_args::open(&found.database).await? else {
            return Err(Failure::usage(
                "cannot grant: SQLite has no roles (`grant` is for PostgreSQL)",
            ));
        };
        let created = store
            .grant(&self.because.operator(), duty, &self.role, self.create)
            .await?;
        let (name, schema) = (duty.name(), store.schema());
        if self.json {
            return output::json(&serde_json::json!({
                "role": self.role, "duty": name, "schema": schema, "created": created,
            }));
        }
        let created = if created { "created, " } else { "" };
        output::line(&output::escape(&format!(
            "{}: {created}granted the duty {name} in the schema {schema}",
            self.role
        )))
    }

    fn print(&self, duty: Duty) -> Result<(), Failure> {
        let schema = self.database.schema.as_deref().unwrap_or(postgres::SCHEMA);
        let invalid = |error: pillarbox::StoreError| Failure::usage(error.to_string());
        let grants = postgres::grants(duty, schema, &self.role).map_err(invalid)?;
        let create = self.create.then(|| postgres::create_role(&self.role));
        let create = create.transpose().map_err(invalid)?.unwrap_or_default();
        output::line((create + &grants).trim_end())
    }
}
