//! Claims due rows for one worker, and rows whose lease expired.
//!
//! **If we die here** the lease expires and the next claim takes the rows. The attempt stays counted.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use time::OffsetDateTime;
use uuid::Uuid;

use super::{Row, Table};
use crate::state::{Change, Lease};
use crate::store::{ClaimRequest, LANES, Share, Take};
use pillarbox::Delivery;

impl Table {
    pub(super) fn claim(&mut self, request: &ClaimRequest, now: OffsetDateTime) -> Vec<Delivery> {
        let lease = Lease {
            worker: request.worker,
            claim: request.claim,
            until: now + request.lease,
        };
        let change = Change::Claim {
            lease,
            limit: request.max_attempts,
        };
        let elsewhere =
            |row: &Row| row.lane.is_some() && row.is_unfinished() && row.event.destination.is_some();
        let contested = self.rows.values().any(elsewhere);
        let mut room = request.max_bytes;
        let mut claimed = Vec::new();
        for id in self.candidates(request, now) {
            let Some(row) = self.find(id) else { continue };
            let suspect = row.state.is_expired(now);
            let Ok(state) = row.state.clone().step(change.clone(), now) else {
                continue;
            };
            let size = row.event.payload.len();
            if size > room && !claimed.is_empty() {
                break;
            }
            room = room.saturating_sub(size);
            row.state = state;
            row.updated_at = now;
            let contested = contested && row.lane.is_some() && row.event.destination.is_none();
            claimed.push(row.delivery(&lease, suspect, contested));
        }
        claimed.sort_by_key(|delivery| delivery.seq);
        claimed
    }

    /// In the order in which they are claimed.
    fn candidates(&self, request: &ClaimRequest, now: OffsetDateTime) -> Vec<Uuid> {
        match &request.take {
            Take::Free(shares) => shares
                .iter()
                .flat_map(|share| self.free(share, request, now))
                .collect(),
            Take::Keyed(shares) => shares
                .iter()
                .flat_map(|share| self.keyed(share, request, now))
                .collect(),
            Take::Suspects(limit) => self.expired(request, now, |row| row.state.attempts < 2, *limit),
            Take::LoneSuspect => self.expired(request, now, |row| row.state.attempts >= 2, 1),
        }
    }

    /// Rows that have waited, by due time, up to the room that is kept for them; then fresh rows; then the others that have
    /// waited.
    fn free(&self, share: &Share, request: &ClaimRequest, now: OffsetDateTime) -> Vec<Uuid> {
        let due: Vec<&Row> = self
            .rows
            .values()
            .filter(|row| row.lane.is_none() && row.is_from(&share.backlog) && row.is_due(now))
            .filter(|row| request.scope.contains(&row.event.namespace))
            .filter(|row| !row.state.is_exhausted(request.max_attempts))
            .collect();
        let (mut fresh, mut waited): (Vec<&Row>, Vec<&Row>) = due.into_iter().partition(|row| row.is_fresh());
        fresh.retain(|row| row.seq >= share.floor);
        waited.sort_by_key(|row| (row.state.due, row.seq));
        if share.fair {
            waited = in_turns(waited, request.claim);
            fresh = in_turns(fresh, request.claim);
        }
        let kept = request.kept_for_waited(share.limit).min(waited.len());
        let rest = waited.split_off(kept);
        let rows = waited.into_iter().chain(fresh).chain(rest);
        rows.take(share.limit).map(|row| row.id).collect()
    }

