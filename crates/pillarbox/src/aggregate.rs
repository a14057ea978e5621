//! Domain events: an aggregate records events while it changes, and a unit of work enqueues them when it commits.
//!
//! ```text
//! command handler ─▶ aggregate: records events ─▶ repository: saves it ─▶ unit of work: enqueues, commits, clears
//! ```
//!
//! **If we die here** the aggregate is gone with what it recorded, and neither was saved.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use uuid::Uuid;

use crate::enqueue::Enqueued;
use crate::event::{Event, ToEvent};

/// A part of the domain that changes as a whole and records what happened to it. A [`UnitOfWork`](crate::UnitOfWork)
/// enqueues that when it commits.
///
/// An event gets its id when it is recorded. A save that fails and is tried again therefore enqueues the same events. After
/// a commit whose answer was lost, their ids show whether it happened.
///
/// ```
/// use pillarbox::{Aggregate, Event, Recorded};
///
/// #[derive(serde::Serialize, Event)]
/// #[event(topic = "members", type = "MemberInvited")]
/// struct MemberInvited {
///     #[event(key, aggregate = "invitation")]
///     email: String,
/// }
///
/// struct Invitation {
///     email: String,
///     recorded: Recorded,
/// }
///
/// impl Invitation {
///     fn create(email: &str) -> Self {
///         let mut recorded = Recorded::default();
///         recorded.record(&MemberInvited { email: email.to_owned() });
///         Self { email: email.to_owned(), recorded }
///     }
/// }
///
/// impl Aggregate for Invitation {
///     fn recorded(&mut self) -> &mut Recorded {
///         &mut self.recorded
///     }
/// }
///
/// let mut invitation = Invitation::create("ada@example.com");
/// assert_eq!(invitation.recorded().len(), 1);
/// ```
pub trait Aggregate: Send {
    /// The events that it recorded since its last commit.
    fn recorded(&mut self) -> &mut Recorded;
}

/// What an aggregate has said, in the order in which it said it.
///
/// Left alone by what saves the aggregate; with serde, `#[serde(skip)]`. A clone has the same events, with the same ids, and
/// is tracked by the same units of work.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    events: Vec<RecordedEvent>,
    /// What the units of work that track it know of it. It ends with them: what a copy recorded that was dropped with its
    /// unit of work must not fail a later one.
    tracked: Weak<Tracked>,
}

#[derive(Debug, Clone)]
struct RecordedEvent {
    /// When: these ids are in order within the process, so that several aggregates have one order.
    at: Uuid,
    /// The event, or why it has no JSON form.
    event: Result<Event, String>,
    /// Was it written in a transaction that may have committed?
    tried: bool,
}

impl Recorded {
    /// Records that something happened. A value that has no JSON form comes out as an error when it is enqueued: what
    /// changed cannot be committed without its event.
    pub fn record<E: ToEvent + ?Sized>(&mut self, event: &E) {
        let event = event.to_event().map(std::borrow::Cow::into_owned);
        let said = RecordedEvent {
            at: Uuid::now_v7(),
            event: event.map_err(|error| error.to_string()),
            tried: false,
        };
        if let Some(tracked) = self.tracked.upgrade() {
            tracked.add(&said);
        }
        self.events.push(said);
    }

    /// The events, for tests. What has no JSON form is left out.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter_map(|said| said.event.as_ref().ok())
    }

    /// How much was recorded.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Was nothing recorded?
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Removes all events. A [unit of work](crate::unit_of_work::UnitOfWork) does this after its commit. Without one, call
    /// it after the commit.
    pub fn clear(&mut self) {
        if let Some(tracked) = self.tracked.upgrade() {
            tracked.remove(&self.events);
        }
        self.events.clear();
    }

    /// From now on a unit of work can see what is recorded here, even after the aggregate was dropped.
    pub(crate) fn track(&mut self) -> Arc<Tracked> {
        if let Some(tracked) = self.tracked.upgrade() {
            return tracked;
        }
        let tracked = Arc::new(Tracked::default());
        self.events.iter().for_each(|said| tracked.add(said));
        self.tracked = Arc::downgrade(&tracked);
        tracked
    }
}

