//! `pillarbox migrate`

use std::pin::pin;
use std::time::Duration;

use clap::{Args, ValueEnum};
use pillarbox_store::Actor;
use pillarbox_store::stores::migration::Migrated;
use pillarbox_store::stores::{postgres, sqlite};

use super::actor::Because;
use super::database_args;
use crate::config;
use crate::database::{Database, DatabaseUrl, IfMissing};
use crate::failure::Failure;
use crate::logs;
use crate::output;

const EXAMPLES: &str = "\
It is safe to run twice, and in two processes at once. With several configured databases and no
--database, each is migrated.

Examples:
  pillarbox migrate --database postgres://owner@localhost/shop
  pillarbox migrate --owner pillarbox_owner --database postgres://dba@localhost/shop
  pillarbox migrate --row-security --database postgres://owner@localhost/shop
  pillarbox migrate --database outbox.db
  pillarbox migrate --print --dialect postgres --schema shop_outbox > outbox.sql";

/// How often a long migration prints that it is still running.
const PROGRESS: Duration = Duration::from_secs(5);

/// Creates or upgrades the outbox schema.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Migrate {
    /// Print the SQL of all migrations instead of running it
    #[arg(long, conflicts_with = "json")]
    print: bool,

    /// Choose the SQL dialect to print, if --database is not given
    #[arg(long, requires = "print")]
    dialect: Option<Dialect>,

    /// Switch a SQLite file to the WAL journal for all its users
    #[arg(long, conflicts_with = "print")]
    wal: bool,

    #[command(flatten)]
    because: Because,

    /// Give the outbox to this role, which cannot log in (PostgreSQL)
    #[arg(long, value_name = "ROLE", conflicts_with = "print")]
    owner: Option<String>,

    /// Switch row-level security for the rows of tenants on or off (PostgreSQL)
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    row_security: Option<Switch>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: database_args::DatabaseArgs,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    /// On
    On,
    /// Off
    Off,
}

impl Switch {
    fn is_on(self) -> bool {
        self == Self::On
    }
}

/// An SQL dialect.
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
        let all = self.database.find_all()?;
        for found in &all {
            let migrated = self.migrate(&found.database).await;
            migrated.map_err(|failure| match all.len() {
                1 => failure,
                _ => failure.for_database(&found.database.name),
            })?;
        }
        Ok(())
    }

    async fn migrate(&self, config: &config::Database) -> Result<(), Failure> {
        let database = Database::open(config, IfMissing::Create).await?;
        let (actor, owner) = (self.because.operator(), self.owner.as_deref());
        let done = migrate(&database, &actor, owner, &config.url.to_string()).await?;
        if self.wal {
            use_wal(&database).await?;
        }
        let row_security = self.row_security.map(Switch::is_on);
        if let Some(on) = row_security {
            set_row_security(&database, &actor, on, &config.url.to_string()).await?;
        }
        if self.json {
            let mut done = serde_json::json!({ "from": done.from, "to": done.to });
            if let Some(on) = row_security {
                done["row_security"] = on.into();
            }
            return output::json(&done);
        }
        let name = &config.url;
        output::line(&if done.from == done.to {
            format!("{name}: schema is up to date, at version {}", done.to)
        } else {
            format!(
                "{name}: schema migrated from version {} to {}",
                done.from, done.to
            )
        })?;
        match self.row_security {
            None => Ok(()),
            Some(Switch::On) => output::line(&format!("{name}: row-level security is on")),
            Some(Switch::Off) => output::line(&format!("{name}: row-level security is off")),
        }
    }

    fn print(&self) -> Result<(), Failure> {
        let (dialect, schema) = self.dialect()?;
        let script = match (dialect, self.row_security) {
            (Dialect::Postgres, switch) => {
                let invalid = |error: pillarbox::StoreError| Failure::usage(error.to_string());
                let script = postgres::script(&schema).map_err(invalid)?;
                let secured = switch.map(|switch| postgres::row_security_script(&schema, switch.is_on()));
                let secured = secured.transpose().map_err(invalid)?;
                script + &secured.map(|secured| format!("\n{secured}")).unwrap_or_default()
            }
            (Dialect::Sqlite, None) => sqlite::script(),
            (Dialect::Sqlite, Some(_)) => return Err(no_row_security()),
        };
        output::line(script.trim_end())
    }

    /// The dialect and the schema to print: as given, or those of the chosen database.
    fn dialect(&self) -> Result<(Dialect, String), Failure> {
        if let Some(dialect) = self.dialect {
            let schema = self.database.schema.as_deref().unwrap_or(postgres::SCHEMA);
            return Ok((dialect, schema.to_owned()));
        }
        let chosen = self.database.find_all()?.into_iter().next().ok_or_else(|| {
            Failure::usage("cannot print the SQL: no database (use --dialect postgres or --dialect sqlite)")
        })?;
        let dialect = match chosen.database.url {
            DatabaseUrl::Postgres(_) => Dialect::Postgres,
            DatabaseUrl::Sqlite(_) => Dialect::Sqlite,
        };
        Ok((dialect, chosen.database.schema))
    }
}

async fn migrate(
    database: &Database,
    actor: &Actor,
    owner: Option<&str>,
    name: &str,
) -> Result<Migrated, Failure> {
    let migrating = async {
        match (database, owner) {
            (_, None) => Ok(database.migrate(actor).await?),
            (Database::Postgres(store), Some(owner)) => Ok(store.migrate_for(actor, owner).await?),
            (Database::Sqlite { .. }, Some(_)) => Err(Failure::usage(
                "--owner: not supported by SQLite (it is for PostgreSQL)",
            )),
        }
    };
    with_progress(migrating, name).await
}

/// Prints now and then that it is still running.
async fn with_progress<T>(work: impl Future<Output = T>, name: &str) -> T {
    let mut work = pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(PROGRESS, &mut work).await {
            return done;
        }
        logs::progress(&format!(
            "{name}: still migrating (a large table, open transactions or a slow connection)"
        ));
    }
}

async fn set_row_security(database: &Database, actor: &Actor, on: bool, name: &str) -> Result<(), Failure> {
    match database {
        Database::Postgres(store) => {
            with_progress(store.set_row_security(actor, on), name).await?;
            Ok(())
        }
        Database::Sqlite { .. } => Err(no_row_security()),
    }
}

fn no_row_security() -> Failure {
    Failure::usage("--row-security: not supported by SQLite, which has no roles (it is for PostgreSQL)")
}

async fn use_wal(database: &Database) -> Result<(), Failure> {
    match database {
        Database::Sqlite { store, .. } => Ok(store.use_wal().await?),
        Database::Postgres(_) => Err(Failure::usage(
            "--wal: not supported by PostgreSQL (it is for SQLite files)",
        )),
    }
}
