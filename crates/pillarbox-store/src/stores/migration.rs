//! One step of a schema's history, the same kind of thing in every SQL store.

/// SQL that brings the outbox from the version before to this one.
///
/// A migration that was released never changes; what is wrong in it is mended by the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Counts from 1, without gaps.
    pub version: i32,
    /// What it does, in a few words.
    pub name: &'static str,
    /// How.
    pub sql: &'static str,
}

/// What a migration run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The version that was there; 0 if there was none.
    pub from: i32,
    /// The version that is there now.
    pub to: i32,
}
