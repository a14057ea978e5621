//! Claims due rows for one worker, and rows whose lease expired: one statement each. Rows that cannot be read become dead
//! first, so that they stop no other.
//!
//! The database measures rows as it stores them, but 7 kB of numbers such as 1e131071 are 100 MB of text. A claim that takes
//! too long, or reads far more than it asked for, is followed by one of a single row. After each success a claim may take
//! twice as many.
//!
//! **If we die here** the lease expires and the next claim takes the rows. The attempt stays counted.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures_util::TryStreamExt;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{Postgres, Row};
use uuid::Uuid;

use super::decode::delivery;
use super::keys::Progress;
use super::sql::Statement;
use super::unreadable::{self, ReadError};
use super::{Inner, Transaction, attempts, interval, keyed, leases, store_error};
use crate::store::{Backlog, ClaimRequest, Share, StoreError, Take};
use pillarbox::Delivery;
use pillarbox::failpoint;

/// After so many searches that found no unreadable row, a claim fails.
const MISSES: usize = 3;
/// How often the limits of the next claim are halved after one that was too large: 1,000 rows become one.
const HALVINGS: u32 = 10;
/// JSON is at most six times as long as the database stores it (`\u0001`), apart from numbers with an exponent.
const LONGEST: usize = 8;
/// A claim of fewer bytes is never too large: 1 MiB.
const MEMORY: usize = 1024 * 1024;

pub(super) async fn claim(inner: Arc<Inner>, request: ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
    let (began, mut misses) = (Instant::now(), 0);
    loop {
        let halvings = inner.halvings.load(Ordering::Relaxed);
        let request = halved(&request, halvings);
        let unreadable = match try_claim(&inner, &request).await {
            Ok(claimed) => {
                inner
                    .halvings
                    .store(halvings.saturating_sub(1), Ordering::Relaxed);
                return Ok(claimed);
            }
            Err(ReadError::Unreadable(unreadable)) => unreadable,
            Err(ReadError::TooLarge(error)) => {
                inner.halvings.store(HALVINGS, Ordering::Relaxed);
                if began.elapsed() >= inner.options.timeout / 2 {
                    return Err(error);
                }
                continue;
            }
            Err(ReadError::Store(error)) => {
                if matches!(error, StoreError::Unavailable(_)) {
                    inner.forget_progress();
                }
                return Err(error);
            }
        };
        if unreadable::end(&inner, &request).await? == 0 {
            // Another worker has ended them, or has locked them.
            misses += 1;
            if misses == MISSES {
                return Err(unreadable.error);
            }
        }
        if began.elapsed() >= inner.options.timeout / 2 {
            // The next claim continues. It would find the rest too late for this one.
            return Ok(Vec::new());
        }
    }
}

/// The request with smaller limits, so often halved.
fn halved(request: &ClaimRequest, times: u32) -> Cow<'_, ClaimRequest> {
    if times == 0 {
        return Cow::Borrowed(request);
    }
    let less = |limit: usize| (limit >> times).max(limit.min(1));
    let fewer = |shares: &[Share]| {
        let shares = shares.iter().filter(|share| share.limit > 0);
        let count = less(shares.clone().count());
        let smaller = |share: &Share| Share {
            limit: less(share.limit),
            ..share.clone()
        };
        shares.take(count).map(smaller).collect()
    };
    let take = match &request.take {
        Take::Free(shares) => Take::Free(fewer(shares)),
        Take::Keyed(shares) => Take::Keyed(fewer(shares)),
        Take::Suspects(limit) => Take::Suspects(less(*limit)),
        Take::LoneSuspect => Take::LoneSuspect,
    };
    Cow::Owned(ClaimRequest {
        take,
        ..request.clone()
    })
}

/// Claims rows. Nothing is claimed if one of them cannot be read.
async fn try_claim(inner: &Inner, request: &ClaimRequest) -> Result<Vec<Delivery>, ReadError> {
    let mut transaction = inner.begin().await?;
    match take(inner, &mut transaction, request).await {
        Ok(Taken {
            rows: mut claimed,
            came,
        }) => {
            failpoint::hit("in_claim");
            transaction.commit().await?;
            inner.leases.claimed(request.claim, claimed.len(), request.lease);
            inner.keys.came(request.worker, came);
            // RETURNING returns rows in any order.
            claimed.sort_by_key(|delivery| delivery.seq);
            Ok(claimed)
        }
        Err(error) => {
            // At once: the rows are locked until then, and the next statement would skip them.
            transaction.rollback().await?;
            Err(error)
        }
    }
}

