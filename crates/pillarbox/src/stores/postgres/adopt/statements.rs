//! The statements that work on one adopted table, made of its layout and of the types of its columns.
//!
//! `source || ''` keeps the planner to the index on `event_id` where events are named: by the primary key it would read all
//! that is noted of the table. Seen in a plan of 2026-11-15 with 9,000 rows noted: 22 of 100 ms, and it grows with them.
//!
//! Identifiers stand between quotes, values are literals that were escaped; nothing of a row is ever part of a
//! statement.

mod heed;
mod table;
mod take;
mod tell;

use std::sync::Mutex;
use std::time::Duration;

use self::table::Table;
use super::Source;
use super::inspect::{Column, fits};
use super::layout::LayoutError;
use crate::schema::in_schema;
use crate::store::Importing;
use crate::stores::postgres::sql::literal;

/// A layout that fits its table, ready to work.
#[derive(Debug)]
pub(crate) struct Adoption {
    /// What rows know it by.
    pub(crate) source: String,
    /// Takes rows over. $1 source   $2 how many
    pub(super) import: String,
    /// The same after the place of the last one. $3 the place
    pub(super) import_after: String,
    /// The place of the last row that was taken, while there are more: what is before it is on its way, and need not be
    /// looked through for every batch. What was committed late is found when the table is looked at from its beginning.
    pub(super) floor: Mutex<Option<Vec<String>>>,
    /// Finds rows that a person changed, and rows that are gone. $1 source
    pub(super) heed: String,
    /// Locks the rows of these events. $1 source   $2 events
    pub(super) lock: String,
    /// Writes what became of these events. $1 source   $2 events
    pub(super) tell: String,
    /// Of these events, those whose rows are gone need not be told. $1 source   $2 events
    pub(super) forgo: String,
    /// Counts rows whose status is none of the layout's. $1 how many at the most
    pub(super) strangers: Option<String>,
    /// Deletes delivered rows that are old enough. $1 source   $2 how many at the most
    pub(super) prune: Option<String>,
    poll: Duration,
    batch: usize,
    own_limits: bool,
}

impl Adoption {
    pub(super) fn new(from: &Source, columns: &[Column], schema: &str) -> Result<Self, LayoutError> {
        let layout = &from.layout;
        layout.check()?;
        fits(layout, columns)?;
        let table = Table {
            source: &from.name,
            layout,
            columns,
        };
        table.check_types()?;
        let ours = |text: String| in_schema(&text, schema);
        Ok(Self {
            source: from.name.clone(),
            import: ours(table.import(&[])),
            import_after: ours(table.import(&table.floor())),
            floor: Mutex::default(),
            heed: ours(table.heed()),
            lock: ours(table.lock()),
            tell: ours(table.tell()),
            forgo: ours(table.forgo()),
            strangers: table.strangers(),
            prune: from.prune.map(|age| table.prune(age)).transpose()?.map(ours),
            poll: from.poll,
            batch: from.batch,
            own_limits: layout.max_retries.is_some(),
        })
    }

    pub(in crate::stores::postgres) fn importing(&self) -> Importing {
        Importing {
            source: self.source.clone(),
            poll: self.poll,
            batch: self.batch,
            own_limits: self.own_limits,
        }
    }
}
