//! One worker: starts the tasks, and stops them in order.
//!
//! On shutdown the claimer and the sweeper stop; each destination's lanes give back what was never
//! sent and wait for what is under target; the settler writes what they said; the renewer renews until
//! then; the sinks are closed. Nobody is told to stop twice: a task ends when those who feed it have.
//!
//! **If we die here**, or the future is dropped, everything stops where it is: leases end, and what
//! was under target may be sent again.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use pillarbox::{Clock, Sink, SystemClock, Wake};
use pillarbox_store::Store;
use pillarbox_store::store::UNROUTED;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use uuid::Uuid;

use crate::claim::claimer::{Claimer, Signals};
use crate::claim::suspects::Asked;
use crate::counters::{Counters, Snapshot};
use crate::find::backlogs::Backlogs;
use crate::find::finder::Finder;
use crate::policy::{Policy, Rate};
use crate::route::route_table::{Route, RouteTable};
use crate::route::router::Router;
use crate::send::backpressure::Crowd;
use crate::send::breaker::Gate;
use crate::send::handle::{Entrance, Queue};
use crate::send::sender::{Lanes, Station};
use crate::settings::{Settings, SettingsError};
use crate::settle::settler::{FLUSH, SETTLER, Settler};
use crate::side::heartbeat::Heartbeat;
use crate::side::importer::Importer;
use crate::side::lane_leases::{LaneLeases, Namespaces};
use crate::side::renewer::Renewer;
use crate::side::sweeper::Sweeper;
use crate::side::unblocker::Usher;
use crate::worker::Worker;
use crate::worker::in_flight::InFlight;
use crate::worker::store_health::StoreHealth;
use crate::worker::task::{self, Task};

/// How long a sink may take to say goodbye, and a task to end when its time is over.
const GOODBYE: Duration = Duration::from_secs(5);
/// With fewer attempts a crash can kill a neighbour: the second comes in a group, the third alone.
const FEWEST_ATTEMPTS: u32 = 3;

/// One configured sink.
#[derive(Clone)]
pub struct Destination {
    /// What routes and people call it.
    pub name: String,
    /// Delivers.
    pub sink: Arc<dyn Sink>,
    /// How rows are treated, unless their route says otherwise.
    pub policy: Policy,
    /// How many attempts may be under target at once.
    pub concurrency: usize,
    /// How many may begin in a while, if that is limited. Each worker has its own count.
    pub rate: Option<Rate>,
    /// Does every tenant get its turn? Otherwise whoever came first.
    pub fair_by_tenant: bool,
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination")
            .field("name", &self.name)
            .field("policy", &self.policy)
            .field("concurrency", &self.concurrency)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

/// Puts a [`Dispatcher`] together.
pub struct Builder {
    store: Arc<dyn Store>,
    settings: Settings,
    destinations: Vec<Destination>,
    routes: Vec<Route>,
    wake: Wake,
    clock: Arc<dyn Clock>,
    worker: Option<Uuid>,
    host: String,
}

impl Builder {
    /// Sets how it works.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Adds a destination.
    #[must_use]
    pub fn destination(mut self, destination: Destination) -> Self {
        self.destinations.push(destination);
        self
    }

    /// Adds a route. An event goes wherever one leads.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Sets the bell that is rung after a commit in this process.
    #[must_use]
    pub fn wake(mut self, wake: Wake) -> Self {
        self.wake = wake;
        self
    }

    /// Sets where time comes from.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the worker's id, which must be new for every start. Random unless said otherwise.
    #[must_use]
    pub fn worker(mut self, id: Uuid) -> Self {
        self.worker = Some(id);
        self
    }

    /// Sets the name of the machine, for people who look at the list of workers.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }

    /// The dispatcher, if it can work.
    ///
    /// # Errors
    /// A setting, a destination or a route that cannot work, with a sentence.
    pub fn build(self) -> Result<Dispatcher, SettingsError> {
        self.settings.validate()?;
        self.validate_destinations()?;
        self.validate_routes()?;
        let policies = self
            .destinations
            .iter()
            .map(|to| (to.name.clone(), to.policy.clone()));
        let routes = RouteTable::new(policies.collect(), self.routes).map_err(|name| {
            let message = format!("a route leads to \"{name}\", and there is no such destination");
            SettingsError::new("routes", message)
        })?;
        let worker = Worker {
            id: self.worker.unwrap_or_else(Uuid::new_v4),
            settings: self.settings,
            store: self.store,
            clock: self.clock,
            counters: Arc::default(),
            store_health: StoreHealth::default(),
            in_flight: InFlight::default(),
            backlogs: Backlogs::default(),
            gone: Mutex::default(),
        };
        Ok(Dispatcher {
            worker: Arc::new(worker),
            routes: Arc::new(routes),
            destinations: self.destinations,
            wake: self.wake,
            host: self.host,
        })
    }

