//! Claims due rows for one worker, and rows whose lease expired: one statement each.
//!
//! **If we die here** the lease expires and the next claim takes the rows. The attempt stays counted.

use std::sync::Arc;

use futures_util::TryStreamExt;
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

use super::decode::delivery;
use super::sql::Statement;
use super::{Inner, Transaction, attempts, interval, store_error};
use crate::store::{ClaimRequest, Share, StoreError, Take};
use pillarbox::Delivery;
use pillarbox::failpoint;

pub(super) async fn claim(inner: Arc<Inner>, request: ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
    let mut transaction = inner.begin().await?;
    let mut claimed = Vec::new();
    match &request.take {
        Take::Free(shares) => {
            let (fair, plain) = columns(shares, &request);
            if !plain.is_empty() {
                let query = free(&inner.sql.claim_free, &request, plain);
                claimed = fetch(&mut transaction, query, &request, false).await?;
            }
            let used: usize = claimed.iter().map(|one| one.event.payload.len()).sum();
            // Plain shares use up room first. If they got a row, fair shares get none beyond the limit of bytes.
            if !fair.is_empty() && (claimed.is_empty() || used < request.max_bytes) {
                let left = request.max_bytes.saturating_sub(used);
                let query = fair_turns(&inner.sql.claim_fair, &request, fair, left);
                claimed.extend(fetch(&mut transaction, query, &request, false).await?);
            }
        }
        Take::Keyed(shares) => {
            let (mut fair, plain) = columns(shares, &request);
            // Fair shares apply to rows without a key only. Here the keys take turns.
            fair.append(plain);
            if !fair.is_empty() {
                let query = keyed(&inner.sql.claim_keyed, &request, fair);
                claimed = fetch(&mut transaction, query, &request, false).await?;
            }
        }
        Take::Suspects(limit) => {
            let query = expired(&inner.sql.claim_expired, &request, (i32::MIN, 2), *limit);
            claimed = fetch(&mut transaction, query, &request, true).await?;
        }
        Take::LoneSuspect => {
            let query = expired(&inner.sql.claim_expired, &request, (2, i32::MAX), 1);
            claimed = fetch(&mut transaction, query, &request, true).await?;
        }
    }
    failpoint::hit("in_claim");
    transaction.commit().await.map_err(store_error)?;
    // RETURNING returns rows in any order.
    claimed.sort_by_key(|delivery| delivery.seq);
    Ok(claimed)
}

type ClaimQuery = Query<'static, Postgres, PgArguments>;

async fn fetch(
    transaction: &mut Transaction,
    query: ClaimQuery,
    request: &ClaimRequest,
    suspect: bool,
) -> Result<Vec<Delivery>, StoreError> {
    // Each row is dropped once it is decoded, so that a batch of large rows is never in memory twice.
    let mut rows = query.persistent(false).fetch(&mut **transaction);
    let mut claimed = Vec::new();
    while let Some(row) = rows.try_next().await.map_err(store_error)? {
        claimed.push(delivery(&row, request.claim, suspect).map_err(store_error)?);
    }
    Ok(claimed)
}

/// Shares as arrays, for the statements.
#[derive(Debug, Default)]
struct Columns {
    destinations: Vec<String>,
    namespaces: Vec<String>,
    limits: Vec<i64>,
    floors: Vec<i64>,
}

impl Columns {
    fn push(&mut self, share: &Share) {
        // '' means no destination. No destination has this name.
        self.destinations
            .push(share.backlog.destination.clone().unwrap_or_default());
        self.namespaces.push(share.backlog.namespace.clone());
        self.limits.push(count(share.limit));
        self.floors.push(share.floor);
    }

    fn append(&mut self, mut other: Self) {
        self.destinations.append(&mut other.destinations);
        self.namespaces.append(&mut other.namespaces);
        self.limits.append(&mut other.limits);
        self.floors.append(&mut other.floors);
    }

    fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }
}

/// The fair shares and the others, within the scope.
fn columns(shares: &[Share], request: &ClaimRequest) -> (Columns, Columns) {
    let (mut fair, mut plain) = (Columns::default(), Columns::default());
    for share in shares {
        if share.limit == 0 || !request.scope.contains(&share.backlog.namespace) {
            continue;
        }
        if share.fair { &mut fair } else { &mut plain }.push(share);
    }
    (fair, plain)
}

fn free(statement: &Statement, request: &ClaimRequest, shares: Columns) -> ClaimQuery {
    sqlx::query(statement.safe())
        .bind(request.worker)
        .bind(request.claim)
        .bind(interval(request.lease))
        .bind(shares.destinations)
        .bind(shares.namespaces)
        .bind(shares.limits)
        .bind(shares.floors)
        .bind(attempts(request.max_attempts))
        .bind(count(request.max_bytes.max(1)))
}

fn fair_turns(statement: &Statement, request: &ClaimRequest, shares: Columns, bytes: usize) -> ClaimQuery {
    sqlx::query(statement.safe())
        .bind(request.worker)
        .bind(request.claim)
        .bind(interval(request.lease))
        .bind(shares.destinations)
        .bind(shares.namespaces)
        .bind(shares.limits)
        .bind(attempts(request.max_attempts))
        .bind(count(bytes.max(1)))
}

fn keyed(statement: &Statement, request: &ClaimRequest, shares: Columns) -> ClaimQuery {
    sqlx::query(statement.safe())
        .bind(request.worker)
        .bind(request.claim)
        .bind(interval(request.lease))
        .bind(shares.destinations)
        .bind(shares.namespaces)
        .bind(shares.limits)
        .bind(i32::from(request.first_lane))
        .bind(attempts(request.max_attempts))
        .bind(count(request.max_bytes.max(1)))
}

/// Rows with at least the first and fewer than the second number of attempts.
fn expired(
    statement: &Statement,
    request: &ClaimRequest,
    (from, below): (i32, i32),
    limit: usize,
) -> ClaimQuery {
    sqlx::query(statement.safe())
        .bind(request.worker)
        .bind(from)
        .bind(below)
        .bind(attempts(request.max_attempts))
        .bind(request.scope.names())
        .bind(request.excluded.clone())
        .bind(count(limit))
        .bind(request.claim)
        .bind(interval(request.lease))
        .bind(count(request.max_bytes.max(1)))
}

fn count(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
