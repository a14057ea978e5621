//! Who lacks which permission.
//!
//! PostgreSQL names the table of a refused statement, and neither the role nor the privilege. An operator needs both to mend
//! it. So they are asked for, once the statement has failed.

use std::sync::Arc;

use super::{Inner, store_error};
use crate::store::StoreError;

const DENIED: &str = include_str!("sql/denied.sql");

/// Adds the role to a refusal, and what it lacks on the table. Without an answer the refusal stays as it was.
pub(super) async fn explain(inner: Arc<Inner>, refused: String) -> StoreError {
    match lacks(&inner, table(&refused)).await {
        Ok((role, Some(lacks))) => {
            StoreError::Denied(format!("{refused}: role {role:?} lacks {lacks} there"))
        }
        Ok((role, None)) => StoreError::Denied(format!("{refused}, as role {role:?}")),
        Err(_) => StoreError::Denied(refused),
    }
}

async fn lacks(inner: &Inner, table: &str) -> Result<(String, Option<String>), StoreError> {
    let mut transaction = inner.begin().await?;
    let lacks = sqlx::query_as(DENIED)
        .bind(&inner.sql.schema)
        .bind(table)
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(lacks)
}

/// Is it the server's own text? Our own say who and what.
pub(super) fn is_unexplained(refused: &str) -> bool {
    refused.ends_with("(42501)")
}

/// The table that the server names, or nothing.
fn table(refused: &str) -> &str {
    let rest = ["permission denied for table ", "permission denied for relation "]
        .iter()
        .find_map(|start| refused.strip_prefix(start));
    rest.and_then(|rest| rest.rsplit_once(' '))
        .map(|(name, _)| name)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_from_the_servers_text() {
        assert_eq!(
            table("permission denied for table outbox_events (42501)"),
            "outbox_events"
        );
        assert_eq!(table("permission denied for table my table (42501)"), "my table");
        assert_eq!(table("permission denied for schema pillarbox (42501)"), "");
        assert_eq!(table(""), "");
    }
}
