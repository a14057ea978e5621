//! The leases of claims: ends those that expired, renews them, and knows which are finished.
//!
//! The worker counts the open rows of each claim in memory. When the last one is settled, the next settlement deletes the
//! lease. The count is a hint: a lease that is never deleted expires, and a sweep ends it.
//!
//! **If we die here** the leases expire.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::Row;
use uuid::Uuid;

use super::{Inner, Transaction, interval, store_error};
use crate::store::{Scope, StoreError};

/// How many rows of expired leases one statement frees at most.
const MOST: i64 = 5000;
/// How often rows are looked for whose lease was lost.
const LOST_INTERVAL: Duration = Duration::from_secs(60);
/// How many claims are remembered before those are forgotten that have expired.
const REMEMBERED: usize = 10_000;

/// What this worker knows of the leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<Uuid, Open>,
    /// Claims without open rows, whose leases are still there.
    finished: Vec<Uuid>,
    /// When lost leases were last looked for, and up to which backlog.
    looked: Option<Instant>,
    after: (String, String),
}

#[derive(Debug)]
struct Open {
    rows: usize,
    expires: Instant,
}

impl Leases {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim took so many rows.
    pub(super) fn claimed(&self, claim: Uuid, rows: usize, lease: Duration) {
        if rows == 0 {
            return;
        }
        let now = Instant::now();
        let mut state = self.state();
        if state.open.len() >= REMEMBERED {
            state.open.retain(|_, open| open.expires > now);
        }
        // Longer than the lease, which a renewal extends.
        let expires = now + lease.min(Duration::from_secs(86_400)) * 2;
        state.open.insert(claim, Open { rows, expires });
    }

    fn renewed(&self, claims: &[Uuid], lease: Duration) {
        let expires = Instant::now() + lease.min(Duration::from_secs(86_400)) * 2;
        let mut state = self.state();
        for claim in claims {
            if let Some(open) = state.open.get_mut(claim) {
                open.expires = expires;
            }
        }
    }

    /// Routing added siblings to these claims.
    pub(super) fn added(&self, claims: impl Iterator<Item = Uuid>) {
        let mut state = self.state();
        for claim in claims {
            if let Some(open) = state.open.get_mut(&claim) {
                open.rows += 1;
            }
        }
    }

    /// A row of each of these claims was settled or released. Each row counts once.
    pub(super) fn settled(&self, claims: impl IntoIterator<Item = Uuid>) {
        let mut state = self.state();
        let State { open, finished, .. } = &mut *state;
        for claim in claims {
            if let Some(left) = open.get_mut(&claim) {
                left.rows = left.rows.saturating_sub(1);
                if left.rows == 0 {
                    open.remove(&claim);
                    finished.push(claim);
                }
            }
        }
    }

    /// The claims whose leases are to be deleted. If that fails, they expire.
    pub(super) fn take_finished(&self) -> Vec<Uuid> {
        std::mem::take(&mut self.state().finished)
    }

    /// The backlog after which lost leases are looked for, if it is time to.
    fn look_after(&self) -> Option<(String, String)> {
        let mut state = self.state();
        let is_due = state
            .looked
            .is_none_or(|looked| looked.elapsed() >= LOST_INTERVAL);
        is_due.then(|| {
            state.looked = Some(Instant::now());
            state.after.clone()
        })
    }
}

/// Ends expired leases, so that each of their rows has its own.
pub(super) async fn end_expired(inner: &Inner, transaction: &mut Transaction) -> Result<(), StoreError> {
    let query = sqlx::query(inner.sql.end_leases.safe())
        .bind(MOST)
        .persistent(false);
    query.execute(&mut **transaction).await.map_err(store_error)?;
    Ok(())
}

/// Finds rows whose lease was deleted by hand, once in a while.
pub(super) async fn find_lost(inner: &Inner, scope: &Scope) -> Result<(), StoreError> {
    let Some((destination, namespace)) = inner.leases.look_after() else {
        return Ok(());
    };
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.lost_leases.safe())
        .bind(&destination)
        .bind(&namespace)
        .bind(scope.names())
        .persistent(false);
    let row = query.fetch_one(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    let freed: i64 = row.try_get("freed").map_err(store_error)?;
    if freed > 0 {
        tracing::warn!(rows = freed, "lease lost, events in processing are claimed again");
    }
    let last: (String, String) = (
        row.try_get("destination").map_err(store_error)?,
        row.try_get("namespace").map_err(store_error)?,
    );
    // After the last backlog it begins again.
    let is_end = last == (destination, namespace);
    inner.leases.state().after = if is_end { Default::default() } else { last };
    Ok(())
}

pub(super) async fn renew(
    inner: Arc<Inner>,
    worker: Uuid,
    rows: Vec<(Uuid, Uuid)>,
    lease: Duration,
) -> Result<Vec<Uuid>, StoreError> {
    let (ids, claims): (Vec<Uuid>, Vec<Uuid>) = rows.into_iter().unzip();
    let mut transaction = inner.begin_apart().await?;
    let query = sqlx::query(inner.sql.renew.safe())
        .bind(worker)
        .bind(&ids)
        .bind(&claims)
        .bind(interval(lease))
        .persistent(false);
    query.execute(&mut *transaction).await.map_err(store_error)?;
    let query = sqlx::query_scalar(inner.sql.renew_rows.safe())
        .bind(worker)
        .bind(&ids)
        .bind(&claims)
        .bind(interval(lease))
        .persistent(false);
    let lost = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    inner.leases.renewed(&claims, lease);
    Ok(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    fn claim(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    #[test]
    fn a_claim_is_finished_when_its_last_row_is_settled() {
        let leases = Leases::default();
        leases.claimed(claim(1), 2, LEASE);
        leases.claimed(claim(2), 1, LEASE);
        leases.settled([claim(1), claim(2)]);
        assert_eq!(leases.take_finished(), [claim(2)]);
        leases.settled([claim(1)]);
        assert_eq!(leases.take_finished(), [claim(1)]);
        assert!(leases.take_finished().is_empty());
    }

    #[test]
    fn a_sibling_keeps_the_lease_of_its_claim() {
        let leases = Leases::default();
        leases.claimed(claim(1), 1, LEASE);
        leases.added([claim(1)].into_iter());
        leases.settled([claim(1)]);
        assert!(leases.take_finished().is_empty());
        leases.settled([claim(1)]);
        assert_eq!(leases.take_finished(), [claim(1)]);
    }

    #[test]
    fn an_unknown_claim_is_never_finished() {
        let leases = Leases::default();
        leases.settled([claim(1)]);
        leases.claimed(claim(2), 0, LEASE);
        leases.settled([claim(2)]);
        assert!(leases.take_finished().is_empty());
    }

    #[test]
    fn expired_claims_are_forgotten_when_there_are_many() {
        let leases = Leases::default();
        for n in 0..REMEMBERED as u128 {
            leases.claimed(claim(n), 1, Duration::ZERO);
        }
        leases.claimed(claim(u128::MAX), 1, LEASE);
        assert_eq!(leases.state().open.len(), 1);
    }
}
