//! The daemon: runs one dispatcher for each configured database until a signal stops it.
//!
//! An invalid setting stops the start. An unavailable database does not: the daemon retries it and serves the others
//! meanwhile. The dispatcher itself waits for brokers.
//!
//! **If we die here** before a dispatcher runs, nothing is claimed. After that the dispatcher's guarantees hold.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use metrics::gauge;
use pillarbox_dispatch::{Destination, Dispatcher, SettingsError};
use pillarbox_store::store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::archive::Folder;
use crate::config::{self, Config, ConfigError, Draft, Finding, Flags};
use crate::database::{Database, IfMissing};
use crate::exporter::Exporter;
use crate::failure::Failure;
use crate::fair_index::FairIndex;
use crate::http::{self, App, DatabaseStatus, Phase, Running, Server};
use crate::signals;
use crate::startup::Startup;

/// Serves until a signal arrives. `file` names the configuration in errors; `migrate` migrates the schemas first.
pub(crate) async fn run(
    config: Config,
    destinations: Vec<Destination>,
    file: &str,
    migrate: bool,
) -> Result<(), Failure> {
    let shutdown = signals::shutdown()?;
    let exporter = Exporter::install()?;
    let mut built = Some(destinations);
    let mut served = Vec::new();
    let mut statuses = Vec::new();
    for database in &config.databases {
        let (phase, seen) = watch::channel(Phase::Connecting);
        // Its dispatcher sets it to 1.
        gauge!("pillarbox_database_up", "database" => database.name.clone()).set(0.0);
        statuses.push(DatabaseStatus {
            database: database.name.clone(),
            phase: seen,
        });
        // Each database has its own sinks.
        let destinations = match built.take() {
            Some(built) => built,
            None => build(&config)
                .await
                .map_err(|findings| ConfigError::new(file, findings))?,
        };
        served.push(Served {
            config: &config,
            file,
            database,
            destinations,
            migrate,
            phase,
        });
    }
    let sockets = http::bind(&config.http).await?;
    let app = App {
        databases: statuses,
        metrics: exporter.handle(),
        shutdown: shutdown.clone(),
    };
    let server = Server::start(sockets, app)?;
    let address = server.address();
    tracing::info!(url = %format_args!("http://{address}"), "listening");
    if let Some(address) = server.ops_address() {
        tracing::info!(url = %format_args!("http://{address}"), "answering probes");
    }
    let ended = join_all(served.into_iter().map(|served| served.run(&shutdown))).await;
    server.stop().await;
    ended.into_iter().collect()
}

/// One database to serve, with its own sinks.
struct Served<'a> {
    config: &'a Config,
    file: &'a str,
    database: &'a config::Database,
    destinations: Vec<Destination>,
    migrate: bool,
    phase: watch::Sender<Phase>,
}

