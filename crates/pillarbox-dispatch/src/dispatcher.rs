//! One worker: starts the tasks, and stops them in order.
//!
//! On shutdown the claimer and the sweeper stop. The senders release unsent rows and wait for running attempts. The
//! settler writes their verdicts, and the renewer renews leases until then. At last the sinks are closed. Each task ends
//! when the tasks that feed it have ended.
//!
//! **If we die here**, or the future is dropped, all tasks stop at once. Leases expire, and events that were being sent
//! may be sent again.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use pillarbox::{Sink, Wake};
use pillarbox_store::Store;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::builder::Builder;
use crate::claim::claimer::{Claimer, Signals};
use crate::counters::{Counters, Snapshot};
use crate::destination::Destination;
use crate::find::finder::Finder;
use crate::route::route_table::RouteTable;
use crate::route::router::Router;
use crate::send::handle::{Breakers, DestinationHandle};
use crate::send::sender::Sender;
use crate::settle::settler::{FLUSH, SETTLER, Settler};
use crate::side::family_log::FamilyLog;
use crate::side::heartbeat::Heartbeat;
use crate::side::importer::Importer;
use crate::side::lane_leases::{KeyedBacklogs, LaneLeases};
use crate::side::pruner::Pruner;
use crate::side::quota_counter::QuotaCounter;
use crate::side::renewer::Renewer;
use crate::side::reporter::Reporter;
use crate::side::rerouter::Rerouter;
use crate::side::sampler::Sampler;
use crate::side::sweeper::Sweeper;
use crate::side::unblocker::Unblocker;
use crate::worker::Worker;
use crate::worker::flag::Flag;
use crate::worker::task::Tasks;

/// How long a sink may take to close, and a task to end after the grace time.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// One worker: claims, routes, sends and settles until it is shut down.
pub struct Dispatcher {
    pub(crate) worker: Arc<Worker>,
    pub(crate) routes: Arc<RouteTable>,
    pub(crate) destinations: Vec<Destination>,
    pub(crate) wake: Wake,
    pub(crate) host: String,
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("worker", &self.worker.id)
            .field("settings", &self.worker.settings)
            .field("destinations", &self.destinations)
            .finish_non_exhaustive()
    }
}

impl Dispatcher {
    /// Starts to build a dispatcher.
    pub fn builder(store: Arc<dyn Store>) -> Builder {
        Builder::new(store)
    }

