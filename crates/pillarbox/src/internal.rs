//! What the other crates of Pillarbox share with this one. Not for applications: it changes without notice.

#[cfg(feature = "postgres")]
pub use crate::connect::{acquire, root_cause};
pub use crate::derived_id::derived_id;
pub use crate::line_limit::LineLimit;
pub use crate::network::is_local;
pub use crate::outbox::enqueued::restored;
pub use crate::outbox::sealed;
#[cfg(feature = "sqlite")]
pub use crate::outbox::sqlite;
pub use crate::saga::{Log, Request, Response, Row};
pub use crate::validate::{MAX_NAME, validate};
pub mod schema {
    //! Names and errors of PostgreSQL.
    pub use crate::schema::{SCHEMA, check_name, error_of, in_schema, quoted};
}
pub mod envelope {
    //! The event's columns.
    pub use crate::envelope::{COLUMNS, Column, Columns, Kind, Value, texts_of, with_columns};
}
