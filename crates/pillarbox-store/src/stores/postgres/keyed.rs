//! Claims rows with a key: fresh ones in the order of insertion, and those of keys that have a row which was tried before from
//! key to key.
//!
//! **If we die here** the claim is rolled back, or the lease expires.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use sqlx::Row;

use super::claim::{ClaimQuery, Taken, check_size, count, fetch};
use super::decode::delivery;
use super::keys::{Progress, Segment};
use super::sql::Statement;
use super::unreadable::ReadError;
use super::{Inner, Transaction, attempts, interval};
use crate::store::{ClaimRequest, Share};
use pillarbox::Delivery;

/// A claim reads at most an eighth of a share from one bucket of lanes at first. So it has rows of many keys, which can be sent
/// beside each other.
const PARTS: usize = 8;
/// How often a claim reads on that has found nothing but rows that it could not take.
const READS: usize = 16;
/// How often the bottom of a backlog is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Claims rows with a key from these shares.
pub(super) async fn claim(
    inner: &Inner,
    transaction: &mut Transaction,
    request: &ClaimRequest,
    shares: &[Share],
) -> Result<Taken, ReadError> {
    let mut keyed = Keyed::new(inner, request, shares);
    if keyed.shares.is_empty() {
        return Ok(Taken::default());
    }
    keyed.look_for_bottoms(transaction).await?;
    let rows: usize = keyed.shares.iter().map(|share| share.limit).sum();
    if keyed.progress.iter().any(|progress| progress.may_have_tried) {
        let half: Vec<usize> = keyed
            .shares
            .iter()
            .map(|share| request.kept_for_waited(share.limit))
            .collect();
        keyed.claim_tried(transaction, &half).await?;
    }
    keyed.claim_fresh(transaction).await?;
    if keyed.progress.iter().any(|progress| progress.may_have_tried) && keyed.claimed.len() < rows {
        let left = keyed.left();
        keyed.claim_tried(transaction, &left).await?;
    }
    let backlogs = keyed.shares.iter().map(|share| share.backlog.clone());
    Ok(Taken {
        came: backlogs.zip(keyed.progress).collect(),
        rows: keyed.claimed,
    })
}

/// The statements that return the ids of the rows that a claim would take.
pub(super) fn candidates(inner: &Inner, request: &ClaimRequest, shares: &[Share]) -> Vec<ClaimQuery> {
    let keyed = Keyed::new(inner, request, shares);
    if keyed.shares.is_empty() {
        return Vec::new();
    }
    let limits: Vec<usize> = keyed.shares.iter().map(|share| share.limit).collect();
    let (fresh, tried) = (&inner.sql.claim_keyed_fresh, &inner.sql.claim_keyed);
    vec![
        keyed.tried(&tried.returning_ids(), &limits),
        keyed.fresh(&fresh.returning_ids(), &keyed.segments(), &limits, 1),
    ]
}

/// A claim of rows with a key.
struct Keyed<'a> {
    inner: &'a Inner,
    request: &'a ClaimRequest,
    /// The shares within the scope.
    shares: Vec<&'a Share>,
    progress: Vec<Progress>,
    claimed: Vec<Delivery>,
    bytes: usize,
}

/// What a statement has read.
#[derive(Debug, Default)]
struct Read {
    /// The places of the segments, from 1, and the floors up to which they were read.
    floors: Vec<(usize, i64)>,
    rows: usize,
    /// Has a segment more, or did rows leave the fresh ones?
    has_more: bool,
}

impl<'a> Keyed<'a> {
    fn new(inner: &'a Inner, request: &'a ClaimRequest, shares: &'a [Share]) -> Self {
        let shares = shares.iter().filter(|share| share.limit > 0);
        let shares: Vec<&Share> = shares
            .filter(|share| request.scope.contains(&share.backlog.namespace))
            .collect();
        let progress = shares
            .iter()
            .map(|share| inner.keys.progress(request.worker, share));
        Self {
            inner,
            request,
            progress: progress.collect(),
            shares,
            claimed: Vec::new(),
            bytes: 0,
        }
    }

