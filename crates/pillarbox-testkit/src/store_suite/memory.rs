//! The reference's harness: the memory store on a clock that the suite moves.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox::inbox::Inbox;
use pillarbox::inbox::Key;
use pillarbox::{EnqueueError, Enqueued, Event, Outbox, Recorded, StoreError};
use pillarbox_store::stores::memory::{Memory, Transaction};
use pillarbox_store::{Operate, Status, Store};
use uuid::Uuid;

use super::harness::{Capability, Corruption, Harness, Skipped, Tx};
use crate::clock::ManualClock;

/// An outbox in memory.
pub struct MemoryHarness {
    clock: Arc<ManualClock>,
    outbox: Memory,
}

impl MemoryHarness {
    /// An empty one.
    pub async fn fresh() -> Self {
        let clock = Arc::new(ManualClock::default());
        Self {
            outbox: Memory::new(clock.clone()),
            clock,
        }
    }
}

#[async_trait]
impl Harness for MemoryHarness {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.outbox.clone())
    }

    fn operate(&self) -> Arc<dyn Operate> {
        Arc::new(self.outbox.clone())
    }

    async fn begin(&self) -> Box<dyn Tx> {
        Box::new(MemoryTx(self.outbox.begin()))
    }

    async fn age(&self, by: time::Duration) {
        self.clock.advance(by);
    }

    fn can(&self, what: Capability) -> Result<(), Skipped> {
        match what {
            Capability::ConcurrentTransactions
            | Capability::Outbox
            | Capability::ManyRanges
            | Capability::Field(_)
            | Capability::Checks
            | Capability::OwnTable
            | Capability::OpenLimit
            | Capability::ExactFind
            | Capability::Corrupt(Corruption::Status(_) | Corruption::LeaseWithoutEnd) => Ok(()),
            Capability::Archive => Err(Skipped("rows are not archived from memory")),
            Capability::Savepoints => Err(Skipped("memory has none")),
            Capability::EnqueueWaitsForRivals => {
                Err(Skipped("memory does not wait; the commit leaves the loser out"))
            }
            Capability::Corrupt(Corruption::NegativeAttempts) => Err(Skipped("memory counts in u32")),
            Capability::Corrupt(Corruption::ForeignHeaders) => Err(Skipped("memory holds headers as text")),
            Capability::Corrupt(Corruption::ImpossibleTime) => Err(Skipped("memory holds times that exist")),
        }
    }

    async fn corrupt(&self, id: Uuid, corruption: Corruption) {
        self.outbox.overwrite(id, |state| match corruption {
            Corruption::Status(text) => state.status = Status::from(text),
            Corruption::LeaseWithoutEnd => state.lease = None,
            Corruption::NegativeAttempts | Corruption::ForeignHeaders | Corruption::ImpossibleTime => {
                unreachable!("excluded by `can`")
            }
        });
    }
}

struct MemoryTx(Transaction);

#[async_trait]
impl Tx for MemoryTx {
    async fn enqueue(&mut self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        Outbox::default().enqueue_all(&mut self.0, events).await
    }

    async fn enqueued(&mut self) -> Vec<Event> {
        Outbox::default().enqueued(&mut self.0).await.expect("it reads")
    }

    async fn enqueue_recorded(&mut self, recorded: &mut Recorded) -> Result<Vec<Enqueued>, EnqueueError> {
        Outbox::default()
            .enqueue_recorded(&mut self.0, &mut [recorded])
            .await
    }

    async fn mark(&mut self, consumer: &str, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        Inbox::default().mark_all(&mut self.0, consumer, keys).await
    }

    async fn unmark(&mut self, consumer: &str, keys: &[Key]) -> Result<(), StoreError> {
        Inbox::default().unmark(&mut self.0, consumer, keys).await
    }

    async fn prune(&mut self, consumer: &str, keep: Duration) -> Result<u64, StoreError> {
        Inbox::default().keep(keep).prune(&mut self.0, consumer).await
    }

    async fn savepoint(&mut self) {
        unreachable!("excluded by `can`");
    }

    async fn rollback_to_savepoint(&mut self) {
        unreachable!("excluded by `can`");
    }

    async fn commit(self: Box<Self>) {
        self.0.commit();
    }

    async fn rollback(self: Box<Self>) {}
}