/// What a claim took, until it is committed.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) rows: Vec<Delivery>,
    /// How far it came in the rows with a key of each backlog.
    pub(super) came: Vec<(Backlog, Progress)>,
}

async fn take(
    inner: &Inner,
    transaction: &mut Transaction,
    request: &ClaimRequest,
) -> Result<Taken, ReadError> {
    let mut claimed = Vec::new();
    match &request.take {
        Take::Free(shares) => {
            let (fair, plain) = columns(shares, request, inner.is_fair());
            if !plain.is_empty() {
                let query = free(&inner.sql.claim_free, request, plain);
                claimed = fetch(transaction, query, request, false).await?;
            }
            let used: usize = claimed.iter().map(|one| one.event.payload.len()).sum();
            // Plain shares use up room first. If they got a row, fair shares get none beyond the limit of bytes.
            if !fair.is_empty() && (claimed.is_empty() || used < request.max_bytes) {
                let left = request.max_bytes.saturating_sub(used);
                claimed.extend(claim_fair(inner, transaction, request, fair, left).await?);
            }
        }
        Take::Keyed(shares) => {
            return keyed::claim(inner, transaction, request, shares).await;
        }
        Take::Suspects(_) | Take::LoneSuspect => {
            leases::end_expired(inner, transaction).await?;
            let query = expired(&inner.sql.claim_expired, request);
            claimed = fetch(transaction, query, request, true).await?;
        }
    }
    Ok(Taken {
        rows: claimed,
        came: Vec::new(),
    })
}

/// The rows that a claim would take now. It reads none of them, and takes none.
pub(super) async fn candidates(inner: &Inner, request: &ClaimRequest) -> Result<Vec<Uuid>, StoreError> {
    let sql = &inner.sql;
    let mut queries = Vec::new();
    match &request.take {
        Take::Free(shares) => {
            let (fair, plain) = columns(shares, request, inner.is_fair());
            if !plain.is_empty() {
                queries.push(free(&sql.claim_free.returning_ids(), request, plain));
            }
            if !fair.is_empty() {
                let statement = sql.claim_fair.returning_ids();
                let after = last_tenants(inner, request, &fair);
                queries.push(fair_turns(&statement, request, fair, after, request.max_bytes));
            }
        }
        Take::Keyed(shares) => {
            let mut transaction = inner.begin().await?;
            let ids = keyed::candidates(inner, &mut transaction, request, shares).await;
            transaction.rollback().await.map_err(store_error)?;
            return ids.map_err(StoreError::from);
        }
        Take::Suspects(_) | Take::LoneSuspect => {
            queries.push(expired(&sql.claim_expired.returning_ids(), request));
        }
    }
    let mut transaction = inner.begin().await?;
    if matches!(request.take, Take::Suspects(_) | Take::LoneSuspect) {
        leases::end_expired(inner, &mut transaction).await?;
    }
    let mut ids = Vec::new();
    for query in queries {
        let rows = query.persistent(false).fetch_all(&mut *transaction).await;
        for row in rows.map_err(store_error)? {
            ids.push(row.try_get(0).map_err(store_error)?);
        }
    }
    transaction.rollback().await.map_err(store_error)?;
    Ok(ids)
}

pub(super) type ClaimQuery = Query<'static, Postgres, PgArguments>;

pub(super) async fn fetch(
    transaction: &mut Transaction,
    query: ClaimQuery,
    request: &ClaimRequest,
    suspect: bool,
) -> Result<Vec<Delivery>, ReadError> {
    // Each row is dropped once it is decoded, so that a batch of large rows is never in memory twice.
    let mut rows = query.persistent(false).fetch(&mut **transaction);
    let mut claimed = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.try_next().await? {
        claimed.push(delivery(&row, request.claim, suspect)?);
        check_size(&claimed, &mut bytes, request)?;
    }
    Ok(claimed)
}

