//! `pillarbox dev`: a shop that anybody can run, to see what an outbox does.
//!
//! One process plays all the parts: a shop that commits orders together with their events, the
//! dispatcher, a receiver that has its bad moments, and a narrator who says what is happening. Every
//! part is the real thing; only the receiver's moods are made up:
//!
//! | order ending in | what happens |
//! |---|---|
//! | 3 | the receiver is busy twice: retried, then delivered |
//! | 4 | the card is declined: the order rolls back, and its event with it |
//! | 5 | the receiver refuses the order for good: dead |
//! | anything else | delivered |
//!
//! **If we die here** the file stays where it is if it was named; a temporary one may be left behind.

mod narrator;
mod receiver;
mod shop;
mod stage;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::retry::Jitter;
use pillarbox::{RetryPolicy, Wake};
use pillarbox_dispatch::{Destination, Dispatcher, OnDead, Policy, Route, Settings};
use pillarbox_sinks::{SinkConfig, log, message, webhook};
use pillarbox_store::Scope;
use pillarbox_store::stores::sqlite::Sqlite;
use tokio::sync::watch;

use self::narrator::{Narrated, say};
use self::receiver::Receiver;
use self::shop::Shop;
use self::stage::Stage;
use crate::config::Http;
use crate::daemon;
use crate::failure::Failure;
use crate::http::{self, App, Phase, Running, Seat, Server};
use crate::signals;

/// Which topic goes where.
const ROUTES: [(&str, &str); 2] = [("orders", "receiver"), ("parcels", "log")];

/// How to play.
#[derive(Debug)]
pub(crate) struct Options {
    /// The shop's file; a temporary one if none.
    pub(crate) file: Option<PathBuf>,
    /// Where the API listens.
    pub(crate) http: Http,
    /// How many orders; no end if none.
    pub(crate) orders: Option<u64>,
    /// Exit after the last of them?
    pub(crate) exit_when_done: bool,
}

/// Plays until a signal comes, or until the orders are done.
#[expect(clippy::disallowed_methods, reason = "the task of the dispatcher")]
pub(crate) async fn run(options: Options) -> Result<(), Failure> {
    let shutdown = signals::shutdown()?;
    let listener = http::bind(&options.http).await?;
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
        seats: vec![Seat {
            database: "shop".to_owned(),
            phase: seen,
        }],
        shutdown: shutdown.clone(),
    };
    let server = Server::start(listener, app)?;
    say(&format!("listening on http://{}", server.address()));
    say(&format!(
        "the shop and its outbox are in {}\n",
        file.path.display()
    ));

    let dispatching = tokio::spawn(dispatcher.run(shutdown.clone()));
    let stage = Stage {
        shop: Shop::open(&file.path.to_string_lossy(), wake).await?,
        operate: Arc::new(store),
        file: file.path.display().to_string(),
        address: server.address(),
    };
    let played = stage
        .play(options.orders, options.exit_when_done, &shutdown)
        .await;
    shutdown.cancel();
    let done = dispatching
        .await
        .map_err(|error| Failure::failed(format!("the dispatcher ended: {error}")))?;
    server.stop().await;
    receiver.stop().await;
    played?;
    say(&format!(
        "\nstopped: {} delivered, {} retried, {} dead",
        done.delivered, done.retried, done.dead
    ));
    Ok(())
}

/// The shop's file, and the folder that goes away with us if it was ours.
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
                    "no temporary folder can be made: {error}; give --file PATH"
                ))
            })?;
        Ok(Self {
            path: folder.path().join("shop.db"),
            _folder: Some(folder),
        })
    }
}

/// Orders go to the receiver, parcels to the log. Waits are exact, so that the narrator can
/// foretell them.
async fn dispatcher(store: &Sqlite, receiver: &Receiver, wake: Wake) -> Result<Dispatcher, Failure> {
    let retry = RetryPolicy::exponential(Duration::from_millis(600), Duration::from_secs(10))
        .jitter(Jitter::None)
        .max_attempts(5);
    let webhook = SinkConfig::Webhook(webhook::Config::new(receiver.url()));
    let log = SinkConfig::Log(log::Config::default());
    let mut builder = Dispatcher::builder(Arc::new(store.clone()))
        .wake(wake)
        .host(daemon::host());
    for (name, config) in [("receiver", webhook), ("log", log)] {
        let sink = config
            .build(name, &message::Config::default())
            .await
            .map_err(|error| Failure::failed(error.to_string()))?;
        builder = builder.destination(Destination {
            name: name.to_owned(),
            sink: Arc::new(Narrated::new(name, sink, retry.clone())),
            policy: Policy {
                retry: retry.clone(),
                timeout: Settings::default().timeout,
                on_dead: OnDead::Block,
                pipelined: false,
            },
            concurrency: config.default_concurrency(),
            rate: None,
            fair_by_tenant: false,
        });
    }
    for (topic, destination) in ROUTES {
        builder = builder.route(Route {
            topic: topic.into(),
            ..Route::to(destination)
        });
    }
    builder.build().map_err(daemon::refused)
}
