//! What a backend brings to the suite: an outbox of its own for every case, and hands that reach
//! where the ports do not.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox::inbox::Key;
use pillarbox::{EnqueueError, Enqueued, Event, Recorded, StoreError};
use pillarbox_store::{Operate, Store};
use uuid::Uuid;

/// One outbox that nobody else uses.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// The outbox as the dispatcher sees it.
    fn store(&self) -> Arc<dyn Store>;

    /// The outbox as people see it.
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
    /// The reason, for people.
    fn can(&self, what: Capability) -> Result<(), Skipped>;

    /// Writes into a row what no Pillarbox would. Called only for what [`can`](Self::can) allows.
    async fn corrupt(&self, id: Uuid, corruption: Corruption);

    /// Called after a case that passed; what a failed one leaves is there to be looked at.
    async fn clean_up(&self) {}

    /// Enqueues in a transaction that commits.
    ///
    /// # Errors
    /// What `enqueue` says; the transaction is then rolled back.
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
    /// What `enqueue` says.
    async fn enqueue(&mut self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError>;

    /// What [`Outbox::enqueued`](pillarbox::Outbox::enqueued) sees. Called only where [`Capability::Outbox`] is there.
    async fn enqueued(&mut self) -> Vec<Event> {
        unreachable!("`can` says that this is no `Outbox`");
    }

    /// [`Outbox::enqueue_recorded`](pillarbox::Outbox::enqueue_recorded). Called only where [`Capability::Outbox`] is
    /// there.
    ///
    /// # Errors
    /// What `enqueue_recorded` says.
    async fn enqueue_recorded(&mut self, _recorded: &mut Recorded) -> Result<Vec<Enqueued>, EnqueueError> {
        unreachable!("`can` says that this is no `Outbox`");
    }

    /// [`Inbox::mark_all`](pillarbox::Inbox::mark_all). Called, as what follows, only where [`Capability::Outbox`] is
    /// there.
    ///
    /// # Errors
    /// What `mark_all` says.
    async fn mark(&mut self, _consumer: &str, _keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        unreachable!("`can` says that this is no `Outbox`");
    }

    /// [`Inbox::unmark`](pillarbox::Inbox::unmark).
    ///
    /// # Errors
    /// What `unmark` says.
    async fn unmark(&mut self, _consumer: &str, _keys: &[Key]) -> Result<(), StoreError> {
        unreachable!("`can` says that this is no `Outbox`");
    }

    /// [`Inbox::prune`](pillarbox::Inbox::prune) of what is older than `keep`.
    ///
    /// # Errors
    /// What `prune` says.
    async fn prune(&mut self, _consumer: &str, _keep: Duration) -> Result<u64, StoreError> {
        unreachable!("`can` says that this is no `Outbox`");
    }

    /// Sets a mark to which the transaction can go back. Called only where [`Harness::can`] allows it.
    async fn savepoint(&mut self);

    /// Goes back to the mark: what came after it never was.
    async fn rollback_to_savepoint(&mut self);

    /// Makes it so.
    async fn commit(self: Box<Self>);

    /// Makes it never have been.
    async fn rollback(self: Box<Self>);
}

/// What not every backend can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Two transactions can have written at the same time.
    ConcurrentTransactions,
    /// An enqueue waits for another transaction with the same dedupe key to end, and so knows its own
    /// fate; where it does not, the commit decides.
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
    /// Whoever enqueues is told what cannot be stored or sent, and is kept from deadlocks.
    Checks,
    /// Events are written into the very table that is worked on: a row has its `seq` at once, and when it is deleted,
    /// nothing of it is left.
    OwnTable,
    /// A row need not know how many attempts it has.
    OpenLimit,
}

/// What an event may say of itself; a table that somebody else designed may have no column for it.
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

/// What another client of the database might write.
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
}

/// Why a case was not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped(pub &'static str);
