//! The HTTP API: liveness, readiness, statistics. One file per resource.
//!
//! It has no authentication yet, so by default it listens on the loopback address only.
//!
//! **If we die here** deliveries are not affected: HTTP changes nothing.

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

/// How long open requests may take after everything else has stopped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of the handlers.
#[derive(Clone)]
pub(crate) struct App {
    /// One for each served database, at least one.
    pub(crate) databases: Vec<DatabaseStatus>,
    /// Cancelled when the daemon stops.
    pub(crate) shutdown: CancellationToken,
}

/// The status of one served database.
#[derive(Clone)]
pub(crate) struct DatabaseStatus {
    pub(crate) database: String,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// The phase of a dispatcher.
#[derive(Clone)]
pub(crate) enum Phase {
    /// Not running yet, and why.
    Starting(String),
    /// Running.
    Running(Running),
}

/// A running dispatcher.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) operate: Arc<dyn Operate>,
    pub(crate) scope: Scope,
    /// The names of the configured destinations.
    pub(crate) destinations: Vec<String>,
    pub(crate) worker: Uuid,
    pub(crate) counters: Arc<Counters>,
}

impl App {
    /// The named database, or the only one; `None` if there are several and none is named.
    fn database(&self, name: Option<&str>) -> Result<Option<&DatabaseStatus>, Problem> {
        let Some(name) = name else {
            return Ok(self.databases.first().filter(|_| self.databases.len() == 1));
        };
        let found = self.databases.iter().find(|status| status.database == name);
        found.map(Some).ok_or_else(|| {
            let names: Vec<&str> = self
                .databases
                .iter()
                .map(|status| status.database.as_str())
                .collect();
            let detail = format!("unknown database `{name}` (served: {})", list(&names));
            Problem::new(StatusCode::NOT_FOUND, detail)
        })
    }
}

impl DatabaseStatus {
    /// The running dispatcher, or why it does not run yet.
    fn running(&self) -> Result<Running, Problem> {
        match &*self.phase.borrow() {
            Phase::Running(running) => Ok(running.clone()),
            Phase::Starting(reason) => Err(Problem::unavailable(reason)),
        }
    }
}

/// All resources. Unknown paths are answered with problem+json too.
fn router(app: App) -> Router {
    Router::new()
        .merge(health::router())
        .merge(stats::router())
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .with_state(app)
}

/// Opens the listening socket.
pub(crate) async fn bind(http: &Http) -> Result<TcpListener, Failure> {
    http.check().map_err(Failure::usage)?;
    TcpListener::bind(http.listen).await.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                " (another process listens there: choose another port with --listen)"
            }
            std::io::ErrorKind::PermissionDenied => " (choose a port above 1023 with --listen)",
            _ => "",
        };
        Failure::failed(format!("cannot listen on {}: {error}{hint}", http.listen))
    })
}

/// The server and its task.
pub(crate) struct Server {
    task: JoinHandle<std::io::Result<()>>,
    stop: CancellationToken,
    address: SocketAddr,
}

impl Server {
    /// Starts serving.
    #[expect(clippy::disallowed_methods, reason = "the task of the HTTP server")]
    pub(crate) fn start(listener: TcpListener, app: App) -> Result<Self, Failure> {
        let address = listener.local_addr().map_err(|error| {
            Failure::failed(format!(
                "cannot read the address of the listening socket: {error}"
            ))
        })?;
        let stop = CancellationToken::new();
        let server =
            axum::serve(listener, router(app)).with_graceful_shutdown(stop.clone().cancelled_owned());
        let task = tokio::spawn(server.into_future());
        Ok(Self { task, stop, address })
    }

    /// Where it listens, with the actual port if port 0 was configured.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops. Open connections do not delay the exit.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        match tokio::time::timeout(CLOSE_TIMEOUT, &mut self.task).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "HTTP server failed"),
            Ok(Err(error)) => tracing::warn!(%error, "HTTP server panicked"),
            Err(_) => self.task.abort(),
        }
    }
}
