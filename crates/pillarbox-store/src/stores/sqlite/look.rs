//! Finds sources in which something may be due, and rows that wait for something other than time.
//!
//! A look reads and takes no lock: in a file with the WAL journal it stops nobody and waits for nobody.

use std::collections::BTreeMap;

use sqlx::{Row, SqlitePool};

use super::{decode, row_limit, scope_json};
use crate::store::{Aside, Due, Look, Scope, Source, Stub};

pub(super) async fn look(
    readers: SqlitePool,
    scope: Scope,
    after: Option<Source>,
    limit: usize,
) -> Result<Look, sqlx::Error> {
    let (destination, namespace) = after.map_or_else(Default::default, |source| {
        (source.destination.unwrap_or_default(), source.namespace)
    });
    let rows = sqlx::query(include_str!("sql/look.sql"))
        .bind(destination)
        .bind(namespace)
        .bind(scope_json(&scope))
        // One more than asked for says whether there are more.
        .bind(row_limit(limit.saturating_add(1)))
        .fetch_all(&readers)
        .await?;
    let mut found: BTreeMap<Source, Due> = BTreeMap::new();
    let mut paused = Vec::new();
    for row in &rows {
        let destination = decode::text(row, "destination")?.filter(|name| !name.is_empty());
        if row.try_get::<&str, _>("kind")? == "paused" {
            paused.extend(destination);
            continue;
        }
        let source = Source {
            destination,
            namespace: decode::text(row, "namespace")?.unwrap_or_default(),
        };
        let due = found.entry(source.clone()).or_insert(Due {
            source,
            lowest: None,
            waited: false,
            keyed: false,
        });
        due.lowest = due.lowest.or(row.try_get("lowest")?);
        due.waited |= row.try_get::<bool, _>("waited")?;
        due.keyed |= row.try_get::<bool, _>("keyed")?;
    }
    Ok(Look {
        more: found.len() > limit,
        due: found.into_values().take(limit).collect(),
        paused,
    })
}

pub(super) async fn aside(
    readers: SqlitePool,
    what: Aside,
    scope: Scope,
    after: Option<i64>,
    limit: usize,
) -> Result<Vec<Stub>, sqlx::Error> {
    let sql = match what {
        Aside::Unrouted => include_str!("sql/aside_unrouted.sql"),
        Aside::Blocking => include_str!("sql/aside_blocking.sql"),
    };
    let rows = sqlx::query(sql)
        .bind(after.unwrap_or(i64::MIN))
        .bind(scope_json(&scope))
        .bind(row_limit(limit))
        .fetch_all(&readers)
        .await?;
    rows.iter().map(decode::stub).collect()
}

/// How such rows are let go.
pub(super) fn let_go(what: Aside) -> &'static str {
    match what {
        Aside::Unrouted => include_str!("sql/let_go_unrouted.sql"),
        Aside::Blocking => include_str!("sql/let_go_blocking.sql"),
    }
}
