//! A migration, the same type for every SQL store.

/// SQL that migrates the outbox from the previous version to this one.
///
/// A released migration never changes. The next one fixes its faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Counts from 1, without gaps.
    pub version: i32,
    /// Its name.
    pub name: &'static str,
    /// The statements.
    pub sql: &'static str,
}

/// What a migration run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The version before; 0 if there was no outbox.
    pub from: i32,
    /// The version now.
    pub to: i32,
}