    fn validate_destinations(&self) -> Result<(), SettingsError> {
        if self.destinations.is_empty() {
            return Err(SettingsError::new("destinations", "at least one is needed"));
        }
        for (n, destination) in self.destinations.iter().enumerate() {
            let name = &destination.name;
            if self.destinations[..n].iter().any(|other| other.name == *name) {
                let message = format!("there are two called \"{name}\"; give one another name");
                return Err(SettingsError::new("destinations", message));
            }
            if name.is_empty() || name == UNROUTED {
                let message = format!("\"{name}\" cannot be a destination's name; choose another");
                return Err(SettingsError::new("destinations", message));
            }
            if destination.concurrency == 0 {
                let message = format!("must be at least 1 for the destination \"{name}\"");
                return Err(SettingsError::new("concurrency", message));
            }
            let sound = |rate: Rate| rate.per_second.is_finite() && rate.per_second > 0.0 && rate.burst > 0;
            if destination.rate.is_some_and(|rate| !sound(rate)) {
                let message = format!("must let something through, for the destination \"{name}\"");
                return Err(SettingsError::new("rate", message));
            }
            self.validate_policy(destination, &destination.policy)?;
        }
        Ok(())
    }

    fn validate_routes(&self) -> Result<(), SettingsError> {
        for route in &self.routes {
            let to = |destination: &&Destination| destination.name == route.destination;
            if let Some(destination) = self.destinations.iter().find(to) {
                self.validate_policy(destination, &destination.policy.with(&route.overrides))?;
            }
        }
        Ok(())
    }

    fn validate_policy(&self, destination: &Destination, policy: &Policy) -> Result<(), SettingsError> {
        let name = &destination.name;
        self.settings.validate_timeout(policy.timeout).map_err(|error| {
            let message = format!("for the destination \"{name}\": {}", error.message);
            SettingsError::new(error.field, message)
        })?;
        if policy.pipelined && !destination.sink.keeps_order() {
            let message = format!("the sink of \"{name}\" does not keep the order in which it is called");
            return Err(SettingsError::new("pipelined", message));
        }
        if policy.retry.limit().is_some_and(|limit| limit < FEWEST_ATTEMPTS) {
            tracing::warn!(
                destination = name,
                "fewer than three attempts: an event may end dead because of a crash that another caused"
            );
        }
        Ok(())
    }
}

/// One worker. See the [module](self).
pub struct Dispatcher {
    worker: Arc<Worker>,
    routes: Arc<RouteTable>,
    destinations: Vec<Destination>,
    wake: Wake,
    host: String,
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
    /// Begins to put one together.
    pub fn builder(store: Arc<dyn Store>) -> Builder {
        Builder {
            store,
            settings: Settings::default(),
            destinations: Vec::new(),
            routes: Vec::new(),
            wake: Wake::default(),
            clock: Arc::new(SystemClock),
            worker: None,
            host: "localhost".to_owned(),
        }
    }

    /// What it has done, at any time.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.worker.counters)
    }

    /// Who it is.
    pub fn worker(&self) -> Uuid {
        self.worker.id
    }

    /// Runs until `shutdown` is cancelled, then drains: stops claiming, finishes what is under target
    /// within the grace time, gives back what was never sent, closes the sinks.
    ///
    /// Dropped, it stops where it is, as if the process had been killed.
    ///
    /// # Panics
    /// When one of its own tasks did: a worker of which a part is missing must not look well.
    pub async fn run(self, shutdown: CancellationToken) -> Snapshot {
        let worker = Arc::clone(&self.worker);
        let sinks: Vec<Arc<dyn Sink>> = self
            .destinations
            .iter()
            .map(|destination| Arc::clone(&destination.sink))
            .collect();
        tracing::info!(worker = %worker.id, destinations = sinks.len(), "the dispatcher starts");
        let drained = CancellationToken::new();
        let crew = self.start(&shutdown, &drained);
        let limit = worker.settings.grace + FLUSH + GOODBYE;
        oversee(crew, &shutdown, &drained, limit).await;
        deregister(&worker).await;
        close(sinks).await;
        let snapshot = worker.counters.snapshot();
        tracing::info!(worker = %worker.id, ?snapshot, "the dispatcher has stopped");
        snapshot
    }

