//! Somebody else's outbox table, worked on as it is.
//!
//! ```text
//! source table ──import──▶ native row ──▶ the engine as ever ──settle──▶ the source's own columns, same transaction
//! ```
//!
//! A row of the table is imported as a native row, a bounded number at a time and by one worker at a time, in the table's
//! own order; `adopted` notes which row became which event, and what its own columns said. The engine works native rows
//! only. Whatever ends or fails is told to the table in the transaction that writes it here.
//!
//! A row that says something else than we last read or wrote was changed by a person: it is imported anew, or dropped if
//! the person ended it. One that is gone is dropped.
//!
//! **If we die here** the transaction rolls back, and both tables still agree.

mod builtin;
mod import;
mod inspect;
mod layout;
mod rights;
mod sources;
mod statements;
mod tell;

use std::sync::Arc;
use std::time::Duration;

pub use self::builtin::{Habits, built_in, built_ins, habits};
pub(super) use self::import::import;
pub use self::inspect::{Column, columns, quoted, quoted_table};
pub use self::layout::{Counts, Delays, Layout, LayoutError, Payload, Status, Zone};
pub(super) use self::sources::sources;
pub(crate) use self::statements::Adoption;
pub(super) use self::tell::{End, lock, lock_for_a_person, note_end, settled, tell, try_lock};
use super::{Inner, store_error};
use crate::store::StoreError;

/// A table to adopt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// What rows know it by; also their namespace, if no column of theirs says another.
    pub name: String,
    /// What it looks like.
    pub layout: Layout,
    /// How often to look for new rows.
    pub poll: Duration,
    /// How many rows are taken over at once.
    pub batch: usize,
    /// How long delivered rows are kept in it; for ever unless said otherwise.
    pub prune: Option<Duration>,
}

/// Why a table cannot be adopted.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The layout and the table do not fit.
    #[error("source `{source_name}`: {error}")]
    Layout {
        /// Which source.
        source_name: String,
        /// What is wrong.
        error: LayoutError,
    },
    /// The tables of an outbox are named once.
    #[error("the tables to adopt were named before")]
    Twice,
    /// The database did not answer as it should.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// May this role work on all of them?
pub(super) async fn check_rights(inner: Arc<Inner>) -> Result<(), StoreError> {
    let mut transaction = inner.begin().await?;
    for adoption in inner.adoptions.get().into_iter().flatten() {
        rights::check(&inner, &mut transaction, adoption).await?;
    }
    transaction.commit().await.map_err(store_error)
}

/// Reads what the tables are made of, and makes the statements.
pub(super) async fn prepare(inner: &Inner, sources: &[Source]) -> Result<Vec<Arc<Adoption>>, AdoptError> {
    let mut connection = inner.pool().acquire().await.map_err(store_error)?;
    let mut adoptions = Vec::new();
    for source in sources {
        let columns = match columns(&mut connection, &source.layout).await {
            Ok(columns) => columns,
            Err(error) => {
                return Err(rights::explain(&mut connection, &source.layout, error)
                    .await
                    .into());
            }
        };
        let adoption = Adoption::new(source, &columns, &inner.sql.schema);
        let adoption = adoption.map_err(|error| AdoptError::Layout {
            source_name: source.name.clone(),
            error,
        })?;
        adoptions.push(Arc::new(adoption));
    }
    Ok(adoptions)
}
