//! Writes verdicts in batches, only to rows that are still held.
//!
//! **If we die here** before the commit, the rows stay in processing until their leases expire, and the events may be sent
//! again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use super::observer::Change;
use super::{Inner, Transaction, attempts, interval, store_error};
use crate::store::{Settlement, StoreError};
use crate::verdict::Verdict;
use pillarbox::failpoint;
use pillarbox::text::error_text;

/// Settlements as arrays, for the statements.
#[derive(Debug, Default)]
pub(super) struct Columns {
    delivered: Delivered,
    other: Other,
    deleted: Deleted,
}

#[derive(Debug, Default)]
struct Deleted {
    ids: Vec<Uuid>,
    claims: Vec<Uuid>,
}

#[derive(Debug, Default)]
struct Delivered {
    ids: Vec<Uuid>,
    claims: Vec<Uuid>,
    destinations: Vec<Option<String>>,
    max_attempts: Vec<Option<i32>>,
}

#[derive(Debug, Default)]
struct Other {
    ids: Vec<Uuid>,
    claims: Vec<Uuid>,
    verdicts: Vec<&'static str>,
    waits: Vec<PgInterval>,
    reasons: Vec<Option<String>>,
    destinations: Vec<Option<String>>,
    max_attempts: Vec<Option<i32>>,
    unordered: Vec<bool>,
}

impl Columns {
    pub(super) fn of(settlements: &[Settlement]) -> Self {
        let mut columns = Self::default();
        for settlement in settlements {
            match &settlement.verdict {
                Verdict::Delivered if settlement.unordered => {
                    columns.other.push(settlement, "delivered", Duration::ZERO, None);
                }
                Verdict::Delivered => columns.delivered.push(settlement),
                Verdict::Delete => {
                    columns.deleted.ids.push(settlement.id);
                    columns.deleted.claims.push(settlement.claim);
                }
                Verdict::Retry { after, reason } => {
                    columns.other.push(settlement, "retry", *after, Some(reason));
                }
                Verdict::Release { after, reason } => {
                    columns.other.push(settlement, "release", *after, reason.as_ref());
                }
                Verdict::Suspect { after, reason } => {
                    columns.other.push(settlement, "suspect", *after, Some(reason));
                }
                Verdict::Dead { reason } => {
                    columns
                        .other
                        .push(settlement, "dead", Duration::ZERO, Some(reason));
                }
            }
        }
        columns
    }
}

impl Delivered {
    fn push(&mut self, settlement: &Settlement) {
        self.ids.push(settlement.id);
        self.claims.push(settlement.claim);
        self.destinations.push(settlement.destination.clone());
        self.max_attempts.push(settlement.max_attempts.map(attempts));
    }
}

impl Other {
    fn push(
        &mut self,
        settlement: &Settlement,
        verdict: &'static str,
        wait: Duration,
        reason: Option<&String>,
    ) {
        self.ids.push(settlement.id);
        self.claims.push(settlement.claim);
        self.verdicts.push(verdict);
        self.waits.push(interval(wait));
        self.reasons.push(reason.map(|reason| error_text(reason)));
        self.destinations.push(settlement.destination.clone());
        self.max_attempts.push(settlement.max_attempts.map(attempts));
        self.unordered.push(settlement.unordered);
    }
}

pub(super) async fn settle(
    inner: Arc<Inner>,
    worker: Uuid,
    columns: Columns,
) -> Result<Vec<Uuid>, StoreError> {
    let Columns {
        delivered,
        other,
        deleted,
    } = columns;
    let mut transaction = inner.begin().await?;
    let ids = [&delivered.ids[..], &other.ids, &deleted.ids].concat();
    let claims = [&delivered.claims[..], &other.claims, &deleted.claims].concat();
    // One of the statements deletes the leases.
    let mut finished = inner.leases.take_finished();
    let observer = inner.observer();
    let locked = observer.lock(&mut transaction, &ids).await?;
    let mut lost: Vec<Uuid> = Vec::new();
    let mut unrouted: Vec<Uuid> = Vec::new();
    if !delivered.ids.is_empty() {
        let finished = std::mem::take(&mut finished);
        lost.extend(
            delivered
                .write(&inner, &mut transaction, worker, finished)
                .await?,
        );
    }
    if !other.ids.is_empty() {
        let finished = std::mem::take(&mut finished);
        lost.extend(other.write(&inner, &mut transaction, worker, finished).await?);
    }
    if !deleted.ids.is_empty() {
        unrouted.clone_from(&deleted.ids);
        let finished = std::mem::take(&mut finished);
        let kept = deleted.write(&inner, &mut transaction, worker, finished).await?;
        unrouted.retain(|id| !kept.contains(id));
        lost.extend(kept);
    }
    let change = Change {
        rows: &ids,
        lost: &lost,
        unrouted: &unrouted,
        ..Change::default()
    };
    observer.changed(&mut transaction, locked, change).await?;
    failpoint::hit("in_settle");
    transaction.commit().await.map_err(store_error)?;
    // Without lost rows, and each row once: a claim is finished only when none of its rows is held.
    let mut uncounted: HashSet<Uuid> = ids.iter().copied().collect();
    for id in &lost {
        uncounted.remove(id);
    }
    let settled = ids.iter().zip(claims).filter(|(id, _)| uncounted.remove(*id));
    inner.leases.settled(settled.map(|(_, claim)| claim));
    Ok(lost)
}

impl Delivered {
    async fn write(
        self,
        inner: &Inner,
        transaction: &mut Transaction,
        worker: Uuid,
        finished: Vec<Uuid>,
    ) -> Result<Vec<Uuid>, StoreError> {
        let query = sqlx::query_scalar(inner.sql.settle_delivered.safe())
            .bind(worker)
            .bind(self.ids)
            .bind(self.claims)
            .bind(finished)
            .bind(self.destinations)
            .bind(self.max_attempts)
            .persistent(false);
        query.fetch_all(&mut **transaction).await.map_err(store_error)
    }
}

impl Other {
    async fn write(
        self,
        inner: &Inner,
        transaction: &mut Transaction,
        worker: Uuid,
        finished: Vec<Uuid>,
    ) -> Result<Vec<Uuid>, StoreError> {
        let query = sqlx::query_scalar(inner.sql.settle_other.safe())
            .bind(worker)
            .bind(self.ids)
            .bind(self.claims)
            .bind(finished)
            .bind(self.verdicts)
            .bind(self.waits)
            .bind(self.reasons)
            .bind(self.destinations)
            .bind(self.max_attempts)
            .bind(self.unordered)
            .persistent(false);
        query.fetch_all(&mut **transaction).await.map_err(store_error)
    }
}

impl Deleted {
    async fn write(
        self,
        inner: &Inner,
        transaction: &mut Transaction,
        worker: Uuid,
        finished: Vec<Uuid>,
    ) -> Result<Vec<Uuid>, StoreError> {
        let query = sqlx::query_scalar(inner.sql.settle_delete.safe())
            .bind(worker)
            .bind(self.ids)
            .bind(self.claims)
            .bind(finished)
            .persistent(false);
        query.fetch_all(&mut **transaction).await.map_err(store_error)
    }
}
