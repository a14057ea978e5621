//! Builds a dispatcher, and rejects impossible configurations.

use std::sync::{Arc, Mutex};

use pillarbox::{Clock, SystemClock, Wake};
use pillarbox_store::Store;
use pillarbox_store::archive::Archive;
use pillarbox_store::store::UNROUTED;
use uuid::Uuid;

use crate::destination::Destination;
use crate::dispatcher::Dispatcher;
use crate::find::backlogs::Backlogs;
use crate::metrics::Metrics;
use crate::policy::{Policy, Rate};
use crate::route::route_table::{Route, RouteTable};
use crate::settings::{Settings, SettingsError};
use crate::side::family_log::DeadEvents;
use crate::worker::Worker;
use crate::worker::in_flight::InFlight;
use crate::worker::store_health::StoreHealth;

/// With fewer attempts a crash can make innocent rows dead: the second attempt is in a group, the third alone.
const FEWEST_ATTEMPTS: u32 = 3;

/// Builds a [`Dispatcher`]. Made by [`Dispatcher::builder`].
pub struct Builder {
    store: Arc<dyn Store>,
    settings: Settings,
    destinations: Vec<Destination>,
    routes: Vec<Route>,
    wake: Wake,
    clock: Arc<dyn Clock>,
    worker: Option<Uuid>,
    host: String,
    database: String,
    archive: Option<Arc<dyn Archive>>,
}

impl Builder {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            settings: Settings::default(),
            destinations: Vec::new(),
            routes: Vec::new(),
            wake: Wake::default(),
            clock: Arc::new(SystemClock),
            worker: None,
            host: "localhost".to_owned(),
            database: "default".to_owned(),
            archive: None,
        }
    }

    /// Sets how the dispatcher works.
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

    /// Adds a route. An event goes to the destination of every route that matches.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Sets the wake that the application notifies after a commit. Without it, take [`Dispatcher::wake`].
    #[must_use]
    pub fn wake(mut self, wake: Wake) -> Self {
        self.wake = wake;
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the worker's id, which must be new for every start. Random by default.
    #[must_use]
    pub fn worker(mut self, id: Uuid) -> Self {
        self.worker = Some(id);
        self
    }

    /// Sets the name of the machine, which the list of workers shows.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }

    /// Sets the name of the database, which is a label of the metrics. `default` by default.
    #[must_use]
    pub fn database(mut self, name: impl Into<String>) -> Self {
        self.database = name.into();
        self
    }

    /// Sets where rows of events go before retention deletes them. By default they are deleted without a copy.
    #[must_use]
    pub fn archive(mut self, archive: Arc<dyn Archive>) -> Self {
        self.archive = Some(archive);
        self
    }

    /// Builds the dispatcher, and registers its metrics with the recorder of the `metrics` crate that is installed now.
    ///
    /// # Errors
    /// The first impossible setting, destination or route.
    pub fn build(self) -> Result<Dispatcher, SettingsError> {
        self.settings.validate()?;
        self.validate_destinations()?;
        self.validate_routes()?;
        let policies = self
            .destinations
            .iter()
            .map(|to| (to.name.clone(), to.policy.clone()));
        let routes = RouteTable::new(policies.collect(), self.routes).map_err(|name| {
            let message = format!("unknown destination \"{name}\" (add it, or change the route)");
            SettingsError::new("routes", message)
        })?;
        let names: Vec<String> = self.destinations.iter().map(|to| to.name.clone()).collect();
        let tables = self.store.importers().into_iter();
        let tables: Vec<String> = tables.map(|import| import.table().name.clone()).collect();
        let metrics = Metrics::new(&self.database, &names, &tables);
        let worker = Worker {
            id: self.worker.unwrap_or_else(Uuid::new_v4),
            settings: self.settings,
            store: self.store,
            clock: self.clock,
            counters: Arc::default(),
            store_health: StoreHealth::new(metrics.database_up.clone()),
            metrics,
            in_flight: InFlight::default(),
            backlogs: Backlogs::default(),
            dead_events: DeadEvents::default(),
            archive: self.archive,
            to_disable: Mutex::default(),
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
            return Err(SettingsError::new("destinations", "must have at least one"));
        }
        for (n, destination) in self.destinations.iter().enumerate() {
            let name = &destination.name;
            if self.destinations[..n].iter().any(|other| other.name == *name) {
                let message = format!("two have the name \"{name}\" (rename one of them)");
                return Err(SettingsError::new("destinations", message));
            }
            if name.is_empty() || name == UNROUTED {
                let message = format!("the name \"{name}\" is reserved (choose another)");
                return Err(SettingsError::new("destinations", message));
            }
            if destination.concurrency == 0 {
                let message = format!("must be at least 1 for the destination \"{name}\"");
                return Err(SettingsError::new("concurrency", message));
            }
            let is_valid =
                |rate: Rate| rate.per_second.is_finite() && rate.per_second > 0.0 && rate.burst > 0;
            if destination.rate.is_some_and(|rate| !is_valid(rate)) {
                let message = format!("must be above zero for the destination \"{name}\"");
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
                "fewer than three attempts: a crash that another event causes may make an event dead"
            );
        }
        Ok(())
    }
}
