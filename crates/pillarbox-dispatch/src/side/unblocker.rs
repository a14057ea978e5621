//! Brings back what was put aside: rows that led nowhere and for which there is a route now, and dead rows that
//! hold their key up although the configuration says that the others go on.
//!
//! At the start, every minute, and when the sweeper has buried rows. A bounded number at a time; the next round goes
//! on where this one ended.
//!
//! **If we die here** the next round finds the rest, whoever makes it.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox_store::store::{Parked, Stub};
use uuid::Uuid;

use crate::claim::suspects::Asked;
use crate::policy::OnDead;
use crate::route::route_table::RouteTable;
use crate::worker::Worker;
use crate::worker::store_health::Backoff;
use crate::worker::task::{Next, Task};

/// How long between two rounds.
const ROUND: Duration = Duration::from_secs(60);
/// How many rows at a time.
const CHUNK: usize = 500;
/// How many chunks in a round.
const CHUNKS: usize = 40;

/// See the module.
pub(crate) struct Usher {
    worker: Arc<Worker>,
    routes: Arc<RouteTable>,
    asked: Arc<Asked>,
    /// Where the next round begins.
    unrouted: Option<i64>,
    blocking: Option<i64>,
    backoff: Backoff,
}

impl Usher {
    pub(crate) fn new(worker: Arc<Worker>, routes: Arc<RouteTable>, asked: Arc<Asked>) -> Self {
        Self {
            worker,
            routes,
            asked,
            unrouted: None,
            blocking: None,
            backoff: Backoff::for_store(),
        }
    }

    async fn round(&mut self) -> Result<(), StoreError> {
        let mut unrouted = self.unrouted;
        let led = self.bring_back(Parked::Unrouted, &mut unrouted).await;
        self.unrouted = unrouted;
        let led = led?;
        let mut blocking = self.blocking;
        let passed = self.bring_back(Parked::Blocking, &mut blocking).await;
        self.blocking = blocking;
        let passed = passed?;
        if led > 0 {
            tracing::info!(rows = led, "events that led nowhere have a route now");
        }
        if passed > 0 {
            tracing::info!(rows = passed, "dead rows no longer hold up their keys");
        }
        Ok(())
    }

    async fn bring_back(&self, what: Parked, after: &mut Option<i64>) -> Result<usize, StoreError> {
        let mut brought = 0;
        for _ in 0..CHUNKS {
            let scope = &self.worker.settings.scope;
            let stubs = self.worker.store.parked(what, scope, *after, CHUNK).await?;
            *after = stubs.last().map(|stub| stub.seq).filter(|_| stubs.len() == CHUNK);
            let ids: Vec<Uuid> = stubs
                .iter()
                .filter(|stub| self.may_go(what, stub))
                .map(|stub| stub.id)
                .collect();
            if !ids.is_empty() {
                brought += self.worker.store.unpark(what, &ids).await?.len();
            }
            if after.is_none() {
                break;
            }
        }
        Ok(brought)
    }

    fn may_go(&self, what: Parked, stub: &Stub) -> bool {
        match what {
            Parked::Unrouted => !self.routes.targets(&stub.event).is_empty(),
            Parked::Blocking => {
                let target = match &stub.event.destination {
                    Some(name) => self.routes.target_at(name, &stub.event),
                    None => self.routes.targets(&stub.event).into_iter().next(),
                };
                target.is_some_and(|target| target.policy.on_dead == OnDead::Continue)
            }
        }
    }
}

impl Task for Usher {
    async fn tick(&mut self) -> Next {
        match self.round().await {
            Ok(()) => {
                self.worker.store_health.worked("usher");
                self.backoff.worked();
                Next::Wait(ROUND)
            }
            Err(error) => {
                self.worker.store_failed("usher", &error);
                Next::Wait(self.backoff.failed(fastrand::f64()))
            }
        }
    }

    async fn listen(&mut self) {
        self.asked.heard().await;
    }
}
