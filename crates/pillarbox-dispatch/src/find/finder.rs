//! Finds the backlogs that have due rows: twice a second when idle, at once after a wake.
//!
//! What it finds are hints for the claimer. A search also finds rows that were committed late, with a lower `seq` than
//! claimed ones, and the destinations that are paused. A search reads past settled rows, which may be slow where the
//! database cannot vacuum. The finder then rests four times as long as the search took.
//!
//! It warns about destinations that rows name and that this dispatcher does not have: their rows wait.
//!
//! A wake is only a hint. Correctness comes from searching again after the poll interval.
//!
//! **If we die here** nothing is lost: the next search finds the same.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pillarbox::{StoreError, Wake};
use pillarbox_store::store::{Backlog, Due};

use crate::find::poll_backoff::PollBackoff;
use crate::send::handle::DestinationHandle;
use crate::side::lane_leases::KeyedBacklogs;
use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// How many backlogs one search returns.
const PAGE: usize = 256;
/// How many pages are searched before a rest; the next round goes on from there.
const PAGES: usize = 8;
/// How often rows that name an unknown destination are logged, for each name.
const WARN_UNKNOWN: Duration = Duration::from_secs(3600);
/// How many such names are logged.
const MOST_UNKNOWN: usize = 100;

/// See the module.
pub(crate) struct Finder {
    worker: Arc<Worker>,
    destinations: Arc<[DestinationHandle]>,
    keyed: Arc<KeyedBacklogs>,
    wake: Wake,
    poll_backoff: PollBackoff,
    /// Where the next search begins.
    after: Option<Backlog>,
    /// When the next search is due.
    due_at: Duration,
    /// Was the finder woken since the last tick?
    was_woken: bool,
    /// Was all work claimed since the last tick?
    was_exhausted: bool,
    known: HashSet<String>,
    /// Unknown destinations, and when they were last logged.
    unknown: HashMap<String, Duration>,
}

impl Finder {
    pub(crate) fn new(
        worker: Arc<Worker>,
        destinations: Arc<[DestinationHandle]>,
        keyed: Arc<KeyedBacklogs>,
        wake: Wake,
    ) -> Self {
        let poll_backoff = PollBackoff::new(worker.settings.poll_interval);
        let known = destinations.iter().map(|to| to.name.clone()).collect();
        Self {
            worker,
            destinations,
            keyed,
            wake,
            poll_backoff,
            after: None,
            due_at: Duration::ZERO,
            was_woken: false,
            was_exhausted: false,
            known,
            unknown: HashMap::new(),
        }
    }

    /// One round, or as many pages of it as fit.
    async fn find(&mut self) -> Result<(), StoreError> {
        self.disable_destinations().await?;
        for _ in 0..PAGES {
            let scope = &self.worker.settings.scope;
            let found = self.worker.store.find(scope, self.after.as_ref(), PAGE).await?;
            self.set_paused(&found.paused);
            self.warn_unknown(&found.due);
            let now = self.worker.now();
            self.keyed.found(
                self.after.as_ref(),
                (&found.due, found.more),
                |backlog| self.serves(backlog),
                (now, now.checked_sub(self.worker.settings.lease)),
            );
            let last = found.due.last().map(|due| due.backlog.clone());
            self.worker
                .backlogs
                .found(self.after.as_ref(), found.due, found.more);
            self.after = last.filter(|_| found.more);
            if self.after.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Logs destinations that rows name and that are not configured here: a misspelt name would otherwise wait silently.
    fn warn_unknown(&mut self, due: &[Due]) {
        let now = self.worker.now();
        for Backlog {
            destination,
            namespace,
        } in due.iter().map(|due| &due.backlog)
        {
            let Some(name) = destination.as_ref().filter(|name| !self.known.contains(*name)) else {
                continue;
            };
            let is_due = match self.unknown.get(name) {
                Some(logged) => now.saturating_sub(*logged) >= WARN_UNKNOWN,
                None => self.unknown.len() < MOST_UNKNOWN,
            };
            if is_due {
                self.unknown.insert(name.clone(), now);
                tracing::warn!(
                    destination = name,
                    namespace,
                    "events wait for a destination that is not configured"
                );
            }
        }
    }

    /// Does this worker have the backlog's destination?
    fn serves(&self, backlog: &Backlog) -> bool {
        let name = backlog.destination.as_ref();
        name.is_none_or(|name| self.known.contains(name))
    }

    fn set_paused(&self, paused: &[String]) {
        let paused: HashSet<&str> = paused.iter().map(String::as_str).collect();
        for destination in self.destinations.iter() {
            destination.set_paused(paused.contains(destination.name.as_str()));
        }
    }

    /// Disables destinations in the store that asked never to be called again, for all workers.
    async fn disable_destinations(&self) -> Result<(), StoreError> {
        loop {
            let Some((name, reason)) = self.worker.to_disable().last().cloned() else {
                return Ok(());
            };
            self.worker.store.disable(&name, &reason).await?;
            self.worker.to_disable().retain(|(other, _)| *other != name);
            if let Some(destination) = self.destinations.iter().find(|to| to.name == name) {
                destination.set_paused(true);
            }
        }
    }

    /// How long to rest after a search that took so long.
    fn rest(&mut self, took: Duration) -> Duration {
        let rest = if self.worker.backlogs.has_work() {
            self.worker.settings.poll_interval
        } else {
            self.poll_backoff.found_nothing()
        };
        rest.max(took * 4)
    }

    /// Sets when the next search is due, from what was heard.
    fn schedule(&mut self, now: Duration) {
        if std::mem::take(&mut self.was_exhausted) {
            if self.worker.backlogs.take_found_rows() {
                self.poll_backoff.found_rows();
            }
            // A search that is overdue failed: it is not put off.
            if self.due_at > now {
                self.due_at = now + self.poll_backoff.found_nothing();
            }
        }
        if std::mem::take(&mut self.was_woken) {
            self.poll_backoff.found_rows();
            self.due_at = now;
        }
    }
}

impl Task for Finder {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let now = self.worker.now();
        self.schedule(now);
        if let Some(wait) = self.due_at.checked_sub(now).filter(|wait| !wait.is_zero()) {
            return Ok(Next::Wait(wait));
        }
        self.find().await?;
        let ended = self.worker.now();
        let rest = self.rest(ended.saturating_sub(now));
        self.due_at = ended + rest;
        Ok(Next::Wait(rest))
    }

    async fn listen(&mut self) {
        tokio::select! {
            () = self.wake.notified() => self.was_woken = true,
            () = self.worker.backlogs.exhausted() => self.was_exhausted = true,
        }
    }
}
