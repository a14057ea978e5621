//! Finds backlogs that may have due rows, and parked rows.
//!
//! It only reads. In WAL mode it neither blocks writers nor waits for them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use sqlx::{Row, SqlitePool};

use super::{decode, row_limit, scope_json};
use crate::store::{Backlog, Due, Found, Parked, Scope, Stub};
use pillarbox::internal::envelope::with_columns;

pub(super) async fn find(
    readers: SqlitePool,
    scope: Scope,
    served: Option<Vec<String>>,
    after: Option<Backlog>,
    limit: usize,
) -> Result<Found, sqlx::Error> {
    let (destination, namespace) = after.map_or_else(Default::default, |backlog| {
        (backlog.destination.unwrap_or_default(), backlog.namespace)
    });
    let rows = sqlx::query(include_str!("sql/find.sql"))
        .bind(destination)
        .bind(namespace)
        .bind(scope_json(&scope))
        // One more than the limit shows whether there are more.
        .bind(row_limit(limit.saturating_add(1)))
        .bind(served.map(names_json))
        .fetch_all(&readers)
        .await?;
    let mut found: BTreeMap<Backlog, Due> = BTreeMap::new();
    let mut paused = Vec::new();
    for row in &rows {
        let destination = decode::text(row, "destination")?.filter(|name| !name.is_empty());
        if row.try_get::<&str, _>("kind")? == "paused" {
            paused.extend(destination);
            continue;
        }
        let backlog = Backlog {
            destination,
            namespace: decode::text(row, "namespace")?.unwrap_or_default(),
        };
        let due = found.entry(backlog.clone()).or_insert(Due {
            backlog,
            lowest: None,
            waited: false,
            keyed: false,
        });
        due.lowest = due.lowest.or(row.try_get("lowest")?);
        due.waited |= row.try_get::<bool, _>("waited")?;
        due.keyed |= row.try_get::<bool, _>("keyed")?;
    }
    Ok(Found {
        more: found.len() > limit,
        due: found.into_values().take(limit).collect(),
        paused,
        due_in: None,
    })
}

/// Names as a JSON array, in the order of their bytes, as SQLite compares them.
pub(super) fn names_json(mut names: Vec<String>) -> String {
    names.sort();
    serde_json::json!(names).to_string()
}

static UNROUTED: LazyLock<String> = LazyLock::new(|| with_columns(include_str!("sql/parked_unrouted.sql")));
static BLOCKING: LazyLock<String> = LazyLock::new(|| with_columns(include_str!("sql/parked_blocking.sql")));

pub(super) async fn parked(
    readers: SqlitePool,
    what: Parked,
    scope: Scope,
    after: Option<i64>,
    limit: usize,
) -> Result<Vec<Stub>, sqlx::Error> {
    let sql = match what {
        Parked::Unrouted => &UNROUTED,
        Parked::Blocking => &BLOCKING,
    };
    let rows = sqlx::query(sql.as_str())
        .bind(after.unwrap_or(i64::MIN))
        .bind(scope_json(&scope))
        .bind(row_limit(limit))
        .fetch_all(&readers)
        .await?;
    rows.iter().map(decode::stub).collect()
}

/// The statement that unparks such rows.
pub(super) fn unpark(what: Parked) -> &'static str {
    match what {
        Parked::Unrouted => include_str!("sql/unpark_unrouted.sql"),
        Parked::Blocking => include_str!("sql/unpark_blocking.sql"),
    }
}
