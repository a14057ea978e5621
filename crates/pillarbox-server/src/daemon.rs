//! The daemon: from a configuration to a dispatcher that serves until it is told to stop.
//!
//! What is wrong with the configuration ends it at once; what is only absent is waited for. A database
//! that is not there yet is said once and asked for again and again, and a broker is the dispatcher's
//! business.
//!
//! **If we die here** before the dispatcher runs, nothing was claimed. After that its own promises hold.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::{Store, StoreError};
use pillarbox_dispatch::{Destination, Dispatcher, SettingsError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config};
use crate::database::{Database, Missing};
use crate::failure::Failure;
use crate::http::{self, App, Phase, Running, Server};
use crate::signals;

/// The first and the longest wait for a database that is not there.
const WAITS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Serves until a signal comes. `file` is where the configuration was written; `migrate` brings the schema up to date first.
pub(crate) async fn run(config: Config, file: &str, migrate: bool) -> Result<(), Failure> {
    let shutdown = signals::shutdown()?;
    let destinations = build(&config.destinations, file).await?;
    let listener = http::bind(&config.http).await?;
    let (phase, seen) = watch::channel(Phase::Starting("connecting to the database".to_owned()));
    let app = App {
        phase: seen,
        shutdown: shutdown.clone(),
    };
    let server = Server::start(listener, app)?;
    tracing::info!("listening on http://{}", server.address());
    let served = serve(config, destinations, migrate, &phase, shutdown).await;
    server.stop().await;
    served
}

async fn serve(
    config: Config,
    destinations: Vec<Destination>,
    migrate: bool,
    phase: &watch::Sender<Phase>,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
    let missing = if migrate { Missing::Create } else { Missing::Refuse };
    let database = Database::open(&config.database, missing).await?;
    let waiting = Waiting {
        database: &database,
        migrate,
        phase,
    };
    if !waiting.until_ready(&shutdown).await? {
        return Ok(()); // told to stop before there was anything to serve
    }
    let scope = config.dispatch.scope.clone();
    let mut builder = Dispatcher::builder(database.store()).settings(config.dispatch);
    for destination in destinations {
        builder = builder.destination(destination);
    }
    for route in config.routes {
        builder = builder.route(route);
    }
    let dispatcher = builder.build().map_err(refused)?;
    tracing::info!(worker = %dispatcher.worker(), database = %config.database.target, "dispatching");
    phase.send_replace(Phase::Running(Running {
        store: database.store(),
        operate: database.operate(),
        scope,
        worker: dispatcher.worker(),
        counters: dispatcher.counters(),
    }));
    let done = dispatcher.run(shutdown).await;
    tracing::info!(
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

/// Builds every destination's sink, as `file` has them. None is connected to here.
pub(crate) async fn build(
    destinations: &[config::Destination],
    file: &str,
) -> Result<Vec<Destination>, Failure> {
    let mut built = Vec::with_capacity(destinations.len());
    for to in destinations {
        let sink =
            (to.sink.build(&to.name).await).map_err(|error| Failure::usage(to.finding(&error).line(file)))?;
        built.push(Destination {
            name: to.name.clone(),
            sink,
            retry: to.retry.clone(),
            timeout: to.timeout,
            concurrency: to.concurrency,
        });
    }
    Ok(built)
}

/// A setting that the engine refuses.
pub(crate) fn refused(error: SettingsError) -> Failure {
    Failure::usage(error.to_string())
}

/// Waits for the database and its schema.
struct Waiting<'a> {
    database: &'a Database,
    migrate: bool,
    phase: &'a watch::Sender<Phase>,
}

impl Waiting<'_> {
    /// True when the outbox is there at the right version; false when told to stop before.
    async fn until_ready(&self, shutdown: &CancellationToken) -> Result<bool, Failure> {
        let store = self.database.store();
        let (mut wait, longest) = WAITS;
        let mut said = false;
        loop {
            // A look that is given up goes on to its end by itself; nothing is left half done.
            let looked = tokio::select! {
                looked = self.look(&store) => looked,
                () = shutdown.cancelled() => return Ok(false),
            };
            match looked {
                Ok(()) if said => {
                    tracing::info!("the database is there");
                    return Ok(true);
                }
                Ok(()) => return Ok(true),
                Err(StoreError::Unavailable(reason)) => {
                    if !said {
                        tracing::warn!("waiting for the database, which is unavailable: {reason}");
                        said = true;
                    }
                    self.phase
                        .send_replace(Phase::Starting(format!("the database is unavailable: {reason}")));
                }
                Err(error) => return Err(error.into()),
            }
            // Spread, so that many daemons do not all come back at the same moment.
            let pause = wait.mul_f64(0.5 + fastrand::f64() / 2.0);
            tokio::select! {
                () = tokio::time::sleep(pause) => wait = (wait * 2).min(longest),
                () = shutdown.cancelled() => return Ok(false),
            }
        }
    }

    async fn look(&self, store: &Arc<dyn Store>) -> Result<(), StoreError> {
        if self.migrate {
            let done = self.database.migrate().await?;
            if done.from != done.to {
                tracing::info!(from = done.from, to = done.to, "migrated the outbox schema");
            }
        }
        store.check().await
    }
}
