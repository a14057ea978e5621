//! Unblocks keys whose head is dead although their policy is [`OnDead::Continue`].
//!
//! Such rows come from a sweep and from a claim of unreadable rows, which do not know policies, and from changes of the
//! configuration. So the unblocker runs at the start, every minute, and after a sweep or a claim has made rows dead.
//!
//! **If we die here** the next round of any worker finds the rest.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox_store::store::{Parked, Stub};

use crate::policy::OnDead;
use crate::route::route_table::RouteTable;
use crate::side::parked::unpark;
use crate::worker::Worker;
use crate::worker::flag::Flag;
use crate::worker::task::{Next, Task};

/// How long between two rounds.
const INTERVAL: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct Unblocker {
    worker: Arc<Worker>,
    routes: Arc<RouteTable>,
    /// The sweeper and the claimer raise it when they have made rows dead.
    has_dead: Arc<Flag>,
    /// The `seq` after which the next round starts.
    after: Option<i64>,
}

impl Unblocker {
    pub(crate) fn new(worker: Arc<Worker>, routes: Arc<RouteTable>, has_dead: Arc<Flag>) -> Self {
        Self {
            worker,
            routes,
            has_dead,
            after: None,
        }
    }
}

/// Do the other rows of its key continue after this dead row?
fn continues(routes: &RouteTable, stub: &Stub) -> bool {
    let target = match &stub.event.destination {
        Some(name) => routes.target_at(name, &stub.event),
        None => routes.targets(&stub.event).into_iter().next(),
    };
    target.is_some_and(|target| target.policy.on_dead == OnDead::Continue)
}

impl Task for Unblocker {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let continues = |stub: &Stub| continues(&self.routes, stub);
        let rows = unpark(&self.worker, Parked::Blocking, &mut self.after, continues).await?;
        if rows > 0 {
            tracing::info!(rows, "dead rows no longer block their keys");
        }
        Ok(Next::Wait(INTERVAL))
    }

    async fn listen(&mut self) {
        self.has_dead.raised().await;
    }
}