    fn start(self, shutdown: &CancellationToken, drained: &CancellationToken) -> JoinSet<&'static str> {
        let mut crew = JoinSet::new();
        let never = CancellationToken::new();
        let (settler, settled) = unbounded_channel();
        let mut entrances = Vec::new();
        let destinations = self.destinations.len();
        for destination in self.destinations {
            let (rows, inbox) = unbounded_channel();
            let gate = Gate::new(destination.name.clone());
            let crowd = Crowd::new(self.worker.settings.max_in_flight, destinations);
            let entrance = Entrance {
                name: destination.name.clone(),
                sign: gate.sign(),
                crowd: crowd.notice(),
                queue: Queue::default(),
                capacity: capacity(&destination, &self.worker.settings, destinations),
                fair: destination.fair_by_tenant,
                rows,
            };
            let station = Station {
                gate,
                crowd,
                queue: entrance.queue.clone(),
                inbox,
            };
            let lanes = Lanes::new(
                Arc::clone(&self.worker),
                destination,
                station,
                settler.clone(),
                shutdown.clone(),
            );
            entrances.push(entrance);
            spawn(&mut crew, "lanes", lanes, &never);
        }
        let entrances: Arc<[Entrance]> = entrances.into();
        let worker = || Arc::clone(&self.worker);
        let (routes, doors) = (|| Arc::clone(&self.routes), || Arc::clone(&entrances));
        let signals = Arc::new(Signals::default());
        let namespaces = Arc::new(Namespaces::default());
        let asked = Arc::new(Asked::default());
        let router = Router::new(worker(), routes(), doors(), settler);
        let claimer = Claimer::new(worker(), routes(), doors(), router, Arc::clone(&signals));
        for from in self.worker.store.importing() {
            let importer = Importer::new(worker(), from, self.wake.clone());
            spawn(&mut crew, "importer", importer, shutdown);
        }
        let finder = Finder::new(worker(), doors(), Arc::clone(&namespaces), self.wake);
        let sweeper = Sweeper::new(worker(), doors(), signals, Arc::clone(&asked));
        spawn(&mut crew, "claimer", claimer, shutdown);
        spawn(&mut crew, "finder", finder, shutdown);
        spawn(
            &mut crew,
            "lane_leases",
            LaneLeases::new(worker(), namespaces),
            shutdown,
        );
        spawn(&mut crew, SETTLER, Settler::new(worker(), settled), &never);
        spawn(&mut crew, "renewer", Renewer::new(worker()), drained);
        spawn(&mut crew, "sweeper", sweeper, shutdown);
        spawn(
            &mut crew,
            "usher",
            Usher::new(worker(), routes(), asked),
            shutdown,
        );
        spawn(
            &mut crew,
            "heartbeat",
            Heartbeat::new(worker(), self.host),
            drained,
        );
        crew
    }
}

/// How many rows may wait for a destination: twice what it sends at once or twice its part of the room, and where
/// its rate is limited no more than it sends in a second.
fn capacity(destination: &Destination, settings: &Settings, destinations: usize) -> usize {
    let part = (settings.max_in_flight / destinations).max(destination.concurrency);
    let most = part.saturating_mul(2).clamp(1, settings.max_in_flight.max(1));
    match destination.rate {
        None => most,
        Some(rate) => {
            // A float that is too large for the type is cut to its largest value.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let second = rate.per_second.ceil() as usize;
            most.min(second.max(rate.burst as usize).max(1))
        }
    }
}

/// Says goodbye to the store: our lanes are free at once.
async fn deregister(worker: &Worker) {
    let goodbye = worker.store.deregister(worker.id);
    match tokio::time::timeout(GOODBYE, goodbye).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the store was not told that this worker leaves"),
        Err(_) => tracing::warn!("the store did not answer a goodbye within {GOODBYE:?}"),
    }
}

fn spawn(
    crew: &mut JoinSet<&'static str>,
    name: &'static str,
    task: impl Task + 'static,
    stop: &CancellationToken,
) {
    let run = task::run(task, stop.clone());
    let named = async move {
        run.await;
        name
    };
    crew.spawn(named.instrument(tracing::debug_span!("task", name)));
}

/// Waits for all tasks to end, and after a shutdown no longer than `limit`.
async fn oversee(
    mut crew: JoinSet<&'static str>,
    shutdown: &CancellationToken,
    drained: &CancellationToken,
    limit: Duration,
) {
    let too_late = async {
        shutdown.cancelled().await;
        tokio::time::sleep(limit).await;
    };
    tokio::pin!(too_late);
    loop {
        tokio::select! {
            ended = crew.join_next() => match ended.map(name) {
                None => return,
                // The last to have something to do: nothing is held any more.
                Some(SETTLER) => drained.cancel(),
                Some(_) => {}
            },
            () = &mut too_late => {
                // A store that does not answer at all. Its contract allows to be dropped.
                tracing::error!("the store did not answer in time; leaving without it");
                return crew.shutdown().await;
            }
        }
    }
}

fn name(ended: Result<&'static str, JoinError>) -> &'static str {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(name) => name,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(cancelled)) => unreachable!("nobody cancels a task: {cancelled}"),
    }
}

async fn close(sinks: Vec<Arc<dyn Sink>>) {
    let goodbyes = sinks
        .iter()
        .map(|sink| tokio::time::timeout(GOODBYE, sink.close()));
    let late = join_all(goodbyes)
        .await
        .into_iter()
        .filter(Result::is_err)
        .count();
    if late > 0 {
        tracing::warn!(sinks = late, "sinks did not close within {GOODBYE:?}");
    }
}
