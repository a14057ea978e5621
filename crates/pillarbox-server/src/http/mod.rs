//! The HTTP side: is the process alive, is it ready, how many events are where. One file per resource.
//!
//! There is no authentication yet, so it listens on this machine only unless told otherwise.
//!
//! **If we die here** deliveries are not concerned: nothing is changed through HTTP.

mod health;
mod problem;
mod stats;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use pillarbox_dispatch::Counters;
use pillarbox_store::{Operate, Scope, Store};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::problem::Problem;
use crate::config::{Http, list};
use crate::failure::Failure;

/// How long a request may still take when everything else has stopped.
const GOODBYE: Duration = Duration::from_secs(1);

/// What the handlers look at.
#[derive(Clone)]
pub(crate) struct App {
    /// One for each database, at least one.
    pub(crate) seats: Vec<Seat>,
    /// Cancelled when the daemon is to stop.
    pub(crate) shutdown: CancellationToken,
}

/// One database, and how far its dispatcher is.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) database: String,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// How far a dispatcher is.
#[derive(Clone)]
pub(crate) enum Phase {
    /// Not there yet, and why.
    Starting(String),
    /// Serving.
    Running(Running),
}

/// What there is to ask once the dispatcher runs.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) operate: Arc<dyn Operate>,
    pub(crate) scope: Scope,
    /// The names of those that are configured.
    pub(crate) destinations: Vec<String>,
    pub(crate) worker: Uuid,
    pub(crate) counters: Arc<Counters>,
}

impl App {
    /// The database that is asked for, or the only one; `None` for all of several.
    fn seat(&self, name: Option<&str>) -> Result<Option<&Seat>, Problem> {
        let Some(name) = name else {
            return Ok(self.seats.first().filter(|_| self.seats.len() == 1));
        };
        let found = self.seats.iter().find(|seat| seat.database == name);
        found.map(Some).ok_or_else(|| {
            let names: Vec<&str> = self.seats.iter().map(|seat| seat.database.as_str()).collect();
            let detail = format!("there is no database `{name}`; there is {}", list(&names));
            Problem::new(StatusCode::NOT_FOUND, detail)
        })
    }
}

impl Seat {
    /// What runs, or why nothing does yet.
    fn running(&self) -> Result<Running, Problem> {
        match &*self.phase.borrow() {
            Phase::Running(running) => Ok(running.clone()),
            Phase::Starting(reason) => Err(Problem::unavailable(reason)),
        }
    }
}

/// All resources. Whatever is not there is told so as problem+json too.
fn router(app: App) -> Router {
    Router::new()
        .merge(health::router())
        .merge(stats::router())
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .with_state(app)
}

/// The listening socket, before anything is served.
pub(crate) async fn bind(http: &Http) -> Result<TcpListener, Failure> {
    http.check().map_err(Failure::usage)?;
    TcpListener::bind(http.listen).await.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "; something else listens there: choose another port with --listen"
            }
            std::io::ErrorKind::PermissionDenied => "; choose a port above 1023 with --listen",
            _ => "",
        };
        Failure::failed(format!("cannot listen on {}: {error}{hint}", http.listen))
    })
}

/// The server, and the task that it runs in.
pub(crate) struct Server {
    task: JoinHandle<std::io::Result<()>>,
    stop: CancellationToken,
    address: SocketAddr,
}

impl Server {
    /// Starts to serve.
    #[expect(clippy::disallowed_methods, reason = "the task of the HTTP server")]
    pub(crate) fn start(listener: TcpListener, app: App) -> Result<Self, Failure> {
        let address = listener
            .local_addr()
            .map_err(|error| Failure::failed(format!("the listening socket has no address: {error}")))?;
        let stop = CancellationToken::new();
        let server =
            axum::serve(listener, router(app)).with_graceful_shutdown(stop.clone().cancelled_owned());
        let task = tokio::spawn(server.into_future());
        Ok(Self { task, stop, address })
    }

    /// Where it listens; the port that was chosen, if none was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops. A connection that somebody keeps open does not hold the exit up.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        match tokio::time::timeout(GOODBYE, &mut self.task).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the HTTP server ended with an error"),
            Ok(Err(error)) => tracing::warn!(%error, "the HTTP server panicked"),
            Err(_) => self.task.abort(),
        }
    }
}
