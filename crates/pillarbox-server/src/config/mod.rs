//! Reads the configuration: TOML, overridden by the environment and the command line.
//!
//! | file | what it does |
//! |---|---|
//! | `raw` | the keys as they are written |
//! | `document`, `explain` | locations, and errors that suggest a fix |
//! | `env` | `PILLARBOX_<SECTION>_<KEY>` |
//! | `resolve` with `databases`, `destinations`, `routes`, `upcasts`, `adopt`, `adopt_routes`, `retry` | the rules: from written keys to a valid configuration |
//! | `security` | what is unencrypted or readable by others, and `strict` |
//! | `units`, `rate` | `"20s"`, `"32MiB"`, `"100/s"` |
//! | `effective` | the effective configuration as JSON |
//!
//! Nothing here connects. `config check --connect` checks whether databases and brokers are reachable.

mod adopt;
mod adopt_routes;
mod databases;
mod destinations;
mod document;
mod effective;
mod env;
mod error;
mod explain;
mod rate;
mod raw;
mod resolve;
mod retention;
mod retry;
mod routes;
mod security;
mod units;
mod upcasts;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use pillarbox::Limits;
use pillarbox_dispatch::{Policy, Rate, Route as EngineRoute, Settings};
use pillarbox_sinks::message::{Upcasts, upcasts::Step};
use pillarbox_sinks::{BuildError, SinkConfig, message};
use pillarbox_store::stores::postgres::adopt::Table;

pub(crate) use self::adopt::finding as adopt_finding;
use self::error::Place;
pub(crate) use self::error::{ConfigError, Finding};
pub(crate) use self::explain::{list, nearest};
pub(crate) use self::raw::POLL as ADOPTED_POLL;
pub(crate) use self::retention::summary as retention_summary;
pub(crate) use self::security::{REFUSED_BY_STRICT, has_password};
pub(crate) use self::units::in_days;
use crate::database::DatabaseUrl;

/// The default address of the API.
pub(crate) const LISTEN: &str = "127.0.0.1:7700";
/// The file that `init` writes.
pub(crate) const SAMPLE: &str = include_str!("sample.toml");

/// A valid configuration.
#[derive(Debug)]
pub(crate) struct Config {
    /// At least one, with unique names.
    pub(crate) databases: Vec<Database>,
    pub(crate) dispatch: Settings,
    pub(crate) limits: Limits,
    pub(crate) http: Http,
    /// Is every warning about security an error?
    pub(crate) strict: bool,
    pub(crate) destinations: Vec<Destination>,
    /// Those of adopted tables, and then those of the file in its order.
    pub(crate) routes: Vec<Route>,
    /// How many of them the file has.
    pub(crate) written_routes: usize,
    /// How old payloads become newer ones.
    pub(crate) upcasts: Vec<Step>,
    /// The adopted tables.
    pub(crate) adopt: Vec<Adopt>,
    /// The folder for rows that retention deletes.
    pub(crate) archive: Option<PathBuf>,
}

/// One database.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    /// The name that routes and `--database` use.
    pub(crate) name: String,
    pub(crate) url: DatabaseUrl,
    pub(crate) schema: String,
    pub(crate) max_connections: u32,
}

/// Where the API listens.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    pub(crate) listen: SocketAddr,
    pub(crate) allow_remote: bool,
    /// Names under which it is reached, besides addresses and `localhost`.
    pub(crate) hosts: Vec<String>,
    /// Where probes are answered without a check of the name.
    pub(crate) ops_listen: Option<SocketAddr>,
}

/// One destination, ready to be built.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) name: String,
    pub(crate) sink: SinkConfig,
    pub(crate) message: message::Config,
    pub(crate) policy: Policy,
    pub(crate) concurrency: usize,
    pub(crate) rate: Option<Rate>,
    pub(crate) fair_by_tenant: bool,
    /// The versions that the receivers know, by event type, and the steps that lead there.
    pub(crate) versions: BTreeMap<String, i32>,
    pub(crate) upcasts: Upcasts,
    /// The setting with which credentials would travel unencrypted.
    pub(crate) exposure: Option<String>,
    /// The locations of its keys.
    places: BTreeMap<String, Place>,
}

impl Destination {
    /// An error of building the sink, with its line.
    pub(crate) fn finding(&self, error: &BuildError) -> Finding {
        let key = match error {
            BuildError::Config { error, .. } => error.key,
            BuildError::NotBuilt { .. } => "type",
        };
        self.at(key, error.to_string())
    }

    /// An error at one of its keys, with its line.
    pub(crate) fn at(&self, key: &str, message: String) -> Finding {
        let place = self.places.get(key).or_else(|| self.places.get("name"));
        Finding::new(place.cloned().unwrap_or(Place::File), message)
    }
}

/// One route of the file, with all its destinations.
#[derive(Debug)]
pub(crate) struct Route {
    /// The databases that it applies to; empty for all.
    pub(crate) databases: Vec<String>,
    /// One for each destination, at least one.
    pub(crate) targets: Vec<EngineRoute>,
    /// The locations of its keys.
    places: BTreeMap<String, Place>,
}

impl Route {
    /// Does it apply to events of this database?
    pub(crate) fn is_for(&self, database: &str) -> bool {
        self.databases.is_empty() || self.databases.iter().any(|name| name == database)
    }

    /// An error at one of its keys, with its line.
    pub(crate) fn at(&self, key: &str, message: String) -> Finding {
        Finding::new(self.places.get(key).cloned().unwrap_or(Place::File), message)
    }
}

