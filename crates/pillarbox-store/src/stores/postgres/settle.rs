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
use super::sql::Statement;
use super::{Inner, Transaction, attempts, interval, store_error};
use crate::store::{Settlement, StoreError};
use crate::verdict::Verdict;
use pillarbox::failpoint;
use pillarbox::text::error_text;

/// Settlements as arrays, for the statements.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// Delivered rows that are deleted if nothing needs them.
    unkept: Vec<Settlement>,
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
            if settlement.is_unkept() {
                columns.unkept.push(settlement.clone());
            } else {
                columns.push(settlement);
            }
        }
        columns
    }

    fn push(&mut self, settlement: &Settlement) {
        let other = &mut self.other;
        match &settlement.verdict {
            Verdict::Delivered if settlement.unordered => {
                other.push(settlement, "delivered", Duration::ZERO, None);
            }
            Verdict::Delivered => self.delivered.push(settlement),
            Verdict::Delete => self.deleted.push(settlement),
            Verdict::Retry { after, reason } => other.push(settlement, "retry", *after, Some(reason)),
            Verdict::Release { after, reason } => {
                other.push(settlement, "release", *after, reason.as_ref());
            }
            Verdict::Suspect { after, reason } => other.push(settlement, "suspect", *after, Some(reason)),
            Verdict::Dead { reason } => other.push(settlement, "dead", Duration::ZERO, Some(reason)),
        }
    }

    /// Every row and its claim.
    fn rows(&self) -> (Vec<Uuid>, Vec<Uuid>) {
        let unkept = Deleted::of(&self.unkept);
        let Self {
            delivered,
            other,
            deleted,
            ..
        } = self;
        (
            [&unkept.ids[..], &delivered.ids, &other.ids, &deleted.ids].concat(),
            [
                &unkept.claims[..],
                &delivered.claims,
                &other.claims,
                &deleted.claims,
            ]
            .concat(),
        )
    }

    /// Deletes delivered rows that nothing needs. The others, whose rows are needed or lost, are settled as delivered.
    async fn delete_unkept(
        &mut self,
        inner: &Inner,
        transaction: &mut Transaction,
        worker: Uuid,
        finished: &mut Vec<Uuid>,
    ) -> Result<(), StoreError> {
        let unkept = std::mem::take(&mut self.unkept);
        if unkept.is_empty() {
            return Ok(());
        }
        let finished = std::mem::take(finished);
        let statement = &inner.sql.settle_unkept;
        let left = Deleted::of(&unkept)
            .write(statement, transaction, worker, finished)
            .await?;
        let left: HashSet<Uuid> = left.into_iter().collect();
        for settlement in unkept.iter().filter(|settlement| left.contains(&settlement.id)) {
            self.push(settlement);
        }
        Ok(())
    }
}

impl Deleted {
    fn of(settlements: &[Settlement]) -> Self {
        let mut deleted = Self::default();
        for settlement in settlements {
            deleted.push(settlement);
        }
        deleted
    }

    fn push(&mut self, settlement: &Settlement) {
        self.ids.push(settlement.id);
        self.claims.push(settlement.claim);
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
    mut columns: Columns,
) -> Result<Vec<Uuid>, StoreError> {
    let mut transaction = inner.begin().await?;
    let (ids, claims) = columns.rows();
    // One of the statements deletes the leases.
    let mut finished = inner.leases.take_finished();
    let observer = inner.observer();
    let locked = observer.lock(&mut transaction, &ids).await?;
    columns
        .delete_unkept(&inner, &mut transaction, worker, &mut finished)
        .await?;
    let Columns {
        delivered,
        other,
        deleted,
        ..
    } = columns;
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
    let has_tried = !other.ids.is_empty();
    if has_tried {
        let finished = std::mem::take(&mut finished);
        lost.extend(other.write(&inner, &mut transaction, worker, finished).await?);
    }
    if !deleted.ids.is_empty() {
        unrouted.clone_from(&deleted.ids);
        let finished = std::mem::take(&mut finished);
        let statement = &inner.sql.settle_delete;
        let kept = deleted
            .write(statement, &mut transaction, worker, finished)
            .await?;
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
    if has_tried {
        inner.keys.tried();
    }
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
        statement: &Statement,
        transaction: &mut Transaction,
        worker: Uuid,
        finished: Vec<Uuid>,
    ) -> Result<Vec<Uuid>, StoreError> {
        let query = sqlx::query_scalar(statement.safe())
            .bind(worker)
            .bind(self.ids)
            .bind(self.claims)
            .bind(finished)
            .persistent(false);
        query.fetch_all(&mut **transaction).await.map_err(store_error)
    }
}
