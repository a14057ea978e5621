//! Which database a command works on: `--database`, the environment, or the configuration file.

use std::path::{Path, PathBuf};

use clap::Args;
use pillarbox::Limits;

use crate::config;
use crate::database::{Database, Missing};
use crate::failure::Failure;

/// The file that is looked at where none is named.
pub(super) const CONFIG: &str = "pillarbox.toml";

/// Names a database.
#[derive(Debug, Args)]
#[command(next_help_heading = "Database")]
pub(super) struct Target {
    /// postgres://user@host/database, sqlite://path or a path
    #[arg(
        long,
        env = "PILLARBOX_DATABASE_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub(super) database: Option<String>,

    /// The schema that holds the outbox (PostgreSQL) [default: pillarbox]
    #[arg(long, env = "PILLARBOX_DATABASE_SCHEMA", value_name = "NAME")]
    pub(super) schema: Option<String>,

    /// Take the database from this file where --database is not given [default: pillarbox.toml, if it is there]
    #[arg(long, env = "PILLARBOX_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A database and what it accepts.
pub(super) struct Found {
    pub(super) database: config::Database,
    pub(super) limits: Limits,
}

impl Target {
    /// What is named, wherever it is named.
    pub(super) fn find(&self) -> Result<Found, Failure> {
        let mut found = match (&self.database, &self.config) {
            (Some(url), None) => named(url)?,
            (Some(url), Some(file)) => Found {
                database: named(url)?.database,
                limits: load(file)?.limits,
            },
            (None, Some(file)) => load(file)?,
            (None, None) if Path::new(CONFIG).exists() => load(Path::new(CONFIG))?,
            (None, None) => {
                return Err(Failure::usage(
                    "no database is named; give --database URL, set PILLARBOX_DATABASE_URL, or give --config FILE",
                ));
            }
        };
        if let Some(schema) = &self.schema {
            found.database.schema.clone_from(schema);
        }
        Ok(found)
    }

    /// Opens what is named.
    pub(super) async fn open(&self) -> Result<Database, Failure> {
        Ok(Database::open(&self.find()?.database, Missing::Refuse).await?)
    }
}

fn named(url: &str) -> Result<Found, Failure> {
    Ok(Found {
        database: config::Database {
            target: url
                .parse()
                .map_err(|message| Failure::usage(format!("--database: {message}")))?,
            schema: "pillarbox".to_owned(),
            max_connections: 2, // a tool does one thing at a time
        },
        limits: Limits::default(),
    })
}

fn load(file: &Path) -> Result<Found, Failure> {
    let (config, _) = config::load(file)?;
    Ok(Found {
        database: config.database,
        limits: config.limits,
    })
}