/// An adopted table.
#[derive(Debug, Clone)]
pub(crate) struct Adopt {
    /// Its database.
    pub(crate) database: String,
    /// The built-in layout that it is based on.
    pub(crate) layout: Option<String>,
    pub(crate) table: Table,
    /// The roles whose code may run as ours.
    pub(crate) trusted_roles: Vec<String>,
    /// The locations of its keys.
    places: BTreeMap<String, Place>,
}

impl Config {
    /// The tables to adopt in one database.
    pub(crate) fn adopted_in(&self, database: &str) -> Vec<Adopt> {
        let all = self.adopt.iter().filter(|adopt| adopt.database == database);
        all.cloned().collect()
    }

    /// The routes for events of one database.
    pub(crate) fn routes_for(&self, database: &str) -> impl Iterator<Item = &EngineRoute> {
        let routes = self.routes.iter().filter(move |route| route.is_for(database));
        routes.flat_map(|route| &route.targets)
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7700)),
            allow_remote: false,
            hosts: Vec::new(),
            ops_listen: None,
        }
    }
}

impl Http {
    /// Rejects an address that other machines can reach, unless it is allowed.
    ///
    /// # Errors
    /// When the address is not a loopback address and `allow_remote` is not set.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.listen.ip().is_loopback() || self.allow_remote {
            return Ok(());
        }
        Err(format!(
            "cannot listen on {}: other machines can reach it, and the API has no authentication (listen on 127.0.0.1, or \
             set `allow_remote = true` under [http] or --allow-remote in a trusted network)",
            self.listen
        ))
    }
}

impl Http {
    /// Rejects the address of the API for the probes.
    ///
    /// # Errors
    /// When the addresses overlap.
    pub(crate) fn check_ops(&self) -> Result<(), String> {
        match self.ops_listen.filter(|ops| overlap(*ops, self.listen)) {
            Some(ops) => Err(format!(
                "`ops_listen` ({ops}) and `listen` ({}) cannot have one port (choose another one for `ops_listen`, such as 7701)",
                self.listen
            )),
            None => Ok(()),
        }
    }
}

/// Are these the same address and port, or is one of them the port on every address? Port 0 is another one each time.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (is_any || one.ip() == other.ip())
}

/// Values of the command line, which override file and environment.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(crate) database: Option<String>,
    pub(crate) schema: Option<String>,
    pub(crate) listen: Option<String>,
    pub(crate) allow_remote: bool,
    /// Did the command choose its database already? Then the database variables do not apply to the file.
    pub(crate) database_is_chosen: bool,
}

impl Flags {
    fn put(&self, overrides: &mut env::Overrides) {
        overrides.database_is_chosen = self.database_is_chosen;
        let remote = self.allow_remote.then(|| "true".to_owned());
        for (flag, section, key, text) in [
            ("--database", "database", "url", &self.database),
            ("--schema", "database", "schema", &self.schema),
            ("--listen", "http", "listen", &self.listen),
            ("--allow-remote", "http", "allow_remote", &remote),
        ] {
            if let Some(text) = text {
                overrides.flag(flag, section, key, text);
            }
        }
    }
}

/// What a file says, valid or not. Sections with errors have their defaults.
#[derive(Debug)]
pub(crate) struct Draft {
    file: String,
    pub(crate) config: Config,
    /// The errors.
    pub(crate) wrong: Vec<Finding>,
    warnings: Vec<Finding>,
}

impl Draft {
    /// Reads a file with the overrides of environment and command line.
    ///
    /// # Errors
    /// When the file cannot be read, or is not TOML.
    pub(crate) fn read(path: &Path, flags: &Flags) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let message = format!("cannot read the file: {error} (`pillarbox init` writes one)");
            ConfigError::new(&file, vec![Finding::new(Place::File, message)])
        })?;
        let mut overrides = env::from_process();
        flags.put(&mut overrides);
        Self::of(&file, &text, &overrides, security::FileMode::of(path))
    }

    fn of(
        file: &str,
        text: &str,
        overrides: &env::Overrides,
        mode: security::FileMode,
    ) -> Result<Self, ConfigError> {
        let resolved = resolve::resolve(text, overrides, mode);
        let resolved = resolved.map_err(|finding| ConfigError::new(file, vec![finding]))?;
        Ok(Self {
            file: file.to_owned(),
            config: resolved.config,
            wrong: resolved.wrong,
            warnings: resolved.warnings,
        })
    }

    /// The configuration with its warnings.
    ///
    /// # Errors
    /// All errors, each with its line.
    pub(crate) fn finish(self) -> Result<(Config, Vec<Finding>), ConfigError> {
        if self.wrong.is_empty() {
            Ok((self.config, self.warnings))
        } else {
            Err(ConfigError::new(&self.file, self.wrong))
        }
    }
}

/// Reads a file with the overrides of environment and command line.
///
/// # Errors
/// All errors, each with its line.
pub(crate) fn load(path: &Path, flags: &Flags) -> Result<(Config, Vec<Finding>), ConfigError> {
    Draft::read(path, flags)?.finish()
}

/// Reads a text without the environment.
#[cfg(test)]
pub(crate) fn read(text: &str) -> Result<Config, ConfigError> {
    let draft = Draft::of(
        "pillarbox.toml",
        text,
        &env::Overrides::default(),
        security::FileMode::default(),
    )?;
    draft.finish().map(|(config, _)| config)
}

#[cfg(test)]
mod tests;
