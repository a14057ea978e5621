//! Errors of the database.

/// Why a statement failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database is unreachable, starting or stopping, or it closed the connection: retry later.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// The schema has no outbox.
    #[error("there is no outbox in {0} (run `pillarbox migrate`)")]
    Missing(String),
    /// The schema is older than this program.
    #[error("the outbox schema is at version {found}, this program needs {needed} (run `pillarbox migrate`)")]
    Outdated {
        /// The version of the schema.
        found: i32,
        /// The version that this program needs.
        needed: i32,
    },
    /// The schema is newer than this program.
    #[error(
        "the outbox schema is at version {found}, this program knows only {known} (use a newer pillarbox)"
    )]
    Newer {
        /// The version of the schema.
        found: i32,
        /// The newest version that this program knows.
        known: i32,
    },
    /// The schema has the version of this program, and other tables: a program built from other sources created it.
    #[error(
        "the schema was created by another build of version {version}: its tables may differ from those that this program \
         needs (use the build that created it, or migrate a new schema)"
    )]
    OtherBuild {
        /// The version, which both builds have.
        version: i32,
    },
    /// The database role lacks a permission.
    #[error("the database refused: {0}; see docs/postgres.md for the permissions that the role needs")]
    Denied(String),
    /// The outbox is not safe as it is set up, such as in a schema in which other roles may create functions.
    #[error("the outbox is not safe: {0}")]
    Unsafe(String),
    /// What was asked for is impossible: an invalid name or URL, a role that does not exist.
    #[error("{0}")]
    Invalid(String),
    /// Anything else: a bug in Pillarbox, or a table that another program changed.
    #[error("the database answered: {0}")]
    Other(String),
}
