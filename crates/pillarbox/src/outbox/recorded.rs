//! Enqueues what aggregates recorded.
//!
//! **If we die here** the caller's transaction rolls back, and the aggregates are gone as well.

use super::sealed::Backend as _;
use super::{Connection, Outbox};
use crate::aggregate::{Aggregate, Batch, written};
use crate::enqueue::{EnqueueError, Enqueued};
use crate::failpoint;

impl Outbox {
    /// Enqueues everything that the aggregates recorded, in the order in which it was recorded, in the transaction that
    /// `connection` is in. A [`UnitOfWork`](crate::UnitOfWork) calls this and commits; call it yourself where the
    /// library commits, as diesel does at the end of its closure, and [clear](crate::Recorded::clear) them after that.
    ///
    /// Events of an earlier transaction whose outcome is unknown are looked up first. Those that exist count as
    /// [`Enqueued::Duplicate`] and are not written again.
    ///
    /// ```no_run
    /// # #[cfg(feature = "diesel-async")]
    /// # async fn example(
    /// #     connection: &mut diesel_async::AsyncPgConnection,
    /// #     invitation: &mut pillarbox::Recorded,
    /// # ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// use diesel_async::AsyncConnection;
    /// use pillarbox::Outbox;
    ///
    /// let outbox = Outbox::default();
    /// let done = connection.transaction(async |connection| {
    ///     // … save the aggregate
    ///     outbox.enqueue_recorded(connection, &mut [invitation]).await?;
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    /// });
    /// done.await?;
    /// invitation.clear(); // only now, and not inside
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`enqueue`](Self::enqueue), and when something that was recorded has no JSON form. Everything stays
    /// recorded.
    pub async fn enqueue_recorded<C: Connection + ?Sized>(
        &self,
        connection: &mut C,
        aggregates: &mut [&mut dyn Aggregate],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let batch = Batch::of(aggregates).map_err(EnqueueError::NoJson)?;
        let in_doubt = batch.in_doubt();
        let there = if in_doubt.is_empty() {
            Vec::new()
        } else {
            connection.backend().taken(self, &in_doubt).await?
        };
        let enqueued = self.enqueue_all(connection, &batch.without(&there)).await?;
        failpoint::hit("after_enqueue");
        written(aggregates);
        Ok(batch.report(&there, enqueued))
    }
}
