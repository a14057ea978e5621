//! Finds out whether an index of an adopted table leads to the waiting rows in the table's order.
//!
//! Without one, a list of rows to import reads the whole backlog. That is still one read per 100,000 imported rows.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::inspect::{Column, quoted, quoted_table};
use super::layout::{Layout, Status};
use super::statements::waiting_rows;
use crate::store::StoreError;
use crate::stores::postgres::store_error;

/// The planner prefers any index that has the order, however small the table is.
const BY_INDEX: &str = "set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off; \
                        set local max_parallel_workers_per_gather = 0";

/// The statement that creates the missing index. `None` if an index has the order.
///
/// # Errors
/// When the database does not answer, or the layout does not fit the table.
pub async fn missing_index(
    connection: &mut PgConnection,
    layout: &Layout,
    columns: &[Column],
) -> Result<Option<String>, StoreError> {
    let mut transaction = connection.begin().await.map_err(store_error)?;
    sqlx::raw_sql(BY_INDEX)
        .execute(&mut *transaction)
        .await
        .map_err(store_error)?;
    let explain = format!(
        "explain (costs off, format text) {}",
        waiting_rows(layout, columns)
    );
    let plan: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explain))
        .persistent(false)
        .fetch_all(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.rollback().await.map_err(store_error)?;
    let sorts = plan.iter().any(|line| is_sort(line));
    Ok(sorts.then(|| create_index(layout)))
}

/// Does this node read all rows to sort them? An incremental sort reads only rows of equal position.
fn is_sort(line: &str) -> bool {
    line.trim_start().trim_start_matches("->").trim() == "Sort"
}

fn create_index(layout: &Layout) -> String {
    let order = layout
        .order
        .iter()
        .chain([&layout.id])
        .map(|column| quoted(column));
    let (status, filter) = match &layout.status {
        Status::Code { column, .. } => (Some(quoted(column)), String::new()),
        Status::Processed => {
            let processed = quoted(layout.processed_at.as_deref().unwrap_or_default());
            (None, format!(" where {processed} is null"))
        }
        Status::Presence => (None, String::new()),
    };
    let columns: Vec<String> = status.into_iter().chain(order).collect();
    format!(
        "create index concurrently on {} ({}){filter};",
        quoted_table(&layout.table),
        columns.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::postgres::adopt::built_in;

    #[test]
    fn a_node_that_sorts_is_no_incremental_sort_and_no_sort_key() {
        assert!(is_sort("  ->  Sort"));
        assert!(!is_sort("  ->  Incremental Sort"));
        assert!(!is_sort("        Sort Key: s.created_at, s.id"));
    }

    #[test]
    fn an_index_begins_with_what_finds_waiting_rows() {
        let of = |name: &str| create_index(&built_in(name).expect("a layout"));
        assert_eq!(
            of("arap"),
            "create index concurrently on \"outbox\".\"outbox_messages\" (\"OccurredOnUtc\", \"Id\") where \
             \"ProcessedOnUtc\" is null;"
        );
        assert_eq!(
            of("modkit"),
            "create index concurrently on \"modkit_outbox_events\" (\"status\", \"created_at\", \"id\");"
        );
    }
}
