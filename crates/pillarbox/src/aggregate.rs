//! Domain events: an aggregate records events while it changes, and a unit of work enqueues them when it commits.
//!
//! ```text
//! command handler ─▶ aggregate: records events ─▶ repository: saves it ─▶ unit of work: enqueues, commits, clears
//! ```
//!
//! **If we die here** the aggregate is gone with what it recorded, and neither was saved.

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
/// Left alone by what saves the aggregate; with serde, `#[serde(skip)]`.
#[derive(Debug, Clone, Default)]
pub struct Recorded(Vec<RecordedEvent>);

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
        self.0.push(RecordedEvent {
            at: Uuid::now_v7(),
            event: event.map_err(|error| error.to_string()),
            tried: false,
        });
    }

    /// The events, for tests. What has no JSON form is left out.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.0.iter().filter_map(|said| said.event.as_ref().ok())
    }

    /// How much was recorded.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Was nothing recorded?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all events. A [unit of work](crate::unit_of_work::UnitOfWork) does this after its commit. Without one, call
    /// it after the commit.
    pub fn clear(&mut self) {
        self.0.clear();
    }
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
        let mut all: Vec<RecordedEvent> = recorded.flat_map(|recorded| recorded.0.clone()).collect();
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
        for said in &mut aggregate.recorded().0 {
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