/// What was recorded by a tracked aggregate, and neither committed nor cleared.
#[derive(Debug, Default)]
pub(crate) struct Tracked(Mutex<Vec<Unsettled>>);

#[derive(Debug, Clone)]
struct Unsettled {
    at: Uuid,
    aggregate_id: Option<String>,
}

impl Tracked {
    fn add(&self, said: &RecordedEvent) {
        let event = said.event.as_ref().ok();
        self.lock().push(Unsettled {
            at: said.at,
            aggregate_id: event.and_then(|event| event.aggregate_id.clone()),
        });
    }

    fn remove(&self, settled: &[RecordedEvent]) {
        self.lock().retain(|one| !is_among(settled, one));
    }

    /// How many of its events are in none of these aggregates, and the id that the first of them names.
    pub(crate) fn missing_from(
        &self,
        aggregates: &mut [&mut dyn Aggregate],
    ) -> Option<(usize, Option<String>)> {
        let mut missing = self.lock().clone();
        for aggregate in aggregates {
            let listed = &aggregate.recorded().events;
            missing.retain(|one| !is_among(listed, one));
        }
        let id = missing.iter().find_map(|one| one.aggregate_id.clone());
        (!missing.is_empty()).then_some((missing.len(), id))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Unsettled>> {
        // A list of ids is valid after every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of an aggregate are in the order of `at`.
fn is_among(events: &[RecordedEvent], one: &Unsettled) -> bool {
    events.binary_search_by_key(&one.at, |said| said.at).is_ok()
}

/// What was recorded by itself, for code that has no aggregates.
impl Aggregate for Recorded {
    fn recorded(&mut self) -> &mut Recorded {
        self
    }
}

/// Everything that some aggregates recorded, in the order in which it was recorded.
pub(crate) struct Batch(Vec<(Event, Tried)>);

/// Was it written in a transaction that may have committed?
type Tried = bool;

impl Batch {
    /// # Errors
    /// When something that was recorded has no JSON form.
    pub(crate) fn of(aggregates: &mut [&mut dyn Aggregate]) -> Result<Self, serde_json::Error> {
        let recorded = aggregates.iter_mut().map(|aggregate| aggregate.recorded());
        let mut all: Vec<RecordedEvent> = recorded.flat_map(|recorded| recorded.events.clone()).collect();
        all.sort_by_key(|said| said.at);
        let events = all.into_iter().map(|said| match said.event {
            Ok(event) => Ok((event, said.tried)),
            Err(why) => Err(serde::ser::Error::custom(why)),
        });
        events.collect::<Result<_, _>>().map(Self)
    }

    /// The ids of those that may be in the outbox already.
    pub(crate) fn in_doubt(&self) -> Vec<Uuid> {
        let tried = self.0.iter().filter(|(_, tried)| *tried);
        tried.map(|(event, _)| event.id).collect()
    }

    /// Are all of them of that kind, and is there any?
    pub(crate) fn is_in_doubt(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|(_, tried)| *tried)
    }

    /// The events without those that are there.
    pub(crate) fn without(&self, there: &[Uuid]) -> Vec<&Event> {
        let events = self.0.iter().map(|(event, _)| event);
        events.filter(|event| !there.contains(&event.id)).collect()
    }

    /// What became of each, given what became of those that were not there.
    pub(crate) fn report(&self, there: &[Uuid], enqueued: Vec<Enqueued>) -> Vec<Enqueued> {
        let mut enqueued = enqueued.into_iter();
        let fate = |(event, _): &(Event, Tried)| {
            if there.contains(&event.id) {
                Some(Enqueued::Duplicate(event.id))
            } else {
                enqueued.next()
            }
        };
        self.0.iter().filter_map(fate).collect()
    }
}

/// From now on their events may be in the outbox: the transaction that holds them can commit at any time.
pub(crate) fn written(aggregates: &mut [&mut dyn Aggregate]) {
    for aggregate in aggregates {
        for said in &mut aggregate.recorded().events {
            said.tried = true;
        }
    }
}

/// Their events are in the outbox for good.
pub(crate) fn committed(aggregates: &mut [&mut dyn Aggregate]) {
    for aggregate in aggregates {
        aggregate.recorded().clear();
    }
}