/// Adds the last row to the bytes. Several rows must fit into memory, whatever the database took them for.
pub(super) fn check_size(
    claimed: &[Delivery],
    bytes: &mut usize,
    request: &ClaimRequest,
) -> Result<(), ReadError> {
    *bytes += claimed.last().map_or(0, |row| row.event.payload.len());
    if claimed.len() > 1 && *bytes > request.max_bytes.max(MEMORY).saturating_mul(LONGEST) {
        let error = format!("{} rows are more than {bytes} bytes of text", claimed.len());
        return Err(ReadError::TooLarge(StoreError::Unavailable(error)));
    }
    Ok(())
}

/// The tenant after which a fair claim begins, of each share.
fn last_tenants(inner: &Inner, request: &ClaimRequest, shares: &Columns) -> Vec<Uuid> {
    let backlogs = shares.backlogs.iter();
    backlogs
        .map(|backlog| inner.turns.last(backlog, request.claim))
        .collect()
}

async fn claim_fair(
    inner: &Inner,
    transaction: &mut Transaction,
    request: &ClaimRequest,
    shares: Columns,
    bytes: usize,
) -> Result<Vec<Delivery>, ReadError> {
    let backlogs = shares.backlogs.clone();
    let after = last_tenants(inner, request, &shares);
    let query = fair_turns(&inner.sql.claim_fair, request, shares, after.clone(), bytes);
    let mut rows = query.persistent(false).fetch(&mut **transaction);
    let (mut claimed, mut is_fresh) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    while let Some(row) = rows.try_next().await? {
        is_fresh.push(row.try_get::<bool, _>("is_fresh")?);
        claimed.push(delivery(&row, request.claim, false)?);
        check_size(&claimed, &mut bytes, request)?;
    }
    for (backlog, after) in backlogs.iter().zip(after) {
        let fresh = claimed.iter().zip(&is_fresh).filter(|(_, is_fresh)| **is_fresh);
        inner.turns.claimed(backlog, after, fresh.map(|(row, _)| row));
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
    /// For how many rows that have waited room is kept.
    kept: Vec<i64>,
    backlogs: Vec<Backlog>,
}

impl Columns {
    fn push(&mut self, share: &Share, kept: usize) {
        // '' means no destination. No destination has this name.
        self.destinations
            .push(share.backlog.destination.clone().unwrap_or_default());
        self.namespaces.push(share.backlog.namespace.clone());
        self.limits.push(count(share.limit));
        self.floors.push(share.floor);
        self.kept.push(count(kept));
        self.backlogs.push(share.backlog.clone());
    }

    fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }
}

/// The fair shares and the others, within the scope. Without the index for fair shares, none is fair.
fn columns(shares: &[Share], request: &ClaimRequest, is_fair: bool) -> (Columns, Columns) {
    let (mut fair, mut plain) = (Columns::default(), Columns::default());
    for share in shares {
        if share.limit == 0 || !request.scope.contains(&share.backlog.namespace) {
            continue;
        }
        if share.fair && is_fair {
            &mut fair
        } else {
            &mut plain
        }
        .push(share, request.kept_for_waited(share.limit));
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
        .bind(shares.kept)
}

fn fair_turns(
    statement: &Statement,
    request: &ClaimRequest,
    shares: Columns,
    after: Vec<Uuid>,
    bytes: usize,
) -> ClaimQuery {
    // A claim id is random at its end, whatever its version.
    let (_, random) = request.claim.as_u64_pair();
    sqlx::query(statement.safe())
        .bind(request.worker)
        .bind(request.claim)
        .bind(interval(request.lease))
        .bind(shares.destinations)
        .bind(shares.namespaces)
        .bind(shares.limits)
        .bind(attempts(request.max_attempts))
        .bind(count(bytes.max(1)))
        .bind(after)
        .bind(random.cast_signed())
}

fn expired(statement: &Statement, request: &ClaimRequest) -> ClaimQuery {
    // Rows with at least the first and fewer than the second number of attempts.
    let (from, below, limit) = match request.take {
        Take::Suspects(limit) => (i32::MIN, 2, limit),
        Take::LoneSuspect | Take::Free(_) | Take::Keyed(_) => (2, i32::MAX, 1),
    };
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

pub(super) fn count(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
