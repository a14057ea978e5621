//! Claims due rows for one worker, and rows whose lease expired.
//!
//! One transaction that holds the write lock from its beginning. So no other connection claims, leases a lane or inserts an
//! earlier row of a key between its statements.
//!
//! **If we die here** the lease expires and the next claim takes the rows. The attempt stays counted.

use std::sync::LazyLock;

use sqlx::{SqliteConnection, SqlitePool};

use super::choose::{Candidate, Turns, choose};
use super::{MAX_LEASE, decode, later};
use crate::store::{ClaimRequest, Take};
use pillarbox::Delivery;
use pillarbox::internal::envelope::with_columns;

static CLAIM: LazyLock<String> = LazyLock::new(|| with_columns(include_str!("sql/claim.sql")));

pub(super) async fn claim(
    writer: SqlitePool,
    request: ClaimRequest,
    turns: Turns,
) -> Result<Vec<Delivery>, sqlx::Error> {
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    let mut chosen = choose(&mut tx, &request, &turns).await?;
    chosen.truncate(fitting(&chosen, request.max_bytes));
    let mut claimed = Vec::new();
    if !chosen.is_empty() {
        claimed = take(&mut tx, &request, &chosen).await?;
    }
    tx.commit().await?;
    claimed.sort_by_key(|delivery| delivery.seq);
    Ok(claimed)
}

/// How many of them together stay within the limit of bytes; at least one.
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
    let suspect = match request.take {
        Take::Free(_) | Take::Keyed(_) => false,
        Take::Suspects(_) | Take::LoneSuspect => true,
    };
    let rownos: Vec<i64> = chosen.iter().map(|one| one.rowno).collect();
    let rows = sqlx::query(CLAIM.as_str())
        .bind(request.worker.to_string())
        .bind(request.claim.to_string())
        .bind(later(request.lease.min(MAX_LEASE)))
        .bind(serde_json::json!(rownos).to_string())
        .fetch_all(&mut *tx)
        .await?;
    let mut claimed = rows
        .iter()
        .map(|row| decode::delivery(row, request.claim, suspect))
        .collect::<Result<Vec<Delivery>, _>>()?;
    let asks = |row: &Delivery| row.lane.is_some() && row.event.destination.is_none();
    if claimed.iter().any(asks) {
        let contested = sqlx::query_scalar(include_str!("sql/is_contested.sql"))
            .fetch_one(tx)
            .await?;
        for row in claimed.iter_mut().filter(|row| asks(row)) {
            row.contested = contested;
        }
    }
    Ok(claimed)
}
