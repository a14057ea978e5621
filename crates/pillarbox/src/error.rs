//! Why a database could not do what was asked.

/// Why a store could not do what was asked. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, is starting or stopping, or gave up on us: try again later.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// The outbox is not there.
    #[error("there is no outbox in {0}; run `pillarbox migrate`")]
    Missing(String),
    /// The schema is older than this program.
    #[error("the outbox schema is at version {found}, this program needs {needed}; run `pillarbox migrate`")]
    Outdated {
        /// What is there.
        found: i32,
        /// What is needed.
        needed: i32,
    },
    /// The schema is newer than this program.
    #[error(
        "the outbox schema is at version {found}, this program knows only {known}; use a newer pillarbox"
    )]
    Newer {
        /// What is there.
        found: i32,
        /// What is known.
        known: i32,
    },
    /// The database role may not do this.
    #[error("the database refused: {0}; see docs/postgres.md for the rights that a dispatcher needs")]
    Denied(String),
    /// Anything else: a bug of ours, or a table that somebody changed.
    #[error("the database answered: {0}")]
    Other(String),
}
