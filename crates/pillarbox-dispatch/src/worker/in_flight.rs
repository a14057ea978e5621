//! What this worker has claimed and not settled: the rows, their leases, and the room that is left.
//!
//! A row takes room from its claim until its settlement is written, so that memory is bounded also
//! while the database is gone: settlements wait, room stays taken, claims stop by themselves.
//!
//! Locked once per batch, never across an await.
//!
//! **If we die here** the leases end, and other workers take the rows.

use std::collections::{HashMap, HashSet};
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox::Delivery;
use pillarbox_store::store::Range;
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
    /// How many of the rows came back because a lease ran out.
    pub(crate) suspects: usize,
    /// How many of the rows have a lane.
    pub(crate) keyed: usize,
}

impl Room {
    pub(crate) fn of(delivery: &Delivery) -> Self {
        Self {
            rows: 1,
            bytes: delivery.event.payload.len(),
            suspects: usize::from(delivery.suspect),
            keyed: usize::from(delivery.lane.is_some()),
        }
    }
}

impl Add for Room {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            bytes: self.bytes + other.bytes,
            suspects: self.suspects + other.suspects,
            keyed: self.keyed + other.keyed,
        }
    }
}

impl Sub for Room {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            rows: self.rows.saturating_sub(other.rows),
            bytes: self.bytes.saturating_sub(other.bytes),
            suspects: self.suspects.saturating_sub(other.suspects),
            keyed: self.keyed.saturating_sub(other.keyed),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
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
    /// Rows that have no verdict yet, with their lanes; the others no longer need the lease.
    open: HashMap<Uuid, Option<Lane>>,
}

/// A namespace and a lane in it.
type Lane = (String, u16);

fn lane(row: &Delivery) -> Option<Lane> {
    row.lane.map(|lane| (row.event.namespace.clone(), lane))
}

impl Book {
    /// We claimed a row again whose earlier lease, which was ours too, has ended: the earlier attempt
    /// must not go on beside the new one.
    fn lose_own(&self, row: Uuid) {
        for claim in self.claims.values().filter(|claim| claim.open.contains_key(&row)) {
            claim.lease.lose(row);
        }
    }
}

impl InFlight {
    /// Takes room for the rows of a claim.
    pub(crate) fn take(&self, lease: &Arc<Lease>, asked: Duration, rows: &[Delivery]) {
        let open = rows.iter().map(|row| (row.id, lane(row))).collect();
        let mut book = self.book();
        book.taken = rows.iter().map(Room::of).fold(book.taken, Room::add);
        for row in rows.iter().filter(|row| row.suspect) {
            book.lose_own(row.id);
        }
        let claim = Claim {
            lease: Arc::clone(lease),
            renewed: asked,
            open,
        };
        book.claims.insert(lease.claim, claim);
    }

    /// Takes room for a sibling that was born in a claim.
    pub(crate) fn join(&self, lease: &Lease, sibling: &Delivery) {
        let mut book = self.book();
        book.taken = book.taken + Room::of(sibling);
        if let Some(claim) = book.claims.get_mut(&lease.claim) {
            claim.open.insert(sibling.id, lane(sibling));
        }
    }

    /// Is a row of these lanes without a verdict?
    pub(crate) fn holds(&self, range: &Range) -> bool {
        let book = self.book();
        let mut lanes = book
            .claims
            .values()
            .flat_map(|claim| claim.open.values())
            .flatten();
        lanes.any(|(namespace, lane)| {
            *namespace == range.namespace && (range.first..=range.last).contains(lane)
        })
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
        book.taken = book.taken - room;
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
        old.flat_map(|(id, claim)| claim.open.keys().map(|row| (*row, *id)))
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
                gone += usize::from(held.open.contains_key(row));
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

    fn delivery(row: u128) -> Delivery {
        let id = Uuid::from_u128(row);
        Delivery {
            id,
            seq: 1,
            event: pillarbox::Event::new("n", "t")
                .id(id)
                .bytes(vec![0; 10], "text/plain"),
            lane: row.is_multiple_of(3).then_some(7),
            attempts: 1,
            max_attempts: None,
            created_at: time::OffsetDateTime::UNIX_EPOCH,
            claim: Uuid::nil(),
            suspect: row.is_multiple_of(2),
            contested: false,
        }
    }

    fn room(rows: usize, bytes: usize, suspects: usize, keyed: usize) -> Room {
        Room {
            rows,
            bytes,
            suspects,
            keyed,
        }
    }

    fn claim(held: &InFlight, n: u128, rows: &[u128], asked: Duration) -> Arc<Lease> {
        let lease = Arc::new(Lease::new(Uuid::from_u128(n), asked, LEASE));
        let rows: Vec<Delivery> = rows.iter().map(|row| delivery(*row)).collect();
        held.take(&lease, asked, &rows);
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
        let held = InFlight::default();
        claim(&held, 1, &[11, 12], Duration::ZERO);
        held.answered([(Uuid::from_u128(1), Uuid::from_u128(11))].into_iter());
        assert_eq!(held.taken(), room(2, 20, 1, 1));
        held.free(room(1, 10, 1, 1));
        assert_eq!(held.taken(), room(1, 10, 0, 0));
    }

    #[test]
    fn a_lane_is_held_until_its_rows_have_a_verdict() {
        let held = InFlight::default();
        claim(&held, 1, &[12, 13], Duration::ZERO);
        let range = |first, last| Range {
            namespace: "n".to_owned(),
            first,
            last,
            leaving: true,
        };
        assert!(held.holds(&range(0, 7)) && !held.holds(&range(8, 4095)));
        held.answered([(Uuid::from_u128(1), Uuid::from_u128(12))].into_iter());
        assert!(!held.holds(&range(0, 7)));
    }

    #[test]
    fn a_sibling_takes_room_in_the_claim_that_it_was_born_in() {
        let held = InFlight::default();
        let lease = claim(&held, 1, &[11], Duration::ZERO);
        held.join(&lease, &delivery(13));
        assert_eq!(held.taken().rows, 2);
        assert_eq!(held.older_than(Duration::ZERO).len(), 2);
    }

    #[test]
    fn only_old_rows_without_a_verdict_are_renewed() {
        let held = InFlight::default();
        claim(&held, 1, &[11, 12], Duration::ZERO);
        claim(&held, 2, &[21], Duration::from_secs(40));
        held.answered([(Uuid::from_u128(1), Uuid::from_u128(11))].into_iter());
        let old = held.older_than(Duration::from_secs(30));
        assert_eq!(old, [(Uuid::from_u128(12), Uuid::from_u128(1))]);
    }

    #[test]
    fn a_row_that_we_claim_again_is_lost_under_the_earlier_claim() {
        let held = InFlight::default();
        let before = claim(&held, 1, &[12, 13], Duration::ZERO);
        let now = Duration::from_secs(10);
        let again = claim(&held, 2, &[12], now);
        let row = Uuid::from_u128(12);
        assert!(before.is_lost(row) && !before.is_lost(Uuid::from_u128(13)));
        assert!(!again.left(row, now).is_zero());
    }

    #[test]
    fn a_renewal_extends_all_but_what_is_lost() {
        let held = InFlight::default();
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
