//! Looks where there is work: twice a second when there is none, at once after a wake, and never in the target of
//! those who work.
//!
//! What it sees are hints for the claimer; the look also finds what was committed late, behind the claimer's back,
//! and which destinations a person has paused. Because a look reads past what is done with, it may take a while
//! where the database cannot clean up; it then rests four times as long.
//!
//! A wake is only a hint. Correctness comes from looking again when patience runs out.
//!
//! **If we die here** nothing is lost: the next look sees the same.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::{StoreError, Wake};
use pillarbox_store::store::Backlog;

use crate::find::poll_backoff::PollBackoff;
use crate::send::handle::Entrance;
use crate::side::lane_leases::Namespaces;
use crate::worker::Worker;
use crate::worker::store_health::Backoff;
use crate::worker::task::{Next, Task};

/// How many backlogs a look names at the most.
const PAGE: usize = 256;
/// How many pages are looked at before a rest; the next look goes on from there.
const PAGES: usize = 8;

/// See the module.
pub(crate) struct Finder {
    worker: Arc<Worker>,
    entrances: Arc<[Entrance]>,
    namespaces: Arc<Namespaces>,
    wake: Wake,
    poll_backoff: PollBackoff,
    backoff: Backoff,
    /// Where the next look begins.
    after: Option<Backlog>,
    /// When it is due.
    at: Duration,
    heard: Heard,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Nothing,
    /// Somebody says that there is something.
    Wake,
    /// Everything that was seen is taken.
    Dry,
}

impl Finder {
    pub(crate) fn new(
        worker: Arc<Worker>,
        entrances: Arc<[Entrance]>,
        namespaces: Arc<Namespaces>,
        wake: Wake,
    ) -> Self {
        let poll_backoff = PollBackoff::new(worker.settings.poll_interval);
        Self {
            worker,
            entrances,
            namespaces,
            wake,
            poll_backoff,
            backoff: Backoff::for_store(),
            after: None,
            at: Duration::ZERO,
            heard: Heard::Nothing,
        }
    }

    /// One round, or as much of it as fits.
    async fn find(&mut self) -> Result<(), StoreError> {
        self.tell_who_is_gone().await?;
        for _ in 0..PAGES {
            let scope = &self.worker.settings.scope;
            let look = self.worker.store.find(scope, self.after.as_ref(), PAGE).await?;
            self.see_paused(&look.paused);
            let keyed = look.due.iter().filter(|due| due.keyed);
            self.namespaces
                .saw(keyed.map(|due| due.backlog.namespace.as_str()), self.worker.now());
            let last = look.due.last().map(|due| due.backlog.clone());
            self.worker.backlogs.saw(self.after.as_ref(), look.due, look.more);
            self.after = last.filter(|_| look.more);
            if self.after.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn see_paused(&self, paused: &[String]) {
        let paused: HashSet<&str> = paused.iter().map(String::as_str).collect();
        for entrance in self.entrances.iter() {
            entrance.sign.pause(paused.contains(entrance.name.as_str()));
        }
    }

    /// Destinations that asked never to be called again are paused for everybody.
    async fn tell_who_is_gone(&self) -> Result<(), StoreError> {
        let mut gone = self.worker.take_gone();
        while let Some((name, reason)) = gone.pop() {
            if let Err(error) = self.worker.store.disable(&name, &reason).await {
                gone.push((name, reason));
                for (name, reason) in &gone {
                    self.worker.is_gone(name, reason);
                }
                return Err(error);
            }
            if let Some(entrance) = self.entrances.iter().find(|entrance| entrance.name == name) {
                entrance.sign.pause(true);
            }
        }
        Ok(())
    }

    /// When to look again after a look that took so long.
    fn rest(&mut self, took: Duration) -> Duration {
        let rest = if self.worker.backlogs.has_work() {
            self.worker.settings.poll_interval
        } else {
            self.poll_backoff.nothing()
        };
        rest.max(took * 4)
    }
}

impl Task for Finder {
    async fn tick(&mut self) -> Next {
        let now = self.worker.now();
        match std::mem::replace(&mut self.heard, Heard::Nothing) {
            Heard::Nothing => {}
            Heard::Wake => {
                self.poll_backoff.found();
                self.at = now;
            }
            Heard::Dry => {
                if self.worker.backlogs.found() {
                    self.poll_backoff.found();
                }
                self.at = now + self.poll_backoff.nothing();
            }
        }
        if let Some(wait) = self.at.checked_sub(now).filter(|wait| !wait.is_zero()) {
            return Next::Wait(wait);
        }
        let wait = match self.find().await {
            Ok(()) => {
                self.worker.store_health.worked("finder");
                self.backoff.worked();
                let took = self.worker.now().saturating_sub(now);
                self.rest(took)
            }
            Err(error) => {
                self.worker.store_failed("finder", &error);
                self.backoff.failed(fastrand::f64())
            }
        };
        self.at = self.worker.now() + wait;
        Next::Wait(wait)
    }

    async fn listen(&mut self) {
        self.heard = tokio::select! {
            () = self.wake.rung() => Heard::Wake,
            () = self.worker.backlogs.dry() => Heard::Dry,
        };
    }
}
