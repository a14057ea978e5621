//! The rows in flight: claimed by this worker and not settled, with their leases and the room they use.
//!
//! A row uses room from its claim until its settlement is written. So memory is bounded while the database is
//! unavailable: settlements wait, their room stays in use, and claims stop.
//!
//! Locked once per batch, never across an await.
//!
//! **If we die here** the leases expire, and other workers claim the rows.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox::Delivery;
use pillarbox_store::store::{Backlog, Range};
use tokio::sync::Notify;
use uuid::Uuid;

/// How long a claim is valid by this machine's clock. Shared by all rows of the claim.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) claim: Uuid,
    /// When it was requested.
    pub(crate) asked: Duration,
    expires: AtomicU64,
    any_lost: AtomicBool,
    lost: Mutex<HashSet<Uuid>>,
}

impl Lease {
    /// A lease that was requested at `asked`. It counts from the request, because the database may have started it at any
    /// time since. It expires a little early, because clocks differ.
    pub(crate) fn new(claim: Uuid, asked: Duration, length: Duration) -> Self {
        Self {
            claim,
            asked,
            expires: AtomicU64::new(expiry(asked, length)),
            any_lost: AtomicBool::new(false),
            lost: Mutex::default(),
        }
    }

    /// How long until it expires for this row; zero if it has, or the row is lost.
    pub(crate) fn left(&self, row: Uuid, now: Duration) -> Duration {
        if self.is_lost(row) {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.expires.load(Ordering::Acquire)).saturating_sub(now)
    }

    /// Does another claim have the row?
    pub(crate) fn is_lost(&self, row: Uuid) -> bool {
        self.any_lost.load(Ordering::Acquire) && self.lost().contains(&row)
    }

    fn extend(&self, asked: Duration, length: Duration) {
        self.expires.store(expiry(asked, length), Ordering::Release);
    }

    fn lose(&self, row: Uuid) {
        self.lost().insert(row);
        self.any_lost.store(true, Ordering::Release);
    }

