//! Logs events that reached some of their destinations and are dead at others, once all have ended.
//!
//! The senders and the sweeper add the event of each row that they make dead. Most events have one destination, and the line
//! about their dead row is enough. For the others the store counts the delivered and the dead rows.
//!
//! **If we die here** the line is missing. Each dead row was logged by itself.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox::internal::LineLimit;
use pillarbox::text::error_text;
use pillarbox_store::store::Family;
use uuid::Uuid;

use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// How often the store is asked, if there are dead events.
const INTERVAL: Duration = Duration::from_secs(5);
/// About how many events it is asked at a time.
const BATCH: usize = 100;
/// How many events are remembered. If a destination rejects everything, the oldest are dropped.
const MOST: usize = 10_000;
/// For how long an event is remembered whose other rows do not end.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Events of which a row is dead, and since when.
#[derive(Debug, Default)]
pub(crate) struct DeadEvents(Mutex<VecDeque<(Uuid, Duration)>>);

impl DeadEvents {
    /// A row of this event is dead, or will be in a moment.
    pub(crate) fn add(&self, event: Uuid, now: Duration) {
        self.put([(event, now)]);
    }

    fn put(&self, dead: impl IntoIterator<Item = (Uuid, Duration)>) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.extend(dead);
        let surplus = events.len().saturating_sub(MOST);
        events.drain(..surplus);
    }

    fn take(&self, most: usize) -> Vec<(Uuid, Duration)> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = events.len().min(most);
        events.drain(..count).collect()
    }
}

/// See the module.
pub(crate) struct FamilyLog {
    worker: Arc<Worker>,
    lines: LineLimit,
}

impl FamilyLog {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        Self {
            worker,
            lines: LineLimit::default(),
        }
    }

    fn log(&mut self, family: &Family) {
        let Some(suppressed) = self.lines.allow(self.worker.now()) else {
            return;
        };
        let errors: Vec<String> = family.errors.iter().map(|error| error_text(error)).collect();
        tracing::warn!(
            event_id = %family.event,
            success_count = family.delivered,
            dead_count = family.dead,
            ?errors,
            suppressed = (suppressed > 0).then_some(suppressed),
            "event is dead at some destinations"
        );
    }
}

impl Task for FamilyLog {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let worker = Arc::clone(&self.worker);
        let dead = worker.dead_events.take(BATCH);
        if dead.is_empty() {
            return Ok(Next::Wait(INTERVAL));
        }
        let events: HashSet<Uuid> = dead.iter().map(|(event, _)| *event).collect();
        let events: Vec<Uuid> = events.into_iter().collect();
        let families = match worker.store.families(&events).await {
            Ok(families) => families,
            Err(error) => {
                worker.dead_events.put(dead);
                return Err(error);
            }
        };
        let mut unfinished = HashSet::new();
        for family in &families {
            if family.unfinished > 0 {
                unfinished.insert(family.event);
            } else if family.delivered + family.dead > 1 && family.dead > 0 {
                self.log(family);
            }
        }
        let now = worker.now();
        let waits = |(event, since): &(Uuid, Duration)| {
            unfinished.contains(event) && now.saturating_sub(*since) < LONGEST
        };
        worker.dead_events.put(dead.into_iter().filter(waits));
        Ok(Next::Wait(INTERVAL))
    }
}
