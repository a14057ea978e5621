//! What a backend provides for the suite: a fresh outbox for every case, and access that the ports do not give.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox::inbox::Key;
use pillarbox::{EnqueueError, Enqueued, Event, Recorded, StoreError};
use pillarbox_store::{Operate, Store};
use uuid::Uuid;

/// An outbox that no other test uses.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// The outbox as the dispatcher sees it.
    fn store(&self) -> Arc<dyn Store>;

    /// The outbox as an operator sees it.
    fn operate(&self) -> Arc<dyn Operate>;

    /// Begins a transaction of an application.
    async fn begin(&self) -> Box<dyn Tx>;

    /// Lets time pass: makes every time in every row older by `by` (of events: due, lease, created, updated,
    /// delivered; of lanes, workers and paused destinations too), or moves the clock. Negative: the clock goes
    /// backwards.
    async fn age(&self, by: time::Duration);

    /// Can the backend do this, and if not, why not? What it cannot is printed as skipped.
    ///
    /// # Errors
    /// The reason.
    fn can(&self, what: Capability) -> Result<(), Skipped>;

    /// Writes a value into a row that Pillarbox never writes. Called only if [`can`](Self::can) allows it.
    async fn corrupt(&self, id: Uuid, corruption: Corruption);

    /// Called after a case that passed. The outbox of a failed case stays, so that it can be examined.
    async fn clean_up(&self) {}

    /// Enqueues in a transaction that commits.
    ///
    /// # Errors
    /// The error of `enqueue`. The transaction is rolled back.
    async fn enqueue(&self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut tx = self.begin().await;
        match tx.enqueue(events).await {
            Ok(enqueued) => {
                tx.commit().await;
                Ok(enqueued)
            }
            Err(error) => {
                tx.rollback().await;
                Err(error)
            }
        }
    }
}

/// An application's transaction.
#[async_trait]
pub trait Tx: Send {
    /// Enqueues all of these in one call.
    ///
    /// # Errors
    /// The error of `enqueue`.
    async fn enqueue(&mut self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError>;

    /// What [`Outbox::enqueued`](pillarbox::Outbox::enqueued) sees. Called only where [`Capability::Outbox`] is there.
    async fn enqueued(&mut self) -> Vec<Event> {
        unreachable!("excluded by `can`");
    }

    /// [`Outbox::enqueue_recorded`](pillarbox::Outbox::enqueue_recorded). Called only where [`Capability::Outbox`] is
    /// there.
    ///
    /// # Errors
    /// The error of `enqueue_recorded`.
    async fn enqueue_recorded(&mut self, _recorded: &mut Recorded) -> Result<Vec<Enqueued>, EnqueueError> {
        unreachable!("excluded by `can`");
    }

    /// [`Inbox::mark_all`](pillarbox::inbox::Inbox::mark_all). Called, as what follows, only where [`Capability::Outbox`] is
    /// there.
    ///
    /// # Errors
    /// The error of `mark_all`.
    async fn mark(&mut self, _consumer: &str, _keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        unreachable!("excluded by `can`");
    }

    /// [`Inbox::unmark`](pillarbox::inbox::Inbox::unmark).
    ///
    /// # Errors
    /// The error of `unmark`.
    async fn unmark(&mut self, _consumer: &str, _keys: &[Key]) -> Result<(), StoreError> {
        unreachable!("excluded by `can`");
    }

    /// [`Inbox::prune`](pillarbox::inbox::Inbox::prune) of what is older than `keep`.
    ///
    /// # Errors
    /// The error of `prune`.
    async fn prune(&mut self, _consumer: &str, _keep: Duration) -> Result<u64, StoreError> {
        unreachable!("excluded by `can`");
    }

    /// Sets a savepoint. Called only if [`Harness::can`] allows it.
    async fn savepoint(&mut self);

    /// Rolls back to the savepoint.
    async fn rollback_to_savepoint(&mut self);

    /// Commits.
    async fn commit(self: Box<Self>);

    /// Rolls back.
    async fn rollback(self: Box<Self>);
}

/// What not every backend can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Two transactions can have written at the same time.
    ConcurrentTransactions,
    /// An enqueue waits until another transaction with the same dedupe key ends. Otherwise the commit decides.
    EnqueueWaitsForRivals,
    /// A transaction can go back to a mark within it.
    Savepoints,
    /// Events go through [`pillarbox::Outbox`], which compresses the large ones and knows the trace.
    Outbox,
    /// The lanes of a namespace can be shared by several workers.
    ManyRanges,
    /// A row can be written over like this.
    Corrupt(Corruption),
    /// An event can have this.
    Field(Field),
    /// An enqueue rejects what cannot be stored or sent, and does not deadlock.
    Checks,
    /// Events are written into the very table that is worked on: a row has its `seq` at once, and when it is deleted,
    /// nothing of it is left.
    OwnTable,
    /// Rows can be archived before they are pruned, and restored.
    Archive,
    /// A row need not know how many attempts it has.
    OpenLimit,
    /// A search finds a backlog with keys only if a claim can take one of its rows.
    ExactFind,
}

/// A field of an event. An adopted table may have no column for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// One of several namespaces.
    Namespace,
    /// One of several topics.
    Topic,
    /// A tenant, or none.
    Tenant,
    /// A dedupe key, or none.
    DedupeKey,
    /// An ordering key, or none.
    OrderingKey,
    /// Any JSON, which stays JSON.
    Json,
    /// Bytes of any media type.
    Bytes,
    /// Headers.
    Headers,
    /// A destination that the producer names.
    Destination,
    /// A time before which it is not sent.
    DeliverAt,
}

/// What another program might write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Corruption {
    /// `status` becomes this.
    Status(&'static str),
    /// `attempts` becomes -3.
    NegativeAttempts,
    /// A claimed row loses its `locked_by`, `locked_until` and `claim_id`, and stays `processing`.
    LeaseWithoutEnd,
    /// `headers` become `{"text": "a", "number": 1, "flag": true, "list": [1], "nothing": null}`.
    ForeignHeaders,
    /// `created_at` becomes a time that does not exist.
    ImpossibleTime,
}

/// Why a case was not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped(pub &'static str);
