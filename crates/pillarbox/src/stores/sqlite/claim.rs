//! Takes due rows for one worker, and rows whose lease ran out.
//!
//! One transaction that holds the write lock from its beginning, so that nobody else claims between its
//! two statements. They are two because an UPDATE returns rows as they are afterwards, and whether a lease
//! ran out is seen only before.
//!
//! **If we die here** the lease ends and the next claim takes the rows. The attempt stays counted.

use std::collections::BTreeSet;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::{MAX_LEASE, column_limit, decode, later, scope_json};
use crate::event::Delivery;
use crate::store::{ClaimRequest, Scope, Take};

/// A row that may be taken.
struct Candidate {
    rowno: i64,
    size: usize,
    recovered: bool,
}

pub(super) async fn claim(writer: SqlitePool, request: ClaimRequest) -> Result<Vec<Delivery>, sqlx::Error> {
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    let mut chosen = choose(&mut tx, &request).await?;
    chosen.truncate(fitting(&chosen, request.max_bytes));
    let mut claimed = Vec::new();
    if !chosen.is_empty() {
        claimed = take(&mut tx, &request, &chosen).await?;
    }
    tx.commit().await?;
    claimed.sort_by_key(|delivery| delivery.seq);
    Ok(claimed)
}

async fn choose(tx: &mut SqliteConnection, request: &ClaimRequest) -> Result<Vec<Candidate>, sqlx::Error> {
    let limit = column_limit(request.max_attempts);
    let scope = scope_json(&request.scope);
    let query = match request.take {
        Take::Due {
            limit: due,
            recovered,
        } => sqlx::query(include_str!("sql/choose.sql"))
            .bind(row_limit(due))
            .bind(row_limit(recovered))
            .bind(limit)
            .bind(scope),
        Take::Alone => sqlx::query(include_str!("sql/choose_alone.sql"))
            .bind(limit)
            .bind(scope),
    };
    let candidate = |row: &SqliteRow| {
        Ok(Candidate {
            rowno: row.try_get("rowno")?,
            size: usize::try_from(row.try_get::<i64, _>("size")?).unwrap_or(usize::MAX),
            recovered: row.try_get("recovered")?,
        })
    };
    query.fetch_all(tx).await?.iter().map(candidate).collect()
}

/// How many of them hold no more bytes than asked for together; one in any case.
fn fitting(chosen: &[Candidate], max_bytes: usize) -> usize {
    let mut bytes: usize = 0;
    let fits = |candidate: &&Candidate| {
        bytes = bytes.saturating_add(candidate.size);
        bytes <= max_bytes
    };
    chosen.iter().take_while(fits).count().max(1)
}

async fn take(
    tx: &mut SqliteConnection,
    request: &ClaimRequest,
    chosen: &[Candidate],
) -> Result<Vec<Delivery>, sqlx::Error> {
    let recovered: BTreeSet<i64> = chosen
        .iter()
        .filter(|one| one.recovered)
        .map(|one| one.rowno)
        .collect();
    let rownos: Vec<i64> = chosen.iter().map(|one| one.rowno).collect();
    let rows = sqlx::query(include_str!("sql/claim.sql"))
        .bind(request.worker.to_string())
        .bind(request.claim.to_string())
        .bind(later(request.lease.min(MAX_LEASE)))
        .bind(serde_json::json!(rownos).to_string())
        .fetch_all(tx)
        .await?;
    rows.iter()
        .map(|row| {
            let rowno: i64 = row.try_get("rowno")?;
            decode::delivery(row, request.claim, recovered.contains(&rowno))
        })
        .collect()
}

pub(super) async fn is_due(readers: SqlitePool, scope: Scope) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(include_str!("sql/is_due.sql"))
        .bind(scope_json(&scope))
        .fetch_one(&readers)
        .await
}

/// A number of rows as a LIMIT, with room for sums.
fn row_limit(rows: usize) -> i32 {
    i32::try_from(rows).unwrap_or(i32::MAX)
}
