//! Chooses a command's database: `--database`, the environment, or the configuration file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use pillarbox::internal::schema::check_name;
use pillarbox::{Limits, StoreError};

use crate::config::{self, Config, Flags};
use crate::database::{Database, IfMissing, is_name};
use crate::failure::Failure;
use crate::logs;

/// The default configuration file.
pub(super) const CONFIG: &str = "pillarbox.toml";
/// The variable with the URL of the database.
const VARIABLE: &str = "PILLARBOX_DATABASE_URL";

/// The options that choose a database.
#[derive(Debug, Args)]
#[command(next_help_heading = "Database")]
pub(super) struct DatabaseArgs {
    /// Use this database: a URL, a path, or a name in the configuration
    ///
    /// Without it, the variable PILLARBOX_DATABASE_URL overrides the URL in the configuration.
    #[arg(long, value_name = "URL|NAME")]
    pub(super) database: Option<String>,

    /// Use this schema (PostgreSQL) [default: pillarbox]
    #[arg(long, env = "PILLARBOX_DATABASE_SCHEMA", value_name = "NAME")]
    pub(super) schema: Option<String>,

    /// Read the database from this file [default: pillarbox.toml]
    #[arg(long, env = "PILLARBOX_CONFIG", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

/// A chosen database, with what the configuration says about it.
#[derive(Debug, Clone)]
pub(super) struct ChosenDatabase {
    pub(super) database: config::Database,
    pub(super) limits: Limits,
    /// The names of the configured destinations; None if no configuration was read.
    pub(super) destinations: Option<Vec<String>>,
    /// The destinations to which credentials would travel unencrypted, and the setting.
    pub(super) exposures: BTreeMap<String, String>,
    /// The tables to adopt in it.
    pub(super) adopt: Vec<config::Adopt>,
}

impl DatabaseArgs {
    /// The one chosen database.
    pub(super) fn find(&self) -> Result<ChosenDatabase, Failure> {
        let mut all = self.find_all()?;
        match (all.pop(), all.as_slice()) {
            (Some(found), []) => Ok(found),
            (last, rest) => {
                let all = rest.iter().chain(&last);
                let names: Vec<&str> = all.map(|found| found.database.name.as_str()).collect();
                Err(Failure::usage(format!(
                    "several databases are configured (choose one with --database: {})",
                    config::list(&names)
                )))
            }
        }
    }

    /// The one chosen database, or `None` if nothing chooses one.
    pub(super) fn find_if_any(&self) -> Result<Option<ChosenDatabase>, Failure> {
        let is_chosen = self.database.is_some()
            || self.config.is_some()
            || std::env::var_os(VARIABLE).is_some()
            || Path::new(CONFIG).exists();
        is_chosen.then(|| self.find()).transpose()
    }

    /// The chosen database, or all configured ones. At least one.
    pub(super) fn find_all(&self) -> Result<Vec<ChosenDatabase>, Failure> {
        if let Some(schema) = &self.schema {
            check_name(schema).map_err(|error| Failure::usage(format!("--schema: {error}")))?;
        }
        let mut all = self.chosen()?;
        for found in &mut all {
            if let Some(schema) = &self.schema {
                found.database.schema.clone_from(schema);
            }
        }
        Ok(all)
    }

    fn chosen(&self) -> Result<Vec<ChosenDatabase>, Failure> {
        if let Some(text) = &self.database {
            warn_of_password("--database", text);
            // A URL or a path needs no file. A file that is given still sets limits and destinations.
            let config = if is_name(text) || self.config.is_some() {
                self.config()?
            } else {
                None
            };
            return named("--database", text, config.as_ref()).map(|found| vec![found]);
        }
        let variable = std::env::var(VARIABLE).ok();
        match (self.config()?, variable) {
            (Some(config), Some(text)) if config.databases.len() > 1 => {
                named(VARIABLE, &text, Some(&config)).map(|found| vec![found])
            }
            // The variable has overridden the URL of the file.
            (Some(config), _) => Ok(config.databases.iter().map(|it| found(it, &config)).collect()),
            (None, Some(text)) => named(VARIABLE, &text, None).map(|found| vec![found]),
            (None, None) => Err(Failure::usage(
                "no database (use --database URL, PILLARBOX_DATABASE_URL, or --config FILE)",
            )),
        }
    }

    /// The configuration, if there is one.
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

    /// Opens the chosen database.
    pub(super) async fn open(&self) -> Result<Database, Failure> {
        open(&self.find()?.database).await
    }
}

/// Opens a database and checks that it has an outbox.
pub(super) async fn open(database: &config::Database) -> Result<Database, Failure> {
    let database = Database::open(database, IfMissing::Fail).await?;
    database.store().check().await?;
    Ok(database)
}

/// Every user of the machine can list the arguments of all processes.
pub(super) fn warn_of_password(option: &str, text: &str) {
    if config::has_password(text) {
        logs::warning(&format!(
            "{option} has a password, which the process list shows to every user (set {VARIABLE} instead)"
        ));
    }
}

/// The same for a role that may enqueue and not read the version of the schema.
pub(super) async fn open_to_enqueue(database: &config::Database) -> Result<Database, Failure> {
    let database = Database::open(database, IfMissing::Fail).await?;
    match database.store().check().await {
        Ok(()) | Err(StoreError::Denied(_)) => Ok(database),
        Err(error) => Err(error.into()),
    }
}

/// The database that an option or a variable names: by the name in the configuration, by URL or by path.
fn named(origin: &str, text: &str, config: Option<&Config>) -> Result<ChosenDatabase, Failure> {
    let Some(config) = config else {
        return Ok(ChosenDatabase {
            database: at(origin, text)?,
            limits: Limits::default(),
            destinations: None,
            exposures: BTreeMap::new(),
            adopt: Vec::new(),
        });
    };
    if let Some(it) = config.databases.iter().find(|it| it.name == *text) {
        return Ok(found(it, config));
    }
    if is_name(text) && config.databases.len() > 1 {
        return Err(unknown(origin, text, config));
    }
    Ok(found(&at(origin, text)?, config))
}

fn unknown(origin: &str, name: &str, config: &Config) -> Failure {
    let names: Vec<&str> = config.databases.iter().map(|it| it.name.as_str()).collect();
    let hint = match config::nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "configured: {}; a path needs a `/` or a `.`",
            config::list(&names)
        ),
    };
    Failure::usage(format!("{origin}: unknown database `{name}` ({hint})"))
}

fn found(database: &config::Database, config: &Config) -> ChosenDatabase {
    ChosenDatabase {
        database: database.clone(),
        limits: config.limits,
        destinations: Some(config.destinations.iter().map(|to| to.name.clone()).collect()),
        exposures: config
            .destinations
            .iter()
            .filter_map(|to| Some((to.name.clone(), to.exposure.clone()?)))
            .collect(),
        adopt: config.adopted_in(&database.name),
    }
}

fn at(origin: &str, url: &str) -> Result<config::Database, Failure> {
    Ok(config::Database {
        name: "default".to_owned(),
        url: url
            .parse()
            .map_err(|message| Failure::usage(format!("{origin}: {message}")))?,
        schema: "pillarbox".to_owned(),
        max_connections: 2, // a command runs one statement at a time
    })
}
