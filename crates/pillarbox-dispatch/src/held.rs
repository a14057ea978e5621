//! What this worker has claimed and not settled: the rows, their leases, and the room that is left.
//!
//! A row takes room from its claim until its settlement is written, so that memory is bounded also
//! while the database is gone: settlements wait, room stays taken, claims stop by themselves.
//!
//! Locked once per batch, never across an await.
//!
//! **If we die here** the leases end, and other workers take the rows.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;

/// How long one claim may be trusted, by this machine's own clock. Shared by all rows of the claim.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) claim: Uuid,
    ends: AtomicU64,
    any_lost: AtomicBool,
    lost: Mutex<HashSet<Uuid>>,
}

impl Lease {
    /// A lease that was asked for at `asked`: measured from before the claim was sent, because the
    /// database may have answered at any time since, and ended a little early, because clocks differ.
    pub(crate) fn new(claim: Uuid, asked: Duration, length: Duration) -> Self {
        Self {
            claim,
            ends: AtomicU64::new(end(asked, length)),
            any_lost: AtomicBool::new(false),
            lost: Mutex::default(),
        }
    }

    /// How long it still holds for this row; zero if it does not.
    pub(crate) fn left(&self, row: Uuid, now: Duration) -> Duration {
        if self.is_lost(row) {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.ends.load(Ordering::Acquire)).saturating_sub(now)
    }

    /// Did the store say that the row is somebody else's?
    pub(crate) fn is_lost(&self, row: Uuid) -> bool {
        self.any_lost.load(Ordering::Acquire) && self.lost().contains(&row)
    }

    fn extend(&self, asked: Duration, length: Duration) {
        self.ends.store(end(asked, length), Ordering::Release);
    }

    fn lose(&self, row: Uuid) {
        self.lost().insert(row);
        self.any_lost.store(true, Ordering::Release);
    }

