//! Commits aggregates and everything that they recorded, in one transaction.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox_store::stores::memory::Memory;
//! use pillarbox::{Event, Outbox, Recorded, UnitOfWork};
//!
//! let (store, outbox) = (Memory::default(), Outbox::default());
//! let mut invitation = Recorded::default(); // an aggregate; see `pillarbox::aggregate`
//! invitation.record(&Event::new("family", "members").event_type("MemberInvited"));
//!
//! let work = UnitOfWork::new(&outbox, store.begin());
//! // … repositories save the aggregate in `work`, which is their transaction
//! work.commit(&mut [&mut invitation]).await?;
//!
//! assert_eq!(store.events().len(), 1);
//! assert!(invitation.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! A unit of work is its transaction to everything that takes one: `repository.save(&mut work, …)` where a repository
//! takes `&mut PgConnection`, `query.execute(&mut **work)` with sqlx itself.
//!
//! What an aggregate recorded is cleared only after the commit succeeded. Whatever fails before, everything stays
//! recorded, and a new unit of work commits the same aggregates: the same events, with the same ids.
//!
//! **A commit whose answer was lost** may have happened. The next unit of work that commits these aggregates looks their
//! events up first, in its own transaction, and writes only those that are not there. Saving must stand being done
//! twice, as by an upsert; or ask [`was_committed`](UnitOfWork::was_committed) first, and there is nothing left to save. An
//! event is found as long as its row is there, so try again sooner than the outbox is pruned.
//!
//! **If we die here** before the commit, nothing happened: neither the change nor its events. After it, both did, and
//! whoever handles the command again finds the change made.

use std::ops::{Deref, DerefMut};

use crate::aggregate::{Aggregate, Batch, committed};
use crate::enqueue::{EnqueueError, Enqueued};
use crate::error::StoreError;
use crate::failpoint;
use crate::outbox::{Outbox, Transaction};

/// A transaction that enqueues what aggregates recorded when it commits. Dropped without, it is rolled back, and nothing
/// is cleared.
#[derive(Debug)]
#[must_use = "dropped without a commit, it is rolled back"]
pub struct UnitOfWork<'a, T> {
    outbox: &'a Outbox,
    transaction: T,
}

/// Why a unit of work did not commit, as far as one can know. Everything stays recorded: try again with the same
/// aggregates and a new unit of work.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// What was recorded could not be enqueued. The transaction is rolled back.
    #[error(transparent)]
    Enqueue(#[from] EnqueueError),
    /// The database refused to commit, or nobody knows whether it did.
    #[error("the commit failed, or its answer was lost: {0}")]
    Commit(StoreError),
}

impl<'a, T: Transaction> UnitOfWork<'a, T> {
    /// Takes over a transaction that was just begun.
    pub fn new(outbox: &'a Outbox, transaction: T) -> Self {
        failpoint::hit("before_save");
        Self { outbox, transaction }
    }

    /// Enqueues everything that the aggregates recorded, in the order in which it was recorded, commits, and clears them.
    /// Says of each event whether it is new.
    ///
    /// # Errors
    /// When an event is refused or the commit fails; everything stays recorded. The future may be dropped half-way: that
    /// is a commit whose answer was lost.
    pub async fn commit(
        mut self,
        aggregates: &mut [&mut dyn Aggregate],
    ) -> Result<Vec<Enqueued>, CommitError> {
        failpoint::hit("after_save");
        let enqueued = self
            .outbox
            .enqueue_recorded(&mut self.transaction, aggregates)
            .await?;
        failpoint::hit("before_commit");
        self.transaction.commit().await.map_err(CommitError::Commit)?;
        failpoint::hit("after_commit");
        committed(aggregates);
        Ok(enqueued)
    }

    /// Did an earlier commit of these aggregates happen whose answer was lost? Then everything that they recorded is in the
    /// outbox, so that they were saved as well: they are cleared, and there is nothing left to do. Asks the database only
    /// if there was such a commit.
    ///
    /// No, if they have recorded anything since.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn was_committed(&mut self, aggregates: &mut [&mut dyn Aggregate]) -> Result<bool, StoreError> {
        let batch = Batch::of(aggregates).ok().filter(Batch::is_in_doubt);
        let Some(in_doubt) = batch.map(|batch| batch.in_doubt()) else {
            return Ok(false);
        };
        let there = self.transaction.taken(self.outbox, &in_doubt).await?;
        let all = in_doubt.iter().all(|id| there.contains(id));
        if all {
            committed(aggregates);
        }
        Ok(all)
    }
}

impl<T> Deref for UnitOfWork<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.transaction
    }
}

impl<T> DerefMut for UnitOfWork<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.transaction
    }
}