    /// What it has done, at any time.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.worker.counters)
    }

    /// The id of this worker.
    pub fn worker(&self) -> Uuid {
        self.worker.id
    }

    /// Notify it after a commit, and the dispatcher searches at once.
    pub fn wake(&self) -> Wake {
        self.wake.clone()
    }

    /// Runs until `shutdown` is cancelled, then drains: stops claiming, finishes running attempts within the grace time,
    /// releases unsent rows, closes the sinks.
    ///
    /// If the future is dropped, it stops as if the process was killed.
    ///
    /// # Panics
    /// When one of its tasks panicked: a worker without that task must not look healthy.
    pub async fn run(self, shutdown: CancellationToken) -> Snapshot {
        let worker = Arc::clone(&self.worker);
        let sinks: Vec<Arc<dyn Sink>> = self
            .destinations
            .iter()
            .map(|destination| Arc::clone(&destination.sink))
            .collect();
        tracing::info!(worker = %worker.id, destinations = sinks.len(), "dispatcher started");
        let drained = CancellationToken::new();
        let tasks = self.start(&shutdown, &drained);
        let limit = worker.settings.grace + FLUSH + CLOSE_TIMEOUT;
        all_ended(tasks, &shutdown, &drained, limit).await;
        deregister(&worker).await;
        close(sinks).await;
        let snapshot = worker.counters.snapshot();
        let Snapshot {
            claimed,
            delivered,
            retried,
            dead,
            released,
            lost,
            ..
        } = snapshot;
        tracing::info!(worker = %worker.id, claimed, delivered, retried, dead, released, lost, "dispatcher stopped");
        snapshot
    }

    fn start(self, shutdown: &CancellationToken, drained: &CancellationToken) -> Tasks {
        let mut tasks = Tasks::new(Arc::clone(&self.worker));
        let never = CancellationToken::new();
        let worker = || Arc::clone(&self.worker);
        let routes = || Arc::clone(&self.routes);
        let (settler, decided) = unbounded_channel();
        let mut handles = Vec::new();
        let names: Vec<String> = self.destinations.iter().map(|to| to.name.clone()).collect();
        let count = self.destinations.len();
        for destination in self.destinations {
            let name = format!("sender {}", destination.name);
            let (handle, sender) =
                Sender::new(worker(), destination, count, settler.clone(), shutdown.clone());
            handles.push(handle);
            tasks.spawn(name, sender, &never);
        }
        let handles: Arc<[DestinationHandle]> = handles.into();
        let destinations = || Arc::clone(&handles);
        let signals = Arc::new(Signals::default());
        let keyed = Arc::new(KeyedBacklogs::default());
        let has_dead = Arc::new(Flag::default());

        for import in self.worker.store.importers() {
            let name = format!("importer {}", import.table().name);
            let importer = Importer::new(worker(), import, self.wake.clone());
            tasks.spawn(name, importer, shutdown);
        }
        let finder = Finder::new(worker(), destinations(), Arc::clone(&keyed), self.wake);
        tasks.spawn("finder", finder, shutdown);
        let router = Router::new(worker(), routes(), destinations(), settler);
        let claimer = Claimer::new(
            worker(),
            routes(),
            destinations(),
            router,
            Arc::clone(&signals),
            Arc::clone(&has_dead),
        );
        tasks.spawn("claimer", claimer, shutdown);
        tasks.spawn(SETTLER, Settler::new(worker(), decided), &never);

        tasks.spawn("renewer", Renewer::new(worker()), drained);
        let heartbeat = Heartbeat::new(worker(), routes(), Breakers::of(&handles), self.host);
        tasks.spawn("heartbeat", heartbeat, drained);
        let sweeper = Sweeper::new(worker(), destinations(), signals, Arc::clone(&has_dead));
        tasks.spawn("sweeper", sweeper, shutdown);
        tasks.spawn("lane_leases", LaneLeases::new(worker(), keyed), shutdown);
        tasks.spawn("quota_counter", QuotaCounter::new(worker()), shutdown);
        let (sampler, sample_age) = Sampler::new(worker(), names);
        tasks.spawn("sampler", sampler, shutdown);
        tasks.spawn("sample_age", sample_age, shutdown);
        tasks.spawn("pruner", Pruner::new(worker()), shutdown);
        tasks.spawn("reporter", Reporter::new(worker()), shutdown);
        tasks.spawn("family_log", FamilyLog::new(worker()), shutdown);
        tasks.spawn("rerouter", Rerouter::new(worker(), routes()), shutdown);
        let unblocker = Unblocker::new(worker(), routes(), has_dead);
        tasks.spawn("unblocker", unblocker, shutdown);
        tasks
    }
}

/// Waits until all tasks have ended, and after a shutdown at most for `limit`.
async fn all_ended(
    mut tasks: Tasks,
    shutdown: &CancellationToken,
    drained: &CancellationToken,
    limit: Duration,
) {
    let all_ended = async {
        while let Some(name) = tasks.ended().await {
            // The settler is the last that needs leases.
            if *name == *SETTLER {
                drained.cancel();
            }
        }
    };
    let late = {
        let mut all_ended = pin!(all_ended);
        tokio::select! {
            () = &mut all_ended => return,
            () = shutdown.cancelled() => {}
        }
        timeout(limit, all_ended).await.is_err()
    };
    if late {
        // A call to the store hangs. The contract of a store allows dropping it.
        tracing::error!("database did not answer in time, stopping without it");
        tasks.abort().await;
    }
}

/// Deregisters the worker, so that others take its lanes at once.
async fn deregister(worker: &Worker) {
    match timeout(CLOSE_TIMEOUT, worker.store.deregister(worker.id)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "worker not deregistered"),
        Err(_) => tracing::warn!("worker not deregistered: no answer within {CLOSE_TIMEOUT:?}"),
    }
}

async fn close(sinks: Vec<Arc<dyn Sink>>) {
    let closed = sinks.iter().map(|sink| timeout(CLOSE_TIMEOUT, sink.close()));
    let late = join_all(closed).await.into_iter().filter(Result::is_err).count();
    if late > 0 {
        tracing::warn!(sinks = late, "sinks did not close within {CLOSE_TIMEOUT:?}");
    }
}
