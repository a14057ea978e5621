//! Enqueues events: all of a transaction's, or none.

use std::borrow::Cow;

use time::OffsetDateTime;
use uuid::Uuid;

use super::inbox::Marking;
use super::{Memory, Row, Table, lane};
use crate::state::State;
use crate::store::StoreError;
use pillarbox::Event;
use pillarbox::inbox::Inbox;
use pillarbox::internal::sealed;
use pillarbox::internal::validate;
use pillarbox::internal::{Request, Response};
use pillarbox::{Connection, Outbox};
use pillarbox::{EnqueueError, Enqueued};

/// A transaction. Its events become visible when it commits.
///
/// Their `seq` is drawn when they are enqueued, not at the commit, as from a sequence.
#[derive(Debug)]
pub struct Transaction {
    pub(super) outbox: Memory,
    written: Vec<(i64, Event)>,
    pub(super) marking: Marking,
}

impl Memory {
    /// Begins a transaction. Dropping it without a commit rolls it back.
    pub fn begin(&self) -> Transaction {
        Transaction {
            outbox: self.clone(),
            written: Vec::new(),
            marking: Marking::default(),
        }
    }

    /// Enqueues one event in a transaction of its own.
    ///
    /// # Errors
    /// When the event is rejected.
    pub fn enqueue(&self, event: Event) -> Result<Enqueued, EnqueueError> {
        let mut transaction = self.begin();
        let enqueued = transaction.enqueue(event)?;
        transaction.commit();
        Ok(enqueued)
    }
}

impl Transaction {
    /// Enqueues an event.
    ///
    /// # Errors
    /// When the event is rejected; nothing is written.
    pub fn enqueue(&mut self, event: Event) -> Result<Enqueued, EnqueueError> {
        validate(&event, &self.outbox.limits)?;
        let mut table = self.outbox.table();
        let mine = self.written.iter().map(|(_, other)| other);
        let stored = || {
            table
                .rows
                .values()
                .filter(|row| row.is_first())
                .map(|row| &row.event)
        };
        let all = || stored().chain(mine.clone());
        if event.dedupe_key.is_some()
            && let Some(first) = all().find(|other| is_duplicate(other, &event))
        {
            return Ok(Enqueued::Duplicate(first.id));
        }
        if table.place(event.id).is_some() || mine.clone().any(|other| other.id == event.id) {
            return Err(EnqueueError::IdTaken(event.id));
        }
        table.last_seq += 1;
        let id = event.id;
        self.written.push((table.last_seq, event));
        Ok(Enqueued::New(id))
    }

    /// Enqueues events in their order, all or none.
    ///
    /// # Errors
    /// When one of them is rejected; nothing is written.
    pub fn enqueue_all(&mut self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        let before = self.written.len();
        let enqueued: Result<_, _> = events.iter().cloned().map(|event| self.enqueue(event)).collect();
        if enqueued.is_err() {
            self.written.truncate(before);
        }
        enqueued
    }

    /// Makes all events visible at once. An event whose dedupe key another transaction committed meanwhile is left out; its
    /// id is returned.
    pub fn commit(mut self) -> Vec<Uuid> {
        let now = self.outbox.clock.wall();
        let mut table = self.outbox.table();
        let mut already = Vec::new();
        table.marks.commit(std::mem::take(&mut self.marking), now);
        if !self.written.is_empty() {
            table.commits.send_replace(());
        }
        for (seq, event) in std::mem::take(&mut self.written) {
            let duplicate = |row: &Row| row.is_first() && is_duplicate(&row.event, &event);
            if event.dedupe_key.is_some() && table.rows.values().any(duplicate) {
                already.push(event.id);
            } else {
                table.insert(seq, event, now);
            }
        }
        already
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let marking = std::mem::take(&mut self.marking);
        self.outbox.table().marks.give_up(marking);
    }
}

impl sealed::Sealed for Transaction {}
impl Connection for Transaction {
    type Backend = Self;

    fn backend(&mut self) -> &mut Self {
        self
    }
}

impl sealed::Backend for Transaction {
    async fn write(&mut self, _: &Outbox, events: &[Cow<'_, Event>]) -> Result<Vec<Enqueued>, EnqueueError> {
        let events: Vec<Event> = events.iter().map(|event| Event::clone(event)).collect();
        self.enqueue_all(&events)
    }

    async fn read(&mut self, _: &Outbox, namespace: Option<&str>) -> Result<Vec<Event>, StoreError> {
        let mut seen = self.outbox.table().events();
        seen.extend(self.written.iter().cloned());
        seen.sort_by_key(|(seq, _)| *seq);
        let events = seen.into_iter().map(|(_, event)| event);
        let wanted = |event: &Event| namespace.is_none_or(|namespace| event.namespace == namespace);
        Ok(events.filter(wanted).collect())
    }

    async fn taken(&mut self, outbox: &Outbox, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let seen = self.read(outbox, None).await?.into_iter().map(|event| event.id);
        Ok(seen.filter(|id| ids.contains(id)).collect())
    }

    async fn mark(&mut self, _: &Inbox, consumer: &str, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        self.mark(consumer, ids)
    }

    async fn unmark(&mut self, _: &Inbox, consumer: &str, ids: &[Uuid]) -> Result<(), StoreError> {
        self.unmark(consumer, ids);
        Ok(())
    }

    async fn prune(&mut self, inbox: &Inbox, consumer: &str, limit: i32) -> Result<u64, StoreError> {
        Ok(self.prune(inbox, consumer, limit))
    }

    async fn saga(&mut self, _: &Outbox, _: Request<'_>) -> Result<Response, StoreError> {
        Err(StoreError::Other(
            "the memory store keeps no sagas; use SQLite, on a file of its own, in tests".to_owned(),
        ))
    }
}

impl pillarbox::Transaction for Transaction {
    async fn commit(self) -> Result<(), StoreError> {
        self.commit();
        Ok(())
    }
}

fn is_duplicate(a: &Event, b: &Event) -> bool {
    a.dedupe_key.is_some() && a.dedupe_key == b.dedupe_key && a.namespace == b.namespace && a.topic == b.topic
}

impl Table {
    /// Every event with its position, without siblings.
    pub(super) fn events(&self) -> Vec<(i64, Event)> {
        let first = self.rows.iter().filter(|((_, number), _)| *number == 0);
        first.map(|(_, row)| (row.seq, row.event.clone())).collect()
    }

    fn insert(&mut self, seq: i64, event: Event, now: OffsetDateTime) {
        let mut state = State::new(now);
        state.due = event.deliver_at.map_or(now, |at| at.max(now));
        let row = Row {
            id: event.id,
            seq,
            lane: event.ordering_key.as_deref().map(lane),
            event,
            state,
            created_at: now,
            updated_at: now,
            delivered_at: None,
        };
        self.put((seq, 0), row);
    }
}
