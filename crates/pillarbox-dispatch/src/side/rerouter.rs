//! Makes unrouted rows due again when a route matches them now.
//!
//! At the start and every minute: the configuration changes with a restart, and workers may differ in it.
//!
//! **If we die here** the next round of any worker finds the rest.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox_store::store::{Parked, Stub};

use crate::route::route_table::RouteTable;
use crate::side::parked::unpark;
use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// How long between two rounds.
const INTERVAL: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct Rerouter {
    worker: Arc<Worker>,
    routes: Arc<RouteTable>,
    /// The `seq` after which the next round starts.
    after: Option<i64>,
}

impl Rerouter {
    pub(crate) fn new(worker: Arc<Worker>, routes: Arc<RouteTable>) -> Self {
        Self {
            worker,
            routes,
            after: None,
        }
    }
}

impl Task for Rerouter {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let has_route = |stub: &Stub| !self.routes.targets(&stub.event).is_empty();
        let rows = unpark(&self.worker, Parked::Unrouted, &mut self.after, has_route).await?;
        if rows > 0 {
            tracing::info!(rows, "unrouted events have a route now");
        }
        Ok(Next::Wait(INTERVAL))
    }
}
