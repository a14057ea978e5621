//! The daemon: from a configuration to one dispatcher per database, which serve until they are told to stop.
//!
//! What is wrong with the configuration ends it at once; what is only absent is waited for. A database
//! that is not there yet is said once and asked for again and again while the others are served, and a broker is
//! the dispatcher's business.
//!
//! **If we die here** before a dispatcher runs, nothing was claimed. After that its own promises hold.

use std::sync::Arc;

use futures_util::future::join_all;
use pillarbox_dispatch::{Destination, Dispatcher, SettingsError};
use pillarbox_store::store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config};
use crate::database::{Database, Missing};
use crate::failure::Failure;
use crate::http::{self, App, Phase, Running, Seat, Server};
use crate::signals;
use crate::waiting::Waiting;

/// Serves until a signal comes. `file` is where the configuration was written; `migrate` brings the schema up to date first.
pub(crate) async fn run(config: Config, file: &str, migrate: bool) -> Result<(), Failure> {
    let shutdown = signals::shutdown()?;
    let mut posts = Vec::new();
    let mut seats = Vec::new();
    for database in &config.databases {
        let (phase, seen) = watch::channel(Phase::Starting("connecting to the database".to_owned()));
        seats.push(Seat {
            database: database.name.clone(),
            phase: seen,
        });
        posts.push(Post {
            config: &config,
            file,
            database,
            destinations: build(&config, file).await?,
            migrate,
            phase,
        });
    }
    let listener = http::bind(&config.http).await?;
    let app = App {
        seats,
        shutdown: shutdown.clone(),
    };
    let server = Server::start(listener, app)?;
    tracing::info!("listening on http://{}", server.address());
    let served = join_all(posts.into_iter().map(|post| post.hold(&shutdown))).await;
    server.stop().await;
    served.into_iter().collect()
}

/// One database to be served, with sinks of its own.
struct Post<'a> {
    config: &'a Config,
    file: &'a str,
    database: &'a config::Database,
    destinations: Vec<Destination>,
    migrate: bool,
    phase: watch::Sender<Phase>,
}

impl Post<'_> {
    /// Serves until told to stop. If this one cannot go on, none does: whoever looks after the daemon shall notice.
    async fn hold(self, shutdown: &CancellationToken) -> Result<(), Failure> {
        let several = self.config.databases.len() > 1;
        let name = self.database.name.clone();
        let served = Box::pin(self.serve(shutdown.clone())).await;
        if served.is_err() {
            shutdown.cancel();
        }
        served.map_err(|failure| if several { failure.about(&name) } else { failure })
    }

    async fn serve(self, shutdown: CancellationToken) -> Result<(), Failure> {
        let missing = if self.migrate {
            Missing::Create
        } else {
            Missing::Refuse
        };
        let database = Database::open(self.database, missing).await?;
        let adopt = self.config.adopted_in(&self.database.name);
        let waiting = Waiting {
            database: &database,
            name: &self.database.name,
            migrate: self.migrate,
            fair: self.destinations.iter().any(|to| to.fair_by_tenant),
            adopt: &adopt,
            file: self.file,
            phase: &self.phase,
        };
        if !waiting.until_ready(&shutdown).await? {
            return Ok(()); // told to stop before there was anything to serve
        }
        let store = database.store();
        let dispatcher = self.dispatcher(&store)?;
        let worker = dispatcher.worker();
        let name = &self.database.name;
        tracing::info!(%worker, database = name, target = %self.database.target, "dispatching");
        self.phase.send_replace(Phase::Running(Running {
            store,
            operate: database.operate(),
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
        let done = dispatcher.run(shutdown).await;
        tracing::info!(
            database = name,
            claimed = done.claimed,
            delivered = done.delivered,
            retried = done.retried,
            dead = done.dead,
            released = done.released,
            lost = done.lost,
            "stopped"
        );
        Ok(())
    }

    fn dispatcher(&self, store: &Arc<dyn Store>) -> Result<Dispatcher, Failure> {
        let mut builder = Dispatcher::builder(Arc::clone(store))
            .settings(self.config.dispatch.clone())
            .host(host());
        for destination in &self.destinations {
            builder = builder.destination(destination.clone());
        }
        for route in self.config.routes_for(&self.database.name) {
            builder = builder.route(route.clone());
        }
        builder.build().map_err(refused)
    }
}

/// Builds every destination's sink, as `file` has them. None is connected to here.
pub(crate) async fn build(config: &Config, file: &str) -> Result<Vec<Destination>, Failure> {
    let mut built = Vec::with_capacity(config.destinations.len());
    for to in &config.destinations {
        let sink = to.sink.build(&to.name, &to.message).await;
        let sink = sink.map_err(|error| Failure::usage(to.finding(&error).line(file)))?;
        let destination = Destination {
            name: to.name.clone(),
            sink,
            policy: to.policy.clone(),
            concurrency: to.concurrency,
            rate: to.rate,
            fair_by_tenant: to.fair_by_tenant,
        };
        if !destination.sink.keeps_order() {
            refuse_pipelined(config, to, file)?;
        }
        built.push(destination);
    }
    Ok(built)
}

/// Where the order of calls is not the order of arrival, a second event must wait for the first.
fn refuse_pipelined(config: &Config, to: &config::Destination, file: &str) -> Result<(), Failure> {
    let message = || {
        format!(
            "`pipelined`: the destination `{}` is a {}, which does not keep the order in which events are sent; \
             remove `pipelined`",
            to.name,
            to.sink.kind()
        )
    };
    let pipelined = |route: &&config::Route| {
        let mut ways = route.ways.iter().filter(|way| way.destination == to.name);
        ways.any(|way| way.overrides.pipelined == Some(true))
    };
    let finding = match config.routes.iter().find(pipelined) {
        _ if to.policy.pipelined => to.at("pipelined", message()),
        Some(route) => route.at("pipelined", message()),
        None => return Ok(()),
    };
    Err(Failure::usage(finding.line(file)))
}

/// What this machine is called, for whoever looks at the list of workers.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A setting that the engine refuses.
pub(crate) fn refused(error: SettingsError) -> Failure {
    Failure::usage(error.to_string())
}