    /// The runs of all keys within the limit, from the first lane on.
    fn keyed(&self, share: &Share, request: &ClaimRequest, now: OffsetDateTime) -> Vec<Uuid> {
        let mut keys: BTreeMap<(u16, &str), Vec<&Row>> = BTreeMap::new();
        let theirs = |row: &&Row| {
            row.is_from(&share.backlog) && row.is_unfinished() && request.scope.contains(&row.event.namespace)
        };
        for row in self.rows.values().filter(theirs) {
            let (Some(lane), Some(key)) = (row.lane, &row.event.ordering_key) else {
                continue;
            };
            if self.owns(request.worker, &row.backlog(), lane, now) {
                let turn = (lane + LANES - request.first_lane) % LANES;
                keys.entry((turn, key)).or_default().push(row);
            }
        }
        let mut runs: Vec<Vec<Uuid>> = keys
            .into_values()
            .map(|rows| self.beginning(&rows, request, now))
            .collect();
        runs.retain(|run| !run.is_empty());
        runs.truncate((share.limit / 16).max((share.limit / 4).min(16)).max(1));
        let each = share.limit.div_ceil(runs.len().max(1));
        runs.into_iter()
            .flat_map(|run| run.into_iter().take(each))
            .take(share.limit)
            .collect()
    }

    /// The rows of a key up to the first that cannot be claimed.
    fn beginning(&self, rows: &[&Row], request: &ClaimRequest, now: OffsetDateTime) -> Vec<Uuid> {
        let before = |row: &Row| {
            let unrouted = |other: &&Row| other.event.destination.is_none() && !row.is_from(&other.backlog());
            self.rows
                .values()
                .filter(unrouted)
                .any(|other| row.waits_for(other, None))
        };
        rows.iter()
            .take_while(|row| {
                row.is_due(now) && !row.state.is_exhausted(request.max_attempts) && !before(row)
            })
            .map(|row| row.id)
            .collect()
    }

    /// Rows whose lease expired, by `seq`. A row of a key is claimed only with all rows before it.
    fn expired(
        &self,
        request: &ClaimRequest,
        now: OffsetDateTime,
        wanted: impl Fn(&Row) -> bool,
        limit: usize,
    ) -> Vec<Uuid> {
        let mut taken: BTreeSet<Uuid> = BTreeSet::new();
        for row in self.rows.values().filter(|row| row.state.is_expired(now)) {
            let ours = request.scope.contains(&row.event.namespace)
                && !row.state.is_exhausted(request.max_attempts)
                && !row
                    .event
                    .destination
                    .as_ref()
                    .is_some_and(|name| request.excluded.contains(name));
            let in_turn = row.lane.is_none_or(|lane| {
                let destination = row.event.destination.as_deref();
                let mut others = self.rows.values();
                self.owns(request.worker, &row.backlog(), lane, now)
                    && !others.any(|other| row.waits_for(other, destination) && !taken.contains(&other.id))
            });
            if taken.len() < limit && ours && in_turn && wanted(row) {
                taken.insert(row.id);
            }
        }
        self.rows
            .values()
            .map(|row| row.id)
            .filter(|id| taken.contains(id))
            .collect()
    }

    /// Is there a row whose lease expired that this claim could take?
    pub(super) fn is_claimable(&self, request: &ClaimRequest, now: OffsetDateTime) -> bool {
        !self.candidates(request, now).is_empty()
    }
}

/// One row of each tenant in turn. Lots decide the order of the tenants, so that each gets its turn although claims are
/// small.
fn in_turns(rows: Vec<&Row>, claim: Uuid) -> Vec<&Row> {
    let lots = |tenant: Option<Uuid>| {
        let mut hasher = DefaultHasher::new();
        (claim, tenant).hash(&mut hasher);
        hasher.finish()
    };
    let mut taken: BTreeMap<Option<Uuid>, usize> = BTreeMap::new();
    let mut turns: Vec<((usize, u64), &Row)> = Vec::new();
    for row in rows {
        let tenant = row.event.tenant_id;
        let turn = taken.entry(tenant).or_default();
        turns.push(((*turn, lots(tenant)), row));
        *turn += 1;
    }
    turns.sort_by_key(|(place, _)| *place);
    turns.into_iter().map(|(_, row)| row).collect()
}

impl Row {
    fn delivery(&self, lease: &Lease, suspect: bool, contested: bool) -> Delivery {
        Delivery {
            id: self.id,
            seq: self.seq,
            event: self.event.clone(),
            lane: self.lane,
            attempts: self.state.attempts,
            max_attempts: self.state.max_attempts,
            created_at: self.created_at,
            claim: lease.claim,
            suspect,
            contested,
        }
    }
}