    fn lost(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end(asked: Duration, length: Duration) -> u64 {
    let end = asked + length.saturating_sub(margin(length));
    u64::try_from(end.as_nanos()).unwrap_or(u64::MAX)
}

/// How much earlier than the database we call a lease over.
pub(crate) fn margin(lease: Duration) -> Duration {
    (lease / 10).min(Duration::from_secs(1))
}

/// Room in rows and in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Room {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Held {
    book: Mutex<Book>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Book {
    taken: Room,
    claims: HashMap<Uuid, Claim>,
}

#[derive(Debug)]
struct Claim {
    lease: Arc<Lease>,
    renewed: Duration,
    /// Rows that have no verdict yet; the others no longer need the lease.
    open: HashSet<Uuid>,
}

impl Held {
    /// Takes room for the rows of a claim, given as (row, bytes).
    pub(crate) fn take(
        &self,
        lease: &Arc<Lease>,
        asked: Duration,
        rows: impl Iterator<Item = (Uuid, usize)>,
    ) {
        let mut book = self.book();
        let mut open = HashSet::new();
        for (row, bytes) in rows {
            open.insert(row);
            book.taken.rows += 1;
            book.taken.bytes += bytes;
        }
        let claim = Claim {
            lease: Arc::clone(lease),
            renewed: asked,
            open,
        };
        book.claims.insert(lease.claim, claim);
    }

    /// These rows, given as (claim, row), have a verdict: their leases are not renewed any more.
    pub(crate) fn answered(&self, rows: impl Iterator<Item = (Uuid, Uuid)>) {
        let mut book = self.book();
        for (claim, row) in rows {
            let Some(held) = book.claims.get_mut(&claim) else {
                continue;
            };
            held.open.remove(&row);
            if held.open.is_empty() {
                book.claims.remove(&claim);
            }
        }
    }

    /// Gives room back: their settlements are written, or they are nobody's concern any more.
    pub(crate) fn free(&self, room: Room) {
        let mut book = self.book();
        book.taken.rows = book.taken.rows.saturating_sub(room.rows);
        book.taken.bytes = book.taken.bytes.saturating_sub(room.bytes);
        drop(book);
        self.freed.notify_one();
    }

    /// Waits until room was given back. Safe to cancel.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// What is taken.
    pub(crate) fn taken(&self) -> Room {
        self.book().taken
    }

    /// The open rows, as (row, claim), whose lease was last renewed at `before` or earlier.
    pub(crate) fn older_than(&self, before: Duration) -> Vec<(Uuid, Uuid)> {
        let book = self.book();
        let old = book.claims.iter().filter(|(_, claim)| claim.renewed <= before);
        old.flat_map(|(id, claim)| claim.open.iter().map(|row| (*row, *id)))
            .collect()
    }

    /// The leases of these rows were renewed, all but the lost ones. Returns how many of the lost had
    /// no verdict meanwhile: those are lost indeed.
    pub(crate) fn renewed(
        &self,
        rows: &[(Uuid, Uuid)],
        lost: &[Uuid],
        asked: Duration,
        length: Duration,
    ) -> usize {
        let lost: HashSet<Uuid> = lost.iter().copied().collect();
        let mut gone = 0;
        let mut book = self.book();
        for (row, claim) in rows {
            let Some(held) = book.claims.get_mut(claim) else {
                continue;
            };
            if lost.contains(row) {
                gone += usize::from(held.open.contains(row));
                held.lease.lose(*row);
            } else if held.renewed < asked {
                held.renewed = asked;
                held.lease.extend(asked, length);
            }
        }
        gone
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    fn claim(held: &Held, n: u128, rows: &[u128], asked: Duration) -> Arc<Lease> {
        let lease = Arc::new(Lease::new(Uuid::from_u128(n), asked, LEASE));
        held.take(&lease, asked, rows.iter().map(|row| (Uuid::from_u128(*row), 10)));
        lease
    }

    #[test]
    fn a_lease_ends_a_little_before_the_database_says_so() {
        let lease = Lease::new(Uuid::from_u128(1), Duration::from_secs(5), LEASE);
        let row = Uuid::from_u128(2);
        assert_eq!(lease.left(row, Duration::from_secs(5)), Duration::from_secs(59));
        assert_eq!(lease.left(row, Duration::from_secs(64)), Duration::ZERO);
        assert_eq!(margin(Duration::from_secs(2)), Duration::from_millis(200));
    }

    #[test]
    fn room_comes_back_only_when_rows_are_settled() {
        let held = Held::default();
        claim(&held, 1, &[11, 12], Duration::ZERO);
        held.answered([(Uuid::from_u128(1), Uuid::from_u128(11))].into_iter());
        assert_eq!(held.taken(), Room { rows: 2, bytes: 20 });
        held.free(Room { rows: 1, bytes: 10 });
        assert_eq!(held.taken(), Room { rows: 1, bytes: 10 });
    }

    #[test]
    fn only_old_rows_without_a_verdict_are_renewed() {
        let held = Held::default();
        claim(&held, 1, &[11, 12], Duration::ZERO);
        claim(&held, 2, &[21], Duration::from_secs(40));
        held.answered([(Uuid::from_u128(1), Uuid::from_u128(11))].into_iter());
        let old = held.older_than(Duration::from_secs(30));
        assert_eq!(old, [(Uuid::from_u128(12), Uuid::from_u128(1))]);
    }

    #[test]
    fn a_renewal_extends_all_but_what_is_lost() {
        let held = Held::default();
        let lease = claim(&held, 1, &[11, 12], Duration::ZERO);
        let rows = held.older_than(Duration::ZERO);
        let asked = Duration::from_secs(30);
        let lost = Uuid::from_u128(11);
        assert_eq!(held.renewed(&rows, &[lost], asked, LEASE), 1);
        assert_eq!(lease.left(lost, asked), Duration::ZERO);
        assert_eq!(lease.left(Uuid::from_u128(12), asked), Duration::from_secs(59));
        assert!(held.older_than(Duration::from_secs(29)).is_empty());
    }
}