impl Served<'_> {
    /// Serves until the shutdown. If one database fails for good, the daemon stops, so that its operator notices.
    async fn run(self, shutdown: &CancellationToken) -> Result<(), Failure> {
        let several = self.config.databases.len() > 1;
        let name = self.database.name.clone();
        let ended = Box::pin(self.serve(shutdown.clone())).await;
        if ended.is_err() {
            shutdown.cancel();
        }
        ended.map_err(|failure| {
            if several {
                failure.for_database(&name)
            } else {
                failure
            }
        })
    }

    async fn serve(self, shutdown: CancellationToken) -> Result<(), Failure> {
        let if_missing = if self.migrate {
            IfMissing::Create
        } else {
            IfMissing::Fail
        };
        let database = Database::open(self.database, if_missing).await?;
        let adopt = self.config.adopted_in(&self.database.name);
        let startup = Startup {
            database: &database,
            config: self.database,
            settings: self.config,
            migrate: self.migrate,
            adopt: &adopt,
            file: self.file,
            phase: &self.phase,
        };
        if !startup.wait_until_ready(&shutdown).await? {
            return Ok(()); // stopped before it was ready
        }
        let for_http = database.for_http()?;
        let store = database.store();
        let dispatcher = self.dispatcher(&store)?;
        let worker = dispatcher.worker();
        let name = &self.database.name;
        tracing::info!(%worker, database = name, url = %self.database.url, "serving database");
        self.phase.send_replace(Phase::Running(Running {
            store: for_http.store(),
            operate: for_http.operate(),
            scope: self.config.dispatch.scope.clone(),
            destinations: self
                .config
                .destinations
                .iter()
                .map(|to| to.name.clone())
                .collect(),
            worker,
            counters: dispatcher.counters(),
        }));
        let fair = self.destinations.iter().any(|to| to.fair_by_tenant);
        let index = FairIndex {
            database: &database,
            name,
        };
        let index = async {
            let built = if fair {
                index.build(&shutdown).await
            } else {
                Ok(())
            };
            if built.is_err() {
                shutdown.cancel();
            }
            built
        };
        let (done, built) = tokio::join!(dispatcher.run(shutdown.clone()), index);
        tracing::info!(
            database = name,
            claimed = done.claimed,
            delivered = done.delivered,
            retried = done.retried,
            dead = done.dead,
            released = done.released,
            lost = done.lost,
            "stopped serving database"
        );
        built
    }

    /// Opens the archive. Its files have payloads, so others should not read them.
    fn archive(&self, folder: &Path, worker: Uuid) -> Result<Folder, Failure> {
        let failed =
            |error| Failure::failed(format!("cannot open the archive {}: {error}", folder.display()));
        let archive = Folder::open(folder, &self.database.name, worker).map_err(failed)?;
        if archive.is_open().map_err(failed)? {
            let text = format!(
                "the archive {0} is open to others (run: chmod 700 {0})",
                folder.display()
            );
            if self.config.strict {
                return Err(Failure::failed(text));
            }
            tracing::warn!("{text}");
        }
        Ok(archive)
    }

    fn dispatcher(&self, store: &Arc<dyn Store>) -> Result<Dispatcher, Failure> {
        let worker = Uuid::new_v4();
        let mut builder = Dispatcher::builder(Arc::clone(store))
            .settings(self.config.dispatch.clone())
            .database(self.database.name.clone())
            .host(host())
            .worker(worker);
        if let Some(folder) = &self.config.archive {
            builder = builder.archive(Arc::new(self.archive(folder, worker)?));
        }
        for destination in &self.destinations {
            builder = builder.destination(destination.clone());
        }
        for route in self.config.routes_for(&self.database.name) {
            builder = builder.route(route.clone());
        }
        builder.build().map_err(invalid_settings)
    }
}

/// Reads a configuration and builds its sinks without connecting.
///
/// # Errors
/// All errors, also those of sinks, each with its line.
pub(crate) async fn load(
    path: &Path,
    flags: &Flags,
) -> Result<(Config, Vec<Finding>, Vec<Destination>), ConfigError> {
    let mut draft = Draft::read(path, flags)?;
    let built = build(&draft.config).await;
    let built = built.map_err(|findings| draft.wrong.extend(findings));
    let (config, warnings) = draft.finish()?;
    Ok((config, warnings, built.unwrap_or_default()))
}

/// Builds the sinks of all destinations without connecting.
async fn build(config: &Config) -> Result<Vec<Destination>, Vec<Finding>> {
    let mut built = Vec::with_capacity(config.destinations.len());
    let mut wrong = Vec::new();
    for to in &config.destinations {
        let built_sink = to.sink.build_upcasting(&to.name, &to.message, &to.upcasts);
        let sink = match built_sink.await {
            Ok(sink) => sink,
            Err(error) => {
                wrong.push(to.finding(&error));
                continue;
            }
        };
        let destination = Destination {
            name: to.name.clone(),
            sink,
            policy: to.policy.clone(),
            concurrency: to.concurrency,
            rate: to.rate,
            fair_by_tenant: to.fair_by_tenant,
        };
        if !destination.sink.keeps_order() {
            wrong.extend(pipelined(config, to));
        }
        built.push(destination);
    }
    if wrong.is_empty() { Ok(built) } else { Err(wrong) }
}

/// A sink that does not keep the order of calls cannot be pipelined: the second event must wait for the first.
fn pipelined(config: &Config, to: &config::Destination) -> Vec<Finding> {
    let message = || {
        format!(
            "`pipelined`: destination `{}` is a {}, which does not keep the order of events (remove `pipelined`)",
            to.name,
            to.sink.kind()
        )
    };
    let pipelined = |route: &&config::Route| {
        let mut targets = route
            .targets
            .iter()
            .filter(|target| target.destination == to.name);
        targets.any(|target| target.overrides.pipelined == Some(true))
    };
    let own = to.policy.pipelined.then(|| to.at("pipelined", message()));
    let routes = config.routes.iter().filter(pipelined);
    let routes = routes.map(|route| route.at("pipelined", message()));
    own.into_iter().chain(routes).collect()
}

/// The machine's name, for the list of workers.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A setting that the dispatcher rejects.
pub(crate) fn invalid_settings(error: SettingsError) -> Failure {
    Failure::usage(error.to_string())
}
