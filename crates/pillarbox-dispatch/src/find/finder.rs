//! Finds the backlogs that have due rows: once in a while when idle, at once after a wake. The [rhythm](super::rhythm)
//! decides when.
//!
//! What it finds are hints for the claimer. A search also finds rows that were committed late, with a lower `seq` than
//! claimed ones, and the destinations that are paused.
//!
//! It searches only for destinations that this dispatcher has, so that rows for others cost it nothing, however many they are.
//! Now and then it looks at all names, a page at a time, and warns about the others: their rows wait.
//!
//! A wake and a watch are only hints. Correctness comes from searching again after the poll interval.
//!
//! **If we die here** nothing is lost: the next search finds the same.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pillarbox::{StoreError, Wake};
use pillarbox_store::store::{Backlog, Due};

use crate::find::rhythm::{Heard, Rhythm, Step};
use crate::find::watcher::{self, Watcher};
use crate::send::handle::DestinationHandle;
use crate::settings::WakeBy;
use crate::side::lane_leases::KeyedBacklogs;
use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// How many backlogs one search returns.
const PAGE: usize = 256;
/// How many pages are searched before a rest; the next round goes on from there.
const PAGES: usize = 8;
/// How often rows that name an unknown destination are logged, for each name.
const WARN_UNKNOWN: Duration = Duration::from_secs(3600);
/// How often the finder looks for such names. A look costs at most as much as a page of a search.
const LOOK_UNKNOWN: Duration = Duration::from_secs(10);
/// How many such names are logged.
const MOST_UNKNOWN: usize = 100;

/// See the module.
pub(crate) struct Finder {
    worker: Arc<Worker>,
    destinations: Arc<[DestinationHandle]>,
    keyed: Arc<KeyedBacklogs>,
    wake: Wake,
    rhythm: Rhythm,
    watcher: Watcher,
    /// Where the next search begins.
    after: Option<Backlog>,
    /// Was the finder woken since the last tick?
    was_woken: bool,
    /// Was all work claimed since the last tick?
    was_exhausted: bool,
    /// What the watch reported since the last tick.
    watched: Option<watcher::Ended>,
    known: HashSet<String>,
    /// The same, in order.
    served: Vec<String>,
    /// Unknown destinations, and when they were last logged.
    unknown: HashMap<String, Duration>,
    /// Where the next look for them begins, and when.
    look_after: Option<Backlog>,
    look_at: Duration,
}

impl Finder {
    pub(crate) fn new(
        worker: Arc<Worker>,
        destinations: Arc<[DestinationHandle]>,
        keyed: Arc<KeyedBacklogs>,
        wake: Wake,
    ) -> Self {
        let rhythm = Rhythm::new(worker.settings.poll_interval);
        let watcher = Watcher::new(Arc::clone(&worker.store), worker.settings.wake == WakeBy::Server);
        let known: HashSet<String> = destinations.iter().map(|to| to.name.clone()).collect();
        let mut served: Vec<String> = known.iter().cloned().collect();
        served.sort();
        Self {
            worker,
            destinations,
            keyed,
            wake,
            rhythm,
            watcher,
            after: None,
            was_woken: false,
            was_exhausted: false,
            watched: None,
            known,
            served,
            unknown: HashMap::new(),
            look_after: None,
            look_at: Duration::ZERO,
        }
    }

    /// One round, or as many pages of it as fit. Returns when the next row is due that waits.
    async fn find(&mut self) -> Result<Option<Duration>, StoreError> {
        self.disable_destinations().await?;
        self.look_for_unknown().await?;
        let mut due_in: Option<Duration> = None;
        for _ in 0..PAGES {
            let scope = &self.worker.settings.scope;
            let (served, after) = (Some(self.served.as_slice()), self.after.as_ref());
            let found = self.worker.store.find(scope, served, after, PAGE).await?;
            due_in = due_in.into_iter().chain(found.due_in).min();
            self.set_paused(&found.paused);
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
        Ok(due_in)
    }

    /// Looks at one page of all backlogs, those of destinations included that this dispatcher does not have.
    async fn look_for_unknown(&mut self) -> Result<(), StoreError> {
        let now = self.worker.now();
        if now < self.look_at {
            return Ok(());
        }
        let scope = &self.worker.settings.scope;
        let after = self.look_after.as_ref();
        let found = self.worker.store.find(scope, None, after, PAGE).await?;
        self.warn_unknown(&found.due);
        self.look_after = found
            .due
            .last()
            .map(|due| due.backlog.clone())
            .filter(|_| found.more);
        self.look_at = now + LOOK_UNKNOWN;
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
    async fn disable_destinations(&mut self) -> Result<(), StoreError> {
        loop {
            let Some((name, reason)) = self.worker.to_disable().last().cloned() else {
                return Ok(());
            };
            let worker = self.worker.id;
            self.worker.store.disable(worker, &name, &reason).await?;
            self.worker.to_disable().retain(|(other, _)| *other != name);
            if let Some(destination) = self.destinations.iter().find(|to| to.name == name) {
                destination.set_paused(true);
            }
        }
    }

    /// Tells the rhythm what was heard.
    fn hear(&mut self, now: Duration) {
        if std::mem::take(&mut self.was_exhausted) {
            let rows = self.worker.backlogs.take_found_rows();
            self.rhythm.hear(Heard::Exhausted(rows), now);
        }
        if std::mem::take(&mut self.was_woken) {
            self.rhythm.hear(Heard::Woken, now);
        }
        if let Some(heard) = self
            .watched
            .take()
            .and_then(|ended| self.watcher.ended(ended, now))
        {
            self.rhythm.hear(heard, now);
        }
    }
}

impl Task for Finder {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let now = self.worker.now();
        self.hear(now);
        let backlogs = &self.worker.backlogs;
        let step = self
            .rhythm
            .step(backlogs.can_probe(now), backlogs.has_work(), now);
        match step {
            Step::Probe => backlogs.probe(now),
            Step::Search => {
                let due_in = self.find().await?;
                let has_work = self.worker.backlogs.has_work();
                self.rhythm.searched(now, has_work, due_in, self.worker.now());
            }
            Step::Wait(wait) => {
                self.watcher.call(self.rhythm.wants_watch(), now);
                let reopened = self.watcher.open_at().map(|at| at.saturating_sub(now));
                return Ok(Next::Wait(wait.min(reopened.unwrap_or(wait))));
            }
        }
        Ok(Next::Again)
    }

    async fn listen(&mut self) {
        tokio::select! {
            () = self.wake.notified() => self.was_woken = true,
            () = self.worker.backlogs.exhausted() => self.was_exhausted = true,
            ended = self.watcher.called() => self.watched = Some(ended),
        }
    }
}
