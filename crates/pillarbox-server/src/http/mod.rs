//! The HTTP API: liveness, readiness, metrics, statistics. One file per resource.
//!
//! It has no authentication yet, so by default it listens on the loopback address only. `ops_listen` has probes and metrics
//! alone, for other machines.
//!
//! **If we die here** deliveries are not affected: HTTP changes nothing.

mod guard;
mod health;
mod listener;
mod metrics;
mod problem;
mod stats;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use metrics_exporter_prometheus::PrometheusHandle;
use pillarbox_dispatch::Counters;
use pillarbox_store::{Operate, Scope, Store};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::guard::Hosts;
use self::listener::Limits;
use self::problem::{Code, Problem};
use crate::config::Http;
use crate::failure::Failure;

/// How long open requests may take after everything else has stopped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of the handlers.
#[derive(Clone)]
pub(crate) struct App {
    /// One for each served database, at least one.
    pub(crate) databases: Vec<DatabaseStatus>,
    pub(crate) metrics: PrometheusHandle,
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
    /// Not connected yet.
    Connecting,
    /// The database is unavailable. The log has the reason.
    Unavailable,
    /// Running.
    Running(Running),
}

/// A running dispatcher.
#[derive(Clone)]
pub(crate) struct Running {
    /// With connections of its own: a request never waits for the dispatcher's, nor the dispatcher for a request's.
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
        found.map(Some).ok_or(Code::UnknownDatabase.into())
    }
}

impl DatabaseStatus {
    /// The running dispatcher, or why it does not run yet.
    fn running(&self) -> Result<Running, Problem> {
        match &*self.phase.borrow() {
            Phase::Running(running) => Ok(running.clone()),
            Phase::Connecting => Err(Code::Connecting.into()),
            Phase::Unavailable => Err(Code::DatabaseUnavailable.into()),
        }
    }
}

/// All resources. Unknown paths are answered with problem+json too.
fn router(app: App, hosts: Hosts) -> Router {
    Router::new()
        .merge(health::router())
        .merge(metrics::router())
        .merge(stats::router())
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .with_state(app)
        .layer(DefaultBodyLimit::max(guard::MAX_BODY))
        .layer(from_fn_with_state(hosts, guard::check))
}

/// Probes and metrics for other machines.
fn ops_router(app: App) -> Router {
    health::ops_router()
        .merge(metrics::router())
        .with_state(app)
        .layer(from_fn(guard::bounded))
}

/// The listening sockets.
pub(crate) struct Sockets {
    api: TcpListener,
    ops: Option<TcpListener>,
    hosts: Hosts,
}

/// Opens the listening sockets.
pub(crate) async fn bind(http: &Http) -> Result<Sockets, Failure> {
    http.check()
        .and_then(|()| http.check_ops())
        .map_err(Failure::usage)?;
    Ok(Sockets {
        api: open(http.listen).await?,
        ops: match http.ops_listen {
            Some(address) => Some(open(address).await?),
            None => None,
        },
        hosts: http.hosts.clone().into(),
    })
}

async fn open(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                " (another process listens there: choose another port with --listen or `ops_listen`)"
            }
            std::io::ErrorKind::PermissionDenied => {
                " (choose a port above 1023 with --listen or `ops_listen`)"
            }
            _ => "",
        };
        Failure::failed(format!("cannot listen on {address}: {error}{hint}"))
    })
}

/// The servers and their tasks.
pub(crate) struct Server {
    tasks: JoinSet<()>,
    stop: CancellationToken,
    address: SocketAddr,
    ops_address: Option<SocketAddr>,
}

impl Server {
    /// Starts serving.
    pub(crate) fn start(sockets: Sockets, app: App) -> Result<Self, Failure> {
        let address = address_of(&sockets.api)?;
        let ops_address = sockets.ops.as_ref().map(address_of).transpose()?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        if let Some(socket) = sockets.ops {
            let router = ops_router(app.clone());
            tasks.spawn(listener::serve(socket, router, Limits::of_probes(), stop.clone()));
        }
        let router = router(app, sockets.hosts);
        tasks.spawn(listener::serve(
            sockets.api,
            router,
            Limits::default(),
            stop.clone(),
        ));
        Ok(Self {
            tasks,
            stop,
            address,
            ops_address,
        })
    }

    /// Where it listens, with the actual port if port 0 was configured.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the probes for other machines are.
    pub(crate) fn ops_address(&self) -> Option<SocketAddr> {
        self.ops_address
    }

    /// Stops. Open connections do not delay the exit.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        let ended = async {
            while let Some(ended) = self.tasks.join_next().await {
                if let Err(error) = ended {
                    tracing::warn!(%error, "HTTP server panicked");
                }
            }
        };
        // What is still open ends with the set.
        tokio::time::timeout(CLOSE_TIMEOUT, ended).await.ok();
    }
}

fn address_of(socket: &TcpListener) -> Result<SocketAddr, Failure> {
    socket.local_addr().map_err(|error| {
        Failure::failed(format!(
            "cannot read the address of the listening socket: {error}"
        ))
    })
}
