//! The statements that work on one adopted table, made of its layout and of the types of its columns.
//!
//! They look rows up one by one (lateral, or `any(array(…))`): for a thousand rows the planner would rather read all of a
//! table. Seen in a plan of 2026-11-15: heeding 10,000 rows read 100,000, and took 220 ms.
//!
//! Identifiers stand between quotes, values are literals that were escaped; nothing of a row is ever part of a
//! statement.

mod heed;
mod table;
mod take;
mod tell;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use self::table::Table;
use super::Source;
use super::import::Pace;
use super::inspect::{Column, fits, quoted_table};
use super::layout::{LayoutError, Status};
use crate::store::Importing;
use crate::stores::postgres::sql::literal;
use pillarbox::internal::schema::in_schema;

/// A layout that fits its table, ready to work.
#[derive(Debug)]
pub(crate) struct Adoption {
    /// What rows know it by.
    pub(crate) source: String,
    /// The table, between quotes.
    pub(super) table: String,
    /// Are rows deleted from it?
    pub(super) deletes: bool,
    /// Takes rows over. $1 source   $2 how many
    pub(super) import: String,
    /// The same after the place of the last one. $3 the place
    pub(super) import_after: String,
    /// Where the importer stands.
    pub(super) pace: Mutex<Pace>,
    /// Until when nobody tries to tell it, because it refused to be told.
    pub(super) refuses_until: Mutex<Option<Instant>>,
    /// Finds rows that a person changed, and rows that are gone. $1 source
    pub(super) heed: String,
    /// Writes what became of these events. $1 events   $2 the ids of their rows   $3 their marks
    pub(super) tell: String,
    /// Of these events, those whose rows are gone need not be told. $1 events
    pub(super) forgo: String,
    /// Forgets what is noted of rows that were given up on and are gone. $1 source   $2 after which event   $3 how many
    pub(super) forget: String,
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
            table: quoted_table(&layout.table),
            deletes: from.prune.is_some() || layout.status == Status::Presence,
            import: ours(table.import(&[])),
            import_after: ours(table.import(&table.floor())),
            pace: Mutex::default(),
            refuses_until: Mutex::default(),
            heed: ours(table.heed()),
            tell: ours(table.tell()),
            forgo: ours(table.forgo()),
            forget: ours(table.forget()),
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
