//! Commits aggregates and the events that they recorded, in one transaction.
//!
//! **If we die here** before the commit, nothing happened: neither the change nor its events. After it, both did. A command
//! that is handled again finds the change made.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use uuid::Uuid;

use crate::aggregate::{Aggregate, Batch, Tracked, committed};
use crate::enqueue::{EnqueueError, Enqueued};
use crate::error::StoreError;
use crate::failpoint;
use crate::outbox::sealed::Backend as _;
use crate::outbox::{Outbox, Transaction};

/// A transaction that enqueues what aggregates recorded when it commits. Dropped without a commit, it is rolled back, and
/// the aggregates keep their events.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use pillarbox_store::stores::memory::Memory;
/// use pillarbox::{Event, Outbox, Recorded, UnitOfWork};
///
/// let (store, outbox) = (Memory::default(), Outbox::default());
/// let mut invitation = Recorded::default(); // an aggregate
/// invitation.record(&Event::new("family", "members").event_type("MemberInvited"));
///
/// let work = UnitOfWork::new(&outbox, store.begin());
/// // … repositories save the aggregate in `work`, which is their transaction
/// work.commit(&mut [&mut invitation]).await?;
///
/// assert_eq!(store.events().len(), 1);
/// assert!(invitation.is_empty());
/// # Ok(())
/// # }
/// ```
///
/// Whatever takes a transaction takes a unit of work: `repository.save(&mut work, …)` where a repository takes
/// `&mut PgConnection`, `query.execute(&mut **work)` with sqlx itself.
///
/// What an aggregate recorded is cleared only after the commit succeeded. If anything fails before, everything stays
/// recorded. A new unit of work then commits the same events with the same ids.
///
/// **A commit whose answer was lost** may have happened. The next unit of work that commits these aggregates looks their
/// events up first, in its own transaction, and writes only those that are missing. So saving must be idempotent, as an
/// upsert is; or ask [`was_committed`](UnitOfWork::was_committed) first. An event is found as long as its row exists: retry
/// sooner than the outbox is pruned.
#[derive(Debug)]
#[must_use = "dropped without a commit, it is rolled back"]
pub struct UnitOfWork<'a, T> {
    outbox: &'a Outbox,
    pub(crate) transaction: T,
    /// With the name of each aggregate's type.
    tracked: Vec<(&'static str, Arc<Tracked>)>,
}

/// Why a unit of work did not commit. Everything stays recorded: retry with the same aggregates and a new unit of work.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// What was recorded could not be enqueued. The transaction is rolled back.
    #[error(transparent)]
    Enqueue(#[from] EnqueueError),
    /// An aggregate that is [tracked](UnitOfWork::track) recorded events and was not handed to the commit. Nothing was
    /// written, and the transaction is rolled back.
    #[error(
        "commit refused: {events} recorded events of the tracked aggregate `{aggregate}`{} would be lost (pass the aggregate \
         to the commit, or clear what it recorded)",
        with_id(.id.as_deref())
    )]
    NotListed {
        /// The aggregate's type.
        aggregate: &'static str,
        /// The aggregate's id, if its events name one.
        id: Option<String>,
        /// How many events it recorded.
        events: usize,
    },
    /// The database rejected the commit, or its answer was lost.
    #[error("commit failed or its answer was lost: {0} (retry with the same aggregates)")]
    Commit(StoreError),
}

fn with_id(id: Option<&str>) -> String {
    id.map_or_else(String::new, |id| format!(" with the id {id:?}"))
}

impl<'a, T> UnitOfWork<'a, T> {
    /// Takes over a transaction that was just begun.
    pub fn new(outbox: &'a Outbox, transaction: T) -> Self {
        failpoint::hit("before_save");
        Self {
            outbox,
            transaction,
            tracked: Vec::new(),
        }
    }

    /// Watches over an aggregate, so that its events cannot be lost. If the commit is not handed everything that the
    /// aggregate has recorded by then, it fails and [names it](CommitError::NotListed), even if the aggregate was dropped
    /// meanwhile. Call it where a repository loads or creates an aggregate.
    ///
    /// The events of a missing aggregate are not simply enqueued: the caller that forgot to pass it probably forgot to
    /// save it, and they would announce a change that is not in the database.
    pub fn track<A: Aggregate + ?Sized>(&mut self, aggregate: &mut A) {
        let tracked = aggregate.recorded().track();
        self.tracked.push((std::any::type_name::<A>(), tracked));
    }

