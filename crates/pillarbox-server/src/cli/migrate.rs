//! `pillarbox migrate`

use std::pin::pin;
use std::time::Duration;

use clap::{Args, ValueEnum};
use pillarbox::StoreError;
use pillarbox_store::stores::migration::Migrated;
use pillarbox_store::stores::{postgres, sqlite};

use super::target;
use crate::config;
use crate::database::{Database, Missing, Target};
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Safe to run twice, and by two processes at once. Where several databases are configured and none
is chosen, each is brought up to date.

Examples:
  pillarbox migrate --database postgres://owner@localhost/shop
  pillarbox migrate --database outbox.db
  pillarbox migrate --print --dialect postgres --schema shop_outbox > outbox.sql";

/// How often a migration that takes long says that it goes on.
const NEWS: Duration = Duration::from_secs(5);

/// Brings the schema up to date.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Migrate {
    /// Print the SQL of all migrations instead of running them; no database is touched
    #[arg(long, conflicts_with = "json")]
    print: bool,

    /// Whose SQL to print; known from the URL where one is given
    #[arg(long, requires = "print")]
    dialect: Option<Dialect>,

    /// Switch a SQLite file to the WAL journal, for everyone who opens it
    #[arg(long, conflicts_with = "print")]
    wal: bool,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: target::Target,
}

/// A database's own SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dialect {
    /// PostgreSQL
    Postgres,
    /// SQLite
    Sqlite,
}

impl Migrate {
    pub(super) async fn run(self) -> Result<(), Failure> {
        if self.print {
            return self.print();
        }
        let all = self.target.find_all()?;
        for found in &all {
            let migrated = self.migrate(&found.database).await;
            migrated.map_err(|failure| match all.len() {
                1 => failure,
                _ => failure.about(&found.database.name),
            })?;
        }
        Ok(())
    }

    async fn migrate(&self, config: &config::Database) -> Result<(), Failure> {
        let database = Database::open(config, Missing::Create).await?;
        let done = migrate(&database, &config.target.to_string()).await?;
        if self.wal {
            use_wal(&database).await?;
        }
        if self.json {
            return output::json(&serde_json::json!({ "from": done.from, "to": done.to }));
        }
        let name = &config.target;
        output::line(&if done.from == done.to {
            format!("{name}: the outbox is up to date, at version {}", done.to)
        } else {
            format!(
                "{name}: migrated the outbox from version {} to {}",
                done.from, done.to
            )
        })
    }

    fn print(&self) -> Result<(), Failure> {
        let schema = self.target.schema.as_deref().unwrap_or(postgres::SCHEMA);
        let script = match self.dialect()? {
            Dialect::Postgres => {
                postgres::script(schema).map_err(|error| Failure::usage(error.to_string()))?
            }
            Dialect::Sqlite => sqlite::script(),
        };
        output::line(script.trim_end())
    }

    fn dialect(&self) -> Result<Dialect, Failure> {
        if let Some(dialect) = self.dialect {
            return Ok(dialect);
        }
        let unknown =
            || Failure::usage("whose SQL? Give --dialect postgres, --dialect sqlite, or --database URL");
        let url = self.target.database.as_ref().ok_or_else(unknown)?;
        Ok(match url.parse().map_err(Failure::usage)? {
            Target::Postgres(_) => Dialect::Postgres,
            Target::Sqlite(_) => Dialect::Sqlite,
        })
    }
}

async fn migrate(database: &Database, name: &str) -> Result<Migrated, StoreError> {
    let mut migrating = pin!(database.migrate());
    loop {
        if let Ok(done) = tokio::time::timeout(NEWS, &mut migrating).await {
            return done;
        }
        eprintln!(
            "{name}: still migrating; a large table takes its time, and so do transactions of others that must end first"
        );
    }
}

async fn use_wal(database: &Database) -> Result<(), Failure> {
    match database {
        Database::Sqlite { store, .. } => Ok(store.use_wal().await?),
        Database::Postgres(_) => Err(Failure::usage(
            "--wal is for SQLite files; PostgreSQL always has one",
        )),
    }
}
