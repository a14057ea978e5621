//! The configuration: what is written in TOML, overridden by the environment, and what it means.
//!
//! | file | what it does |
//! |---|---|
//! | `raw` | the keys as they are written |
//! | `document`, `explain` | lines, and sentences for people |
//! | `env` | `PILLARBOX_<SECTION>_<KEY>` |
//! | `resolve` with `databases`, `destinations`, `routes`, `adopt`, `adopt_routes`, `retry` | the rules: from what was written to what is true |
//! | `units`, `rate` | `"20s"`, `"32MiB"`, `"100/s"` |
//! | `effective` | what is in force, for people |
//!
//! Nothing here connects to anything. A configuration that parses can be run; whether the database
//! and the brokers are there is another question (`config check --connect`).

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
mod retry;
mod routes;
mod units;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use pillarbox::Limits;
use pillarbox_dispatch::{Policy, Rate, Route as Way, Settings};
use pillarbox_sinks::{BuildError, SinkConfig, message};
use pillarbox_store::stores::postgres::adopt::Table;

pub(crate) use self::adopt::finding as adopt_finding;
use self::error::Place;
pub(crate) use self::error::{ConfigError, Finding};
pub(crate) use self::explain::{list, nearest};
pub(crate) use self::raw::POLL as ADOPTED_POLL;
use crate::database::Target;

/// Where the API listens unless told otherwise.
pub(crate) const LISTEN: &str = "127.0.0.1:7700";
/// What `init` writes.
pub(crate) const SAMPLE: &str = include_str!("sample.toml");

/// A configuration that can be run.
#[derive(Debug)]
pub(crate) struct Config {
    /// At least one; each name once.
    pub(crate) databases: Vec<Database>,
    pub(crate) dispatch: Settings,
    pub(crate) limits: Limits,
    pub(crate) http: Http,
    pub(crate) destinations: Vec<Destination>,
    /// In the order in which they are written.
    pub(crate) routes: Vec<Route>,
    /// Tables of others.
    pub(crate) adopt: Vec<Adopt>,
}

/// Which database.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    /// What routes and people call it.
    pub(crate) name: String,
    pub(crate) target: Target,
    pub(crate) schema: String,
    pub(crate) max_connections: u32,
}

/// Where the API listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Http {
    pub(crate) listen: SocketAddr,
    pub(crate) allow_remote: bool,
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
    /// Where each of its keys is written.
    places: BTreeMap<String, Place>,
}

impl Destination {
    /// Something that only building the sink could find out, with its line.
    pub(crate) fn finding(&self, error: &BuildError) -> Finding {
        let key = match error {
            BuildError::Config { error, .. } => error.key,
            BuildError::NotBuilt { .. } => "type",
        };
        self.at(key, error.to_string())
    }

    /// Something about one of its keys, with its line.
    pub(crate) fn at(&self, key: &str, message: String) -> Finding {
        let place = self.places.get(key).or_else(|| self.places.get("name"));
        Finding::new(place.cloned().unwrap_or(Place::File), message)
    }
}

/// One route as it is written: to each of its destinations.
#[derive(Debug)]
pub(crate) struct Route {
    /// For events of these databases; of all if there are none.
    pub(crate) databases: Vec<String>,
    /// One for each destination, at least one.
    pub(crate) ways: Vec<Way>,
    /// Where each of its keys is written.
    places: BTreeMap<String, Place>,
}

impl Route {
    /// Does it hold for events of this database?
    pub(crate) fn is_for(&self, database: &str) -> bool {
        self.databases.is_empty() || self.databases.iter().any(|name| name == database)
    }

    /// Something about one of its keys, with its line.
    pub(crate) fn at(&self, key: &str, message: String) -> Finding {
        Finding::new(self.places.get(key).cloned().unwrap_or(Place::File), message)
    }
}

/// A table of others that is worked on as it is.
#[derive(Debug, Clone)]
pub(crate) struct Adopt {
    /// In which database.
    pub(crate) database: String,
    /// Which built-in layout it began with.
    pub(crate) layout: Option<String>,
    pub(crate) table: Table,
    /// Where each of its keys is written.
    places: BTreeMap<String, Place>,
}

impl Config {
    /// The tables to adopt in one database.
    pub(crate) fn adopted_in(&self, database: &str) -> Vec<Adopt> {
        let all = self.adopt.iter().filter(|adopt| adopt.database == database);
        all.cloned().collect()
    }

    /// The routes for events of one database.
    pub(crate) fn routes_for(&self, database: &str) -> impl Iterator<Item = &Way> {
        let routes = self.routes.iter().filter(move |route| route.is_for(database));
        routes.flat_map(|route| &route.ways)
    }
}

impl Http {
    /// Refuses to be seen by others without having been told to.
    ///
    /// # Errors
    /// When the address is not this machine's own and nobody allowed it.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.listen.ip().is_loopback() || self.allow_remote {
            return Ok(());
        }
        Err(format!(
            "{} can be reached from other machines, and the API has no authentication yet; listen on 127.0.0.1, \
             or say `allow_remote = true` under [http] (or --allow-remote) if the network is yours",
            self.listen
        ))
    }
}

/// What the command line puts above file and environment.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(crate) database: Option<String>,
    pub(crate) schema: Option<String>,
    pub(crate) listen: Option<String>,
    pub(crate) allow_remote: bool,
    /// Does the command choose its database by itself? Then what names one elsewhere is not for the file.
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

/// Reads a file under the environment and the command line.
///
/// # Errors
/// Everything that is wrong, each with its line.
pub(crate) fn load(path: &Path, flags: &Flags) -> Result<(Config, Vec<Finding>), ConfigError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
        file: file.clone(),
        findings: vec![Finding::new(
            Place::File,
            format!("cannot be read: {error}; `pillarbox init` writes one"),
        )],
    })?;
    let mut overrides = env::from_process();
    flags.put(&mut overrides);
    resolve::resolve(&text, &overrides).map_err(|findings| ConfigError { file, findings })
}

/// Reads a text, whatever the environment says.
#[cfg(test)]
pub(crate) fn read(text: &str) -> Result<Config, ConfigError> {
    let resolved = resolve::resolve(text, &env::Overrides::default());
    resolved
        .map(|(config, _)| config)
        .map_err(|findings| ConfigError {
            file: "pillarbox.toml".to_owned(),
            findings,
        })
}

#[cfg(test)]
mod tests;