    /// Raises the bottoms of the backlogs for which it is time.
    async fn look_for_bottoms(&mut self, transaction: &mut Transaction) -> Result<(), ReadError> {
        let is_due = |progress: &Progress| progress.looked.is_none_or(|at| at.elapsed() >= LOOK);
        if !self.progress.iter().any(is_due) {
            return Ok(());
        }
        let certain = self.look_for_holders(transaction).await?;
        let query = sqlx::query(self.inner.sql.bottoms.safe())
            .bind(self.destinations())
            .bind(self.namespaces())
            .bind(
                self.progress
                    .iter()
                    .map(|progress| progress.bottom)
                    .collect::<Vec<_>>(),
            )
            .bind(certain);
        let rows = query.persistent(false).fetch_all(&mut **transaction).await?;
        for row in rows {
            let place = usize::try_from(row.try_get::<i64, _>("place")? - 1).unwrap_or(usize::MAX);
            if let Some(progress) = self.progress.get_mut(place) {
                progress.bottom = row.try_get("bottom")?;
                progress.looked = Some(Instant::now());
            }
        }
        Ok(())
    }

    /// Up to which number every row is visible to the next statement.
    async fn look_for_holders(&self, transaction: &mut Transaction) -> Result<i64, ReadError> {
        let rows = sqlx::raw_sql(self.inner.sql.holders.safe())
            .fetch_all(&mut **transaction)
            .await?;
        let mut last = 0;
        let mut holders = HashSet::new();
        for row in rows {
            match row.try_get::<Option<String>, _>("holder")? {
                Some(holder) => {
                    holders.insert(holder);
                }
                None => last = row.try_get("last")?,
            }
        }
        let watermark = self.inner.watermark.lock();
        let mut watermark = watermark.unwrap_or_else(PoisonError::into_inner);
        Ok(watermark.look(last, holders))
    }

    /// How many rows are left of each share.
    fn left(&self) -> Vec<usize> {
        let taken = |share: &Share| {
            let of_share = |row: &&Delivery| {
                row.event.namespace == share.backlog.namespace
                    && row.event.destination == share.backlog.destination
            };
            self.claimed.iter().filter(of_share).count()
        };
        self.shares
            .iter()
            .map(|share| share.limit.saturating_sub(taken(share)))
            .collect()
    }

    /// Has the claim as many bytes as it may?
    fn is_full(&self) -> bool {
        !self.claimed.is_empty() && self.bytes >= self.request.max_bytes
    }

    /// Claims from the keys that have a row which was tried before, of each share up to the limit.
    async fn claim_tried(
        &mut self,
        transaction: &mut Transaction,
        limits: &[usize],
    ) -> Result<(), ReadError> {
        if self.is_full() || limits.iter().all(|limit| *limit == 0) {
            return Ok(());
        }
        let query = self.tried(&self.inner.sql.claim_keyed, limits);
        let rows = fetch(transaction, query, self.request, false).await?;
        self.bytes += rows.iter().map(|row| row.event.payload.len()).sum::<usize>();
        if rows.is_empty() {
            for progress in &mut self.progress {
                progress.may_have_tried = false;
            }
        }
        self.claimed.extend(rows);
        Ok(())
    }

    /// Claims fresh rows. If a few buckets have all of them, it reads more of those; and it reads on while it finds only rows that
    /// it cannot take.
    async fn claim_fresh(&mut self, transaction: &mut Transaction) -> Result<(), ReadError> {
        let before = self.claimed.len();
        let mut parts = PARTS;
        for _ in 0..READS {
            let limits = self.left();
            let wanted: usize = limits.iter().sum();
            if self.is_full() || wanted == 0 {
                break;
            }
            let read = self.read_fresh(transaction, &limits, parts).await?;
            let is_poor = self.claimed.len() == before || (read.rows > 0 && read.rows * 4 < wanted * 3);
            if !read.has_more || !is_poor {
                break;
            }
            parts = read.floors.len().clamp(1, PARTS);
        }
        Ok(())
    }

