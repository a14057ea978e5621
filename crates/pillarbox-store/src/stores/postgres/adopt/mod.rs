//! Adopted tables: outbox tables designed by others, served as they are.
//!
//! ```text
//! adopted table ──import──▶ native row ──▶ claim, send, settle ──write back──▶ the adopted table's own columns
//! ```
//!
//! One worker at a time imports rows as native rows, in batches and in the table's own order. A row of `adopted`, the mapping
//! row, says which row became which event. It also holds the row's fingerprint. The engine works on native rows only. A
//! transaction that changes a native row writes the new state back to the table.
//!
//! A row that differs from its fingerprint was changed by others. If it is live, it is imported again. If it was ended or
//! deleted, its event is dropped.
//!
//! **If we die here** the transaction rolls back, and both tables still agree.

mod builtin;
mod failures;
mod foreign_code;
mod import;
mod indexes;
mod inspect;
mod layout;
mod maintain;
mod mapping;
mod permissions;
mod statements;
mod tables;
mod write_back;

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

pub use self::builtin::{Habits, built_in, built_ins, habits};
pub use self::foreign_code::foreign_code;
pub(super) use self::import::Importer;
pub use self::indexes::missing_index;
pub use self::inspect::{Column, columns, quoted, quoted_table};
pub use self::layout::{Counts, Delays, DeliveryOrder, EventId, Layout, LayoutError, Payload, Status, Zone};
pub(crate) use self::statements::Adoption;
pub(super) use self::tables::{retry_imports, table, tables};
pub(super) use self::write_back::WriteBack;
use super::{Inner, Transaction, store_error};
use crate::store::StoreError;

/// A table to adopt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its name in the configuration. Also the namespace of its rows, unless the layout names a column for it.
    pub name: String,
    /// Its columns.
    pub layout: Layout,
    /// How often to look for new rows.
    pub poll: Duration,
    /// How many rows are imported at once.
    pub batch: usize,
    /// How long delivered rows are kept in it. `None` keeps them for ever.
    pub prune: Option<Duration>,
    /// The same of dead rows.
    pub prune_dead: Option<Duration>,
    /// How often old rows are looked for; once a minute at most.
    pub prune_interval: Duration,
    /// For whom its rows may speak.
    pub speaks_for: SpeaksFor,
    /// What its `error` column shows.
    pub error_text: ErrorText,
}

/// The namespaces and tenants that rows of a table may name. The writers of an adopted table are often less trusted than those
/// of the outbox, so a row outside is not imported.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpeaksFor {
    /// Names, beginnings such as `shop.*`, or `*`. Only if a column carries the namespace. Rows without one always have the
    /// table's name.
    pub namespaces: Vec<String>,
    /// Empty for all tenants, and for none.
    pub tenants: Vec<Uuid>,
}

/// What the `error` column of an adopted table shows. Its readers may be others than the outbox's operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorText {
    /// Whether the event failed, waits or was given up, and the receiver's status code.
    #[default]
    Status,
    /// The whole text: host names, and the beginning of the receiver's answer.
    Full,
}

/// Why a table cannot be adopted.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The layout does not fit the table.
    #[error("adopted table `{name}`: {error}")]
    Layout {
        /// The table's name in the configuration.
        name: String,
        /// What is wrong.
        error: LayoutError,
    },
    /// A store adopts its tables once.
    #[error("this store has adopted its tables before")]
    Twice,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks every adopted table.
pub(super) async fn check_all(inner: Arc<Inner>) -> Result<(), StoreError> {
    let mut transaction = inner.begin().await?;
    for adoption in inner.adoptions.get().into_iter().flatten() {
        check(&inner, &mut transaction, adoption).await?;
    }
    transaction.commit().await.map_err(store_error)
}

/// Checks the role's permissions on a table, and that its mapping rows fit it. A round that fails half-way would fail again.
async fn check(inner: &Inner, transaction: &mut Transaction, adoption: &Adoption) -> Result<(), StoreError> {
    permissions::check(inner, transaction, adoption).await?;
    mapping::check(inner, transaction, adoption).await
}

/// Reads the columns of the tables, and prepares their statements.
pub(super) async fn prepare(inner: &Inner, tables: &[Table]) -> Result<Vec<Arc<Adoption>>, AdoptError> {
    let mut connection = inner.connection().await?;
    let mut adoptions = Vec::new();
    for table in tables {
        let columns = columns(&mut connection, &table.layout).await?;
        let adoption = Adoption::new(table, &columns, &inner.sql.schema);
        let adoption = adoption.map_err(|error| AdoptError::Layout {
            name: table.name.clone(),
            error,
        })?;
        adoptions.push(Arc::new(adoption));
    }
    Ok(adoptions)
}
