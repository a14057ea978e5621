//! Which database a command works on: `--database`, the environment, or the configuration file.

use std::path::{Path, PathBuf};

use clap::Args;
use pillarbox::Limits;

use crate::config::{self, Config, Flags};
use crate::database::{Database, Missing};
use crate::failure::Failure;

/// The file that is looked at where none is named.
pub(super) const CONFIG: &str = "pillarbox.toml";

/// Names a database.
#[derive(Debug, Args)]
#[command(next_help_heading = "Database")]
pub(super) struct Target {
    /// postgres://user@host/database, sqlite://path, a path, or the name of one of several in the configuration
    #[arg(
        long,
        env = "PILLARBOX_DATABASE_URL",
        hide_env_values = true,
        value_name = "URL|NAME"
    )]
    pub(super) database: Option<String>,

    /// The schema that holds the outbox (PostgreSQL) [default: pillarbox]
    #[arg(long, env = "PILLARBOX_DATABASE_SCHEMA", value_name = "NAME")]
    pub(super) schema: Option<String>,

    /// Take the database from this file where --database is not given [default: pillarbox.toml, if it is there]
    #[arg(long, env = "PILLARBOX_CONFIG", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

/// A database, and what the configuration says beside it.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) database: config::Database,
    pub(super) limits: Limits,
    /// The names of the configured destinations, where a configuration was read.
    pub(super) destinations: Option<Vec<String>>,
    /// The tables to adopt in it, as far as a configuration says so.
    pub(super) adopt: Vec<config::Adopt>,
}

impl Target {
    /// The one that is named, wherever it is named.
    pub(super) fn find(&self) -> Result<Found, Failure> {
        let mut all = self.find_all()?;
        match (all.pop(), all.as_slice()) {
            (Some(found), []) => Ok(found),
            (last, rest) => {
                let all = rest.iter().chain(&last);
                let names: Vec<&str> = all.map(|found| found.database.name.as_str()).collect();
                Err(Failure::usage(format!(
                    "which database? Give --database NAME: there is {}",
                    config::list(&names)
                )))
            }
        }
    }

    /// All of them, where several are configured and none is chosen. At least one.
    pub(super) fn find_all(&self) -> Result<Vec<Found>, Failure> {
        let mut all = self.chosen()?;
        for found in &mut all {
            if let Some(schema) = &self.schema {
                found.database.schema.clone_from(schema);
            }
        }
        Ok(all)
    }

    fn chosen(&self) -> Result<Vec<Found>, Failure> {
        let Some(text) = &self.database else {
            let config = self.config()?.ok_or_else(|| {
                Failure::usage(
                    "no database is named; give --database URL, set PILLARBOX_DATABASE_URL, or give --config FILE",
                )
            })?;
            return Ok(config.databases.iter().map(|it| found(it, &config)).collect());
        };
        // What can only be a URL or a path needs no file, except for what else a file that was named says.
        let config = if is_name(text) || self.config.is_some() {
            self.config()?
        } else {
            None
        };
        let Some(config) = config else {
            return Ok(vec![Found {
                database: at(text)?,
                limits: Limits::default(),
                destinations: None,
                adopt: Vec::new(),
            }]);
        };
        if let Some(it) = config.databases.iter().find(|it| it.name == *text) {
            return Ok(vec![found(it, &config)]);
        }
        if is_name(text) && config.databases.len() > 1 {
            return Err(unknown(text, &config));
        }
        Ok(vec![found(&at(text)?, &config)])
    }

    /// What the configuration says, if there is one.
    fn config(&self) -> Result<Option<Config>, Failure> {
        let file = match &self.config {
            Some(file) => file,
            None if Path::new(CONFIG).exists() => Path::new(CONFIG),
            None => return Ok(None),
        };
        let flags = Flags {
            database_is_chosen: true,
            ..Flags::default()
        };
        Ok(Some(config::load(file, &flags)?.0))
    }

    /// Opens the one that is named.
    pub(super) async fn open(&self) -> Result<Database, Failure> {
        open(&self.find()?.database).await
    }
}

/// Opens a database and makes sure that there is an outbox in it.
pub(super) async fn open(database: &config::Database) -> Result<Database, Failure> {
    let database = Database::open(database, Missing::Refuse).await?;
    database.store().check().await?;
    Ok(database)
}

/// Could it be a name? A URL or a path says so itself.
fn is_name(text: &str) -> bool {
    !text.contains(['/', '.', ':', '\\'])
}

fn unknown(name: &str, config: &Config) -> Failure {
    let names: Vec<&str> = config.databases.iter().map(|it| it.name.as_str()).collect();
    let hint = match config::nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "there is {}; a file's path has a `/` or a `.` in it",
            config::list(&names)
        ),
    };
    Failure::usage(format!("--database: there is no database `{name}`; {hint}"))
}

fn found(database: &config::Database, config: &Config) -> Found {
    Found {
        database: database.clone(),
        limits: config.limits,
        destinations: Some(config.destinations.iter().map(|to| to.name.clone()).collect()),
        adopt: config.adopted_in(&database.name),
    }
}

fn at(url: &str) -> Result<config::Database, Failure> {
    Ok(config::Database {
        name: "default".to_owned(),
        target: url
            .parse()
            .map_err(|message| Failure::usage(format!("--database: {message}")))?,
        schema: "pillarbox".to_owned(),
        max_connections: 2, // a tool does one thing at a time
    })
}
