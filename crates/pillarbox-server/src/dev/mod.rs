//! `pillarbox dev`: a sample shop that shows what an outbox does.
//!
//! One process runs everything: a shop that commits orders with their events, the dispatcher, and a receiver that sometimes
//! fails. Every attempt is printed. Only the receiver's failures are staged:
//!
//! | order ends in | what happens |
//! |---|---|
//! | 3 | the receiver is busy twice: the event is retried, then delivered |
//! | 4 | the card is declined: the order rolls back together with its event |
//! | 5 | the receiver rejects the order: the event is dead |
//! | anything else | delivered |
//!
//! **If we die here** the file stays. A temporary file may be left behind.

mod receiver;
mod report;
mod scenario;
mod shop;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::Jitter;
use pillarbox::{RetryPolicy, Wake};
use pillarbox_dispatch::{Destination, Dispatcher, Policy, Route};
use pillarbox_sinks::{SinkConfig, log, message, webhook};
use pillarbox_store::Actor;
use pillarbox_store::Scope;
use pillarbox_store::actor::{Kind, Permission, Reach};
use pillarbox_store::stores::sqlite::Sqlite;
use tokio::sync::watch;

use self::receiver::Receiver;
use self::report::{ReportingSink, print};
use self::scenario::Scenario;
use self::shop::Shop;
use crate::config::Http;
use crate::daemon;
use crate::exporter::Exporter;
use crate::failure::Failure;
use crate::http::{self, App, DatabaseStatus, Phase, Running, Server};
use crate::signals;

/// Topics and their destinations.
const ROUTES: [(&str, &str); 2] = [("orders", "receiver"), ("parcels", "log")];

/// The options of `dev`.
#[derive(Debug)]
pub(crate) struct Options {
    /// The shop's file; None for a temporary one.
    pub(crate) file: Option<PathBuf>,
    /// Where the API listens.
    pub(crate) http: Http,
    /// The number of orders; None for no limit.
    pub(crate) orders: Option<u64>,
    /// Exit after the last order?
    pub(crate) exit_when_done: bool,
}

/// Runs until a signal arrives or the orders are done.
#[expect(clippy::disallowed_methods, reason = "the task of the dispatcher")]
pub(crate) async fn run(options: Options) -> Result<(), Failure> {
    let shutdown = signals::shutdown()?;
    let exporter = Exporter::install()?;
    let sockets = http::bind(&options.http).await?;
    let file = File::choose(options.file.clone())?;
    let store = Sqlite::create(&file.path).await?;
    store.migrate().await?;
    let receiver = Receiver::start().await?;
    let wake = Wake::default();
    let dispatcher = dispatcher(&store, &receiver, wake.clone()).await?;
    let running = Running {
        store: Arc::new(store.clone()),
        operate: Arc::new(store.clone()),
        scope: Scope::All,
        destinations: ROUTES.map(|(_, to)| to.to_owned()).into(),
        worker: dispatcher.worker(),
        counters: dispatcher.counters(),
    };
    let (_phase, seen) = watch::channel(Phase::Running(running));
    let app = App {
        databases: vec![DatabaseStatus {
            database: "shop".to_owned(),
            phase: seen,
        }],
        metrics: exporter.handle(),
        shutdown: shutdown.clone(),
    };
    let server = Server::start(sockets, app)?;
    print(&format!("listening on http://{}", server.address()));
    print(&format!(
        "the shop and its outbox are in {}\n",
        file.path.display()
    ));

    let dispatching = tokio::spawn(dispatcher.run(shutdown.clone()));
    let scenario = Scenario {
        shop: Shop::open(&file.path.to_string_lossy(), wake).await?,
        operate: Arc::new(store),
        actor: Actor::new(Kind::Service, "dev", Reach::System, [Permission::Read]),
        file: file.path.display().to_string(),
        address: server.address(),
    };
    let played = scenario
        .run(options.orders, options.exit_when_done, &shutdown)
        .await;
    shutdown.cancel();
    let done = dispatching
        .await
        .map_err(|error| Failure::failed(format!("dispatcher failed: {error}")))?;
    server.stop().await;
    receiver.stop().await;
    played?;
    print(&format!(
        "\nstopped: {} delivered, {} retried, {} dead",
        done.delivered, done.retried, done.dead
    ));
    Ok(())
}

/// The shop's file, and its temporary folder, which is removed at the end.
struct File {
    path: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl File {
    fn choose(named: Option<PathBuf>) -> Result<Self, Failure> {
        if let Some(path) = named {
            return Ok(Self { path, _folder: None });
        }
        let folder = tempfile::Builder::new()
            .prefix("pillarbox-dev-")
            .tempdir()
            .map_err(|error| {
                Failure::failed(format!(
                    "cannot create a temporary folder: {error} (use --file PATH)"
                ))
            })?;
        Ok(Self {
            path: folder.path().join("shop.db"),
            _folder: Some(folder),
        })
    }
}

/// Orders go to the receiver, parcels to the log. Without jitter, so that the printed waits are exact.
async fn dispatcher(store: &Sqlite, receiver: &Receiver, wake: Wake) -> Result<Dispatcher, Failure> {
    let retry = RetryPolicy::exponential(Duration::from_millis(600), Duration::from_secs(10))
        .jitter(Jitter::None)
        .max_attempts(5);
    let webhook = SinkConfig::Webhook(webhook::Config::new(receiver.url()));
    let log = SinkConfig::Log(log::Config::default());
    let mut builder = Dispatcher::builder(Arc::new(store.clone()))
        .wake(wake)
        .database("shop")
        .host(daemon::host());
    for (name, config) in [("receiver", webhook), ("log", log)] {
        let sink = config
            .build(name, &message::Config::default())
            .await
            .map_err(|error| Failure::failed(error.to_string()))?;
        let destination = Destination::new(name, ReportingSink::new(name, sink, retry.clone()))
            .policy(Policy::default().retry(retry.clone()))
            .concurrency(config.default_concurrency());
        builder = builder.destination(destination);
    }
    for (topic, destination) in ROUTES {
        builder = builder.route(Route {
            topic: topic.into(),
            ..Route::to(destination)
        });
    }
    builder.build().map_err(daemon::invalid_settings)
}