    async fn read_fresh(
        &mut self,
        transaction: &mut Transaction,
        limits: &[usize],
        parts: usize,
    ) -> Result<Read, ReadError> {
        let segments = self.segments();
        let query = self.fresh(&self.inner.sql.claim_keyed_fresh, &segments, limits, parts);
        let mut rows = query.persistent(false).fetch(&mut **transaction);
        let mut read = Read::default();
        while let Some(row) = rows.try_next().await? {
            if let Some(places) = row.try_get::<Option<Vec<i64>>, _>("places")? {
                let floors: Vec<i64> = row.try_get("floors")?;
                let places = places
                    .iter()
                    .map(|place| usize::try_from(*place).unwrap_or(usize::MAX));
                read.floors = places.zip(floors).collect();
            }
            read.has_more |= row.try_get::<Option<bool>, _>("has_more")?.unwrap_or(false);
            read.has_more |= row.try_get::<Option<i64>, _>("moved")?.unwrap_or(0) > 0;
            // Without a claimed row, the only row has no id.
            if row.try_get_unchecked::<Option<uuid::Uuid>, _>(0)?.is_some() {
                self.claimed.push(delivery(&row, self.request.claim, false)?);
                check_size(&self.claimed, &mut self.bytes, self.request)?;
                read.rows += 1;
            }
        }
        drop(rows);
        read.floors.sort_unstable();
        for (place, floor) in &read.floors {
            if let Some(segment) = place.checked_sub(1).and_then(|place| segments.get(place)) {
                let progress = &mut self.progress[segment.share];
                progress.read(segment.bucket, *floor);
                progress.ended(segment.bucket);
            }
        }
        Ok(read)
    }

    /// The segments of all shares, share by share.
    fn segments(&self) -> Vec<Segment> {
        let progress = self.progress.iter().enumerate();
        progress
            .flat_map(|(share, progress)| progress.segments(share))
            .collect()
    }

    fn fresh(
        &self,
        statement: &Statement,
        segments: &[Segment],
        limits: &[usize],
        parts: usize,
    ) -> ClaimQuery {
        let number = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let turns: Vec<i64> = segments.iter().map(|segment| count(segment.share + 1)).collect();
        let buckets: Vec<i32> = segments.iter().map(|segment| number(segment.bucket)).collect();
        let floors: Vec<i64> = segments.iter().map(|segment| segment.floor).collect();
        let most: Vec<i64> = segments
            .iter()
            .map(|segment| count(limits[segment.share].div_ceil(parts)))
            .collect();
        let bottoms: Vec<i64> = self.progress.iter().map(|progress| progress.bottom).collect();
        sqlx::query(statement.safe())
            .bind(self.request.worker)
            .bind(self.request.claim)
            .bind(interval(self.request.lease))
            .bind(attempts(self.request.max_attempts))
            .bind(self.bytes_left())
            .bind(self.destinations())
            .bind(self.namespaces())
            .bind(limits.iter().map(|limit| count(*limit)).collect::<Vec<_>>())
            .bind(bottoms)
            .bind(turns)
            .bind(buckets)
            .bind(floors)
            .bind(most)
    }

    fn tried(&self, statement: &Statement, limits: &[usize]) -> ClaimQuery {
        sqlx::query(statement.safe())
            .bind(self.request.worker)
            .bind(self.request.claim)
            .bind(interval(self.request.lease))
            .bind(self.destinations())
            .bind(self.namespaces())
            .bind(limits.iter().map(|limit| count(*limit)).collect::<Vec<_>>())
            .bind(i32::from(self.request.first_lane))
            .bind(attempts(self.request.max_attempts))
            .bind(self.bytes_left())
    }

    fn bytes_left(&self) -> i64 {
        count(self.request.max_bytes.saturating_sub(self.bytes).max(1))
    }

    /// '' means no destination. No destination has this name.
    fn destinations(&self) -> Vec<String> {
        let destinations = self.shares.iter().map(|share| share.backlog.destination.clone());
        destinations.map(Option::unwrap_or_default).collect()
    }

    fn namespaces(&self) -> Vec<String> {
        self.shares
            .iter()
            .map(|share| share.backlog.namespace.clone())
            .collect()
    }
}