    fn lost(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn expiry(asked: Duration, length: Duration) -> u64 {
    let expiry = asked + length.saturating_sub(margin(length));
    u64::try_from(expiry.as_nanos()).unwrap_or(u64::MAX)
}

/// How much earlier than in the database a lease expires here.
pub(crate) fn margin(lease: Duration) -> Duration {
    (lease / 10).min(Duration::from_secs(1))
}

/// Room in rows and in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Room {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    /// How many of the rows are suspects.
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
    claims: Mutex<Claims>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Claims {
    used: Room,
    by_id: HashMap<Uuid, Claim>,
    /// How many suspects of a claim are not settled, by claim.
    suspects: HashMap<Uuid, usize>,
}

#[derive(Debug)]
struct Claim {
    lease: Arc<Lease>,
    renewed: Duration,
    /// Rows without a verdict, with their lanes. The others no longer need the lease.
    undecided: HashMap<Uuid, Option<Lane>>,
}

/// The backlog from which a row was claimed, and its lane. The backlog is shared by rows that were claimed together.
type Lane = (Arc<Backlog>, u16);

fn lane(row: &Delivery, last: &mut Option<Arc<Backlog>>) -> Option<Lane> {
    let lane = row.lane?;
    let same = |backlog: &&mut Arc<Backlog>| {
        backlog.namespace == row.event.namespace && backlog.destination == row.event.destination
    };
    if let Some(backlog) = last.as_mut().filter(same) {
        return Some((Arc::clone(backlog), lane));
    }
    let backlog = Arc::new(Backlog {
        destination: row.event.destination.clone(),
        namespace: row.event.namespace.clone(),
    });
    *last = Some(Arc::clone(&backlog));
    Some((backlog, lane))
}

/// The lanes of rows without a verdict.
#[derive(Debug, Default)]
pub(crate) struct LanesInUse(HashMap<Arc<Backlog>, BTreeSet<u16>>);

impl LanesInUse {
    /// Is a row of these lanes without a verdict?
    pub(crate) fn has(&self, range: &Range) -> bool {
        let lanes = self.0.get(&range.backlog);
        lanes.is_some_and(|lanes| lanes.range(range.first..=range.last).next().is_some())
    }
}

impl Claims {
    /// This worker claimed a row again whose earlier claim was its own too: the earlier attempt must not go on beside the
    /// new one.
    fn lose_own(&self, row: Uuid) {
        for claim in self
            .by_id
            .values()
            .filter(|claim| claim.undecided.contains_key(&row))
        {
            claim.lease.lose(row);
        }
    }
}

impl InFlight {
    /// Adds the rows of a claim.
    pub(crate) fn add(&self, lease: &Arc<Lease>, asked: Duration, rows: &[Delivery]) {
        let mut last = None;
        let undecided = rows.iter().map(|row| (row.id, lane(row, &mut last))).collect();
        let mut claims = self.claims();
        claims.used = rows.iter().map(Room::of).fold(claims.used, Room::add);
        for row in rows.iter().filter(|row| row.suspect) {
            claims.lose_own(row.id);
            *claims.suspects.entry(lease.claim).or_default() += 1;
        }
        let claim = Claim {
            lease: Arc::clone(lease),
            renewed: asked,
            undecided,
        };
        claims.by_id.insert(lease.claim, claim);
    }

    /// Adds a sibling that routing made for a row of a claim.
    pub(crate) fn add_sibling(&self, lease: &Lease, sibling: &Delivery) {
        let mut claims = self.claims();
        claims.used = claims.used + Room::of(sibling);
        if sibling.suspect {
            *claims.suspects.entry(lease.claim).or_default() += 1;
        }
        if let Some(claim) = claims.by_id.get_mut(&lease.claim) {
            claim.undecided.insert(sibling.id, lane(sibling, &mut None));
        }
    }

    /// The lanes of rows without a verdict.
    pub(crate) fn lanes_in_use(&self) -> LanesInUse {
        let claims = self.claims();
        let undecided = claims.by_id.values().flat_map(|claim| claim.undecided.values());
        let mut in_use = LanesInUse::default();
        for (backlog, lane) in undecided.flatten() {
            in_use.0.entry(Arc::clone(backlog)).or_default().insert(*lane);
        }
        in_use
    }

    /// These rows, given as (claim, row), have a verdict: their leases are no longer renewed.
    pub(crate) fn decided(&self, rows: impl Iterator<Item = (Uuid, Uuid)>) {
        let mut claims = self.claims();
        for (id, row) in rows {
            let Some(claim) = claims.by_id.get_mut(&id) else {
                continue;
            };
            claim.undecided.remove(&row);
            if claim.undecided.is_empty() {
                claims.by_id.remove(&id);
            }
        }
    }

    /// Frees the room of rows that are settled or lost, given with their claims.
    pub(crate) fn free(&self, rows: impl IntoIterator<Item = (Uuid, Room)>) {
        let mut claims = self.claims();
        for (claim, room) in rows {
            claims.used = claims.used - room;
            if room.suspects > 0
                && let Some(left) = claims.suspects.get_mut(&claim)
            {
                *left = left.saturating_sub(room.suspects);
                if *left == 0 {
                    claims.suspects.remove(&claim);
                }
            }
        }
        drop(claims);
        self.freed.notify_one();
    }

    /// Is a suspect of this claim not settled?
    pub(crate) fn has_suspects(&self, claim: Uuid) -> bool {
        self.claims().suspects.contains_key(&claim)
    }

    /// Waits until room was freed. Safe to cancel.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// The room in use.
    pub(crate) fn used(&self) -> Room {
        self.claims().used
    }

    /// Rows without a verdict, as (row, claim), whose lease was last renewed at `before` or earlier.
    pub(crate) fn older_than(&self, before: Duration) -> Vec<(Uuid, Uuid)> {
        let claims = self.claims();
        let old = claims.by_id.iter().filter(|(_, claim)| claim.renewed <= before);
        old.flat_map(|(id, claim)| claim.undecided.keys().map(|row| (*row, *id)))
            .collect()
    }

    /// The leases of these rows were renewed, except for the lost ones. Returns how many lost rows have no verdict; the
    /// others were settled meanwhile.
    pub(crate) fn renewed(
        &self,
        rows: &[(Uuid, Uuid)],
        lost: &[Uuid],
        asked: Duration,
        length: Duration,
    ) -> usize {
        let lost: HashSet<Uuid> = lost.iter().copied().collect();
        let mut count = 0;
        let mut claims = self.claims();
        for (row, id) in rows {
            let Some(claim) = claims.by_id.get_mut(id) else {
                continue;
            };
            if lost.contains(row) {
                count += usize::from(claim.undecided.contains_key(row));
                claim.lease.lose(*row);
            } else if claim.renewed < asked {
                claim.renewed = asked;
                claim.lease.extend(asked, length);
            }
        }
        count
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn claim(in_flight: &InFlight, n: u128, rows: &[u128], asked: Duration) -> Arc<Lease> {
        let lease = Arc::new(Lease::new(Uuid::from_u128(n), asked, LEASE));
        let rows: Vec<Delivery> = rows.iter().map(|row| delivery(*row)).collect();
        in_flight.add(&lease, asked, &rows);
        lease
    }

    #[test]
    fn a_lease_expires_a_little_before_it_does_in_the_database() {
        let lease = Lease::new(Uuid::from_u128(1), Duration::from_secs(5), LEASE);
        let row = Uuid::from_u128(2);
        assert_eq!(lease.left(row, Duration::from_secs(5)), Duration::from_secs(59));
        assert_eq!(lease.left(row, Duration::from_secs(64)), Duration::ZERO);
        assert_eq!(margin(Duration::from_secs(2)), Duration::from_millis(200));
    }

    #[test]
    fn room_is_freed_only_when_rows_are_settled() {
        let in_flight = InFlight::default();
        claim(&in_flight, 1, &[11, 12], Duration::ZERO);
        in_flight.decided([(Uuid::from_u128(1), Uuid::from_u128(11))].into_iter());
        assert_eq!(in_flight.used(), room(2, 20, 1, 1));
        assert!(in_flight.has_suspects(Uuid::from_u128(1)));
        in_flight.free([(Uuid::from_u128(1), room(1, 10, 1, 1))]);
        assert_eq!(in_flight.used(), room(1, 10, 0, 0));
        assert!(!in_flight.has_suspects(Uuid::from_u128(1)));
    }

    #[test]
    fn a_lane_is_in_use_until_its_rows_have_a_verdict() {
        let in_flight = InFlight::default();
        claim(&in_flight, 1, &[12, 13], Duration::ZERO);
        let range = |first, last| Range {
            backlog: Backlog {
                destination: None,
                namespace: "n".to_owned(),
            },
            first,
            last,
            leaving: true,
        };
        let in_use = in_flight.lanes_in_use();
        assert!(in_use.has(&range(0, 7)) && !in_use.has(&range(8, 4095)));
        in_flight.decided([(Uuid::from_u128(1), Uuid::from_u128(12))].into_iter());
        assert!(!in_flight.lanes_in_use().has(&range(0, 7)));
    }

    #[test]
    fn a_sibling_uses_room_in_the_claim_of_its_row() {
        let in_flight = InFlight::default();
        let lease = claim(&in_flight, 1, &[11], Duration::ZERO);
        in_flight.add_sibling(&lease, &delivery(13));
        assert_eq!(in_flight.used().rows, 2);
        assert_eq!(in_flight.older_than(Duration::ZERO).len(), 2);
    }

    #[test]
    fn only_old_rows_without_a_verdict_are_renewed() {
        let in_flight = InFlight::default();
        claim(&in_flight, 1, &[11, 12], Duration::ZERO);
        claim(&in_flight, 2, &[21], Duration::from_secs(40));
        in_flight.decided([(Uuid::from_u128(1), Uuid::from_u128(11))].into_iter());
        let old = in_flight.older_than(Duration::from_secs(30));
        assert_eq!(old, [(Uuid::from_u128(12), Uuid::from_u128(1))]);
    }

    #[test]
    fn a_row_that_is_claimed_again_is_lost_to_the_earlier_claim() {
        let in_flight = InFlight::default();
        let before = claim(&in_flight, 1, &[12, 13], Duration::ZERO);
        let now = Duration::from_secs(10);
        let again = claim(&in_flight, 2, &[12], now);
        let row = Uuid::from_u128(12);
        assert!(before.is_lost(row) && !before.is_lost(Uuid::from_u128(13)));
        assert!(!again.left(row, now).is_zero());
    }

    #[test]
    fn a_renewal_extends_all_but_lost_rows() {
        let in_flight = InFlight::default();
        let lease = claim(&in_flight, 1, &[11, 12], Duration::ZERO);
        let rows = in_flight.older_than(Duration::ZERO);
        let asked = Duration::from_secs(30);
        let lost = Uuid::from_u128(11);
        assert_eq!(in_flight.renewed(&rows, &[lost], asked, LEASE), 1);
        assert_eq!(lease.left(lost, asked), Duration::ZERO);
        assert_eq!(lease.left(Uuid::from_u128(12), asked), Duration::from_secs(59));
        assert!(in_flight.older_than(Duration::from_secs(29)).is_empty());
    }
}
