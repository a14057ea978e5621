//! The port to adopted tables: what the dispatcher needs to import their rows.
//!
//! An adopted table is designed by others and served by Pillarbox. Its rows are imported as native rows, and the engine
//! works on native rows only. A store that adopts tables offers one [`Import`] for each: see
//! [`Store::importers`](crate::Store::importers).

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::store::StoreError;

/// An adopted table, as the dispatcher knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptedTable {
    /// Its name in the configuration.
    pub name: String,
    /// How often to look for new rows.
    pub poll: Duration,
    /// How many rows are imported at once.
    pub batch: usize,
    /// Does each row have its own limit of attempts? Then `name` is the namespace of all its rows.
    pub own_limits: bool,
}

/// One round of an importer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportRequest {
    /// The worker that asks.
    pub worker: Uuid,
    /// For how long it becomes the table's importer.
    pub lease: Duration,
    /// How many rows to import at most.
    pub batch: usize,
    /// How many imported rows may be unfinished at once.
    pub max_in_progress: usize,
    /// Detect changes by others, and retry pending write-backs. This compares every row in progress, so it is not done in
    /// every round.
    pub detect_changes: bool,
    /// Prune delivered rows and mapping rows, count unknown statuses, and find ends that were not written back. This may
    /// read the whole table, so once a minute is enough.
    pub prune: bool,
}

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// Rows that were imported.
    pub rows: usize,
    /// Rows that cannot be imported, found in this round. They are left alone.
    pub failed: usize,
    /// There may be more rows to import.
    pub more: bool,
    /// As many rows are in progress as may be.
    pub full: bool,
    /// Rows that were reset by others, and are imported again.
    pub reset: usize,
    /// Rows that were ended or deleted by others.
    pub dropped: usize,
    /// Delivered rows that were pruned.
    pub pruned: usize,
    /// There may be more rows to prune.
    pub more_to_prune: bool,
    /// Rows with a status that the layout does not know, up to a bound. They are left alone. `None` if not counted in this
    /// round.
    pub unknown_status: Option<usize>,
}

/// Imports the rows of one adopted table.
#[async_trait]
pub trait Import: Send + Sync + 'static {
    /// Which table.
    fn table(&self) -> &AdoptedTable;

    /// Imports rows in the table's own order, if this worker holds the table's lease or can get it. Does nothing otherwise.
    ///
    /// # Errors
    /// When the database does not answer, or the role lacks a permission on the table.
    async fn import(&self, request: &ImportRequest) -> Result<Imported, StoreError>;
}