    /// Is everything that tracked aggregates recorded among these?
    fn check_listed(&self, aggregates: &mut [&mut dyn Aggregate]) -> Result<(), CommitError> {
        for (aggregate, tracked) in &self.tracked {
            if let Some((events, id)) = tracked.missing_from(aggregates) {
                return Err(CommitError::NotListed {
                    aggregate,
                    id,
                    events,
                });
            }
        }
        Ok(())
    }
}

/// What is left to do once the commit is confirmed.
fn confirmed(outbox: &Outbox, aggregates: &mut [&mut dyn Aggregate], enqueued: &[Enqueued]) {
    failpoint::hit("after_commit");
    committed(aggregates);
    if !enqueued.is_empty() {
        outbox.wake();
    }
}

impl<T: Transaction> UnitOfWork<'_, T> {
    /// Enqueues everything that the aggregates recorded, in the order in which it was recorded, commits, and clears them.
    /// Then wakes the dispatcher, if the outbox has a [wake](Outbox::wakes). Returns for each event whether it is new.
    ///
    /// # Errors
    /// When an event is refused, a [tracked](Self::track) aggregate is missing or the commit fails; everything stays
    /// recorded. The future may be dropped half-way: that is a commit whose answer was lost.
    pub async fn commit(
        mut self,
        aggregates: &mut [&mut dyn Aggregate],
    ) -> Result<Vec<Enqueued>, CommitError> {
        failpoint::hit("after_save");
        self.check_listed(aggregates)?;
        let enqueued = self
            .outbox
            .enqueue_recorded(&mut self.transaction, aggregates)
            .await?;
        failpoint::hit("before_commit");
        self.transaction.commit().await.map_err(CommitError::Commit)?;
        confirmed(self.outbox, aggregates, &enqueued);
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
        let Some(in_doubt) = all_in_doubt(aggregates) else {
            return Ok(false);
        };
        let there = self.transaction.backend().taken(self.outbox, &in_doubt).await?;
        Ok(clear_if_there(aggregates, &in_doubt, &there))
    }
}

#[cfg(feature = "diesel")]
impl<C: crate::diesel::Blocking> UnitOfWork<'_, crate::diesel::BlockingTransaction<C>> {
    /// [`commit`](UnitOfWork::commit), blocking.
    ///
    /// # Errors
    /// As for [`commit`](UnitOfWork::commit).
    pub fn commit_blocking(
        mut self,
        aggregates: &mut [&mut dyn Aggregate],
    ) -> Result<Vec<Enqueued>, CommitError> {
        failpoint::hit("after_save");
        self.check_listed(aggregates)?;
        let enqueued = self
            .outbox
            .enqueue_recorded_blocking(&mut *self.transaction, aggregates)?;
        failpoint::hit("before_commit");
        self.transaction.commit().map_err(CommitError::Commit)?;
        confirmed(self.outbox, aggregates, &enqueued);
        Ok(enqueued)
    }

    /// [`was_committed`](UnitOfWork::was_committed), blocking.
    ///
    /// # Errors
    /// As for [`was_committed`](UnitOfWork::was_committed).
    pub fn was_committed_blocking(
        &mut self,
        aggregates: &mut [&mut dyn Aggregate],
    ) -> Result<bool, StoreError> {
        let Some(in_doubt) = all_in_doubt(aggregates) else {
            return Ok(false);
        };
        let there = self.transaction.taken(self.outbox, &in_doubt)?;
        Ok(clear_if_there(aggregates, &in_doubt, &there))
    }
}

/// The ids of the aggregates' events, if all of them were written in a transaction that may have committed.
fn all_in_doubt(aggregates: &mut [&mut dyn Aggregate]) -> Option<Vec<Uuid>> {
    let batch = Batch::of(aggregates).ok().filter(Batch::is_in_doubt)?;
    Some(batch.in_doubt())
}

fn clear_if_there(aggregates: &mut [&mut dyn Aggregate], in_doubt: &[Uuid], there: &[Uuid]) -> bool {
    let all = in_doubt.iter().all(|id| there.contains(id));
    if all {
        committed(aggregates);
    }
    all
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
