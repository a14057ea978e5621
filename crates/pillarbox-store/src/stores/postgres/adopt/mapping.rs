//! Checks that the mapping rows of a name fit its table.
//!
//! A name in the configuration may be moved to another table, whose ids have another type. Every statement that looks up the
//! rows of its mapping rows would then fail, some of them only once a minute.

use sqlx::AssertSqlSafe;

use super::statements::Adoption;
use crate::store::StoreError;
use crate::stores::postgres::{Inner, Transaction, store_error};

/// Fails if a mapping row names an id that the table cannot have. Reads all mapping rows of the name.
pub(super) async fn check(
    inner: &Inner,
    transaction: &mut Transaction,
    adoption: &Adoption,
) -> Result<(), StoreError> {
    let checked = sqlx::query(AssertSqlSafe(adoption.check_mapping.clone()))
        .bind(adoption.name())
        .persistent(false)
        .execute(&mut **transaction)
        .await;
    let Err(error) = checked else { return Ok(()) };
    // Class 22: a value that is invalid or out of range.
    let code = error.as_database_error().and_then(|answer| answer.code());
    let is_invalid = code.is_some_and(|code| code.starts_with("22"));
    let error = store_error(error);
    if !is_invalid {
        return Err(error);
    }
    let (name, table) = (adoption.name(), &adoption.quoted);
    Err(StoreError::Other(format!(
        "adopted table `{name}`: this name has events of another table, whose ids {table} cannot have: {error} (give {table} \
         another `name`; or give up writing back to the other table: delete from {schema}.adopted where adopted_table = \
         '{escaped}';)",
        schema = inner.sql.schema,
        escaped = name.replace('\'', "''"),
    )))
}
