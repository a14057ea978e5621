//! The seam between native rows and what must follow when they change.
//!
//! Settle, sweep and operate report every change of native rows here, in the transaction that makes it. The only observer
//! writes the rows' state back to [adopted tables](super::adopt). Where no table is adopted, [`NoObserver`] does nothing.

use async_trait::async_trait;
use uuid::Uuid;

use super::Transaction;
use crate::store::StoreError;

/// Follows changes of native rows.
#[async_trait]
pub(super) trait RowObserver: Send + Sync {
    /// Locks what belongs to these rows, before a statement changes them. Waits for other transactions.
    async fn lock(&self, transaction: &mut Transaction, rows: &[Uuid]) -> Result<Locked, StoreError>;

    /// Locks what belongs to rows that this transaction has already changed. Returns `None` instead of waiting: the other
    /// transaction may wait for these rows.
    async fn try_lock(
        &self,
        transaction: &mut Transaction,
        rows: &[Uuid],
    ) -> Result<Option<Locked>, StoreError>;

    /// Follows the change that was made to the locked rows.
    async fn changed(
        &self,
        transaction: &mut Transaction,
        locked: Locked,
        change: Change<'_>,
    ) -> Result<(), StoreError>;
}

/// What a transaction has locked: events that came from adopted tables. Only the observer reads it.
#[derive(Debug, Default)]
pub(super) struct Locked(pub(super) Vec<LockedEvents>);

/// The locked events of one adopted table.
#[derive(Debug)]
pub(super) struct LockedEvents {
    /// The name of the adopted table.
    pub(super) table: String,
    pub(super) events: Vec<Uuid>,
}

/// What a transaction did to the rows that it locked, beyond new values in their columns.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Change<'a> {
    /// The rows that were to be settled.
    pub(super) rows: &'a [Uuid],
    /// Of those, the rows that were left unchanged, because another claim has them.
    pub(super) lost: &'a [Uuid],
    /// Rows that were deleted because no route matches.
    pub(super) unrouted: &'a [Uuid],
    /// Events of which an operator deleted a row before it was delivered.
    pub(super) deleted: &'a [Uuid],
}

/// Where no table is adopted.
pub(super) struct NoObserver;

#[async_trait]
impl RowObserver for NoObserver {
    async fn lock(&self, _: &mut Transaction, _: &[Uuid]) -> Result<Locked, StoreError> {
        Ok(Locked::default())
    }

    async fn try_lock(&self, _: &mut Transaction, _: &[Uuid]) -> Result<Option<Locked>, StoreError> {
        Ok(Some(Locked::default()))
    }

    async fn changed(&self, _: &mut Transaction, _: Locked, _: Change<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}
