//! The reference: an outbox in memory, short enough to read, made of the [state machine](crate::state)
//! and nothing else.
//!
//! For tests. **If we die here** everything is gone; a store that survives is next door.

mod claim;
mod enqueue;
mod operate;
mod settle;
mod sweep;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use uuid::Uuid;

pub use self::enqueue::Transaction;
use crate::clock::{Clock, SystemClock};
use crate::event::{Delivery, Event};
use crate::state::State;
use crate::store::{ClaimRequest, Scope, Settlement, Store, StoreError, Swept};
use crate::validate::Limits;

/// An outbox in memory. Clones share it.
#[derive(Debug, Clone)]
pub struct Memory {
    table: Arc<Mutex<Table>>,
    clock: Arc<dyn Clock>,
    limits: Limits,
}

/// The rows in the order of `seq`, and the next `seq`, which is never given twice.
#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<i64, Row>,
    last_seq: i64,
}

#[derive(Debug, Clone)]
struct Row {
    seq: i64,
    event: Event,
    state: State,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    delivered_at: Option<OffsetDateTime>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl Memory {
    /// An empty outbox that takes its time from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            table: Arc::default(),
            clock,
            limits: Limits::default(),
        }
    }

    /// Sets what is accepted.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Writes over a row's state, as another client of a database could. For tests of what follows.
    pub fn overwrite(&self, id: Uuid, change: impl FnOnce(&mut State)) {
        if let Some(row) = self.table().find(id) {
            change(&mut row.state);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while it holds the table half-changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn find(&mut self, id: Uuid) -> Option<&mut Row> {
        self.rows.values_mut().find(|row| row.event.id == id)
    }
}

#[async_trait]
impl Store for Memory {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
        Ok(self.table().claim(request, self.clock.wall()))
    }

    async fn settle(&self, worker: Uuid, settlements: &[Settlement]) -> Result<Vec<Uuid>, StoreError> {
        Ok(self.table().settle(worker, settlements, self.clock.wall()))
    }

    async fn renew(
        &self,
        worker: Uuid,
        held: &[(Uuid, Uuid)],
        lease: Duration,
    ) -> Result<Vec<Uuid>, StoreError> {
        Ok(self.table().renew(worker, held, lease, self.clock.wall()))
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32, grace: Duration) -> Result<Swept, StoreError> {
        Ok(self.table().sweep(scope, max_attempts, grace, self.clock.wall()))
    }

    async fn is_due(&self, scope: &Scope) -> Result<bool, StoreError> {
        Ok(self.table().is_due(scope, self.clock.wall()))
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
