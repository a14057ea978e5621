//! Writes verdicts, and renews leases. Both only for rows that are still held.
//!
//! **If we die here** the row stays in processing until its lease expires. The event may be sent again.

use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::{Row, Table};
use crate::state::{Change, Status};
use crate::store::Settlement;
use crate::verdict::Verdict;

impl Table {
    pub(super) fn settle(
        &mut self,
        worker: Uuid,
        settlements: &[Settlement],
        now: OffsetDateTime,
    ) -> Vec<Uuid> {
        let mut lost = Vec::new();
        for Settlement {
            id,
            claim,
            verdict,
            destination,
            max_attempts,
            unordered,
            keep,
        } in settlements
        {
            let is_unkept = *verdict == Verdict::Delivered && !keep && !self.is_needed(*id);
            if *verdict == Verdict::Delete || is_unkept {
                let held = |row: &&Row| row.state.is_held(worker, *claim);
                let place = self.place(*id);
                match place.filter(|place| self.rows.get(place).filter(held).is_some()) {
                    Some(place) => drop(self.rows.remove(&place)),
                    None => lost.push(*id),
                }
                continue;
            }
            let change = Change::Settle {
                worker,
                claim: *claim,
                verdict: verdict.clone(),
            };
            if !self.change(*id, change, now) {
                lost.push(*id);
                continue;
            }
            let Some(row) = self.find(*id) else { continue };
            row.event.destination = destination.clone().or_else(|| row.event.destination.take());
            row.state.max_attempts = max_attempts.or(row.state.max_attempts);
            row.lane = row.lane.filter(|_| !unordered);
            if row.state.status == Status::Delivered {
                row.delivered_at = Some(now);
            }
        }
        lost
    }

    /// Does something need the row after its delivery: its dedupe key, or its family?
    fn is_needed(&self, id: Uuid) -> bool {
        let Some((seq, place)) = self.place(id) else {
            return false;
        };
        let row = &self.rows[&(seq, place)];
        let mut family = self.rows.range((seq, 0)..=(seq, usize::MAX));
        row.event.dedupe_key.is_some() || !row.is_first() || family.any(|(other, _)| other.1 != place)
    }

    pub(super) fn renew(
        &mut self,
        worker: Uuid,
        held: &[(Uuid, Uuid)],
        lease: Duration,
        now: OffsetDateTime,
    ) -> Vec<Uuid> {
        let renew = |(id, claim): &(Uuid, Uuid)| {
            let change = Change::Renew {
                worker,
                claim: *claim,
                until: now + lease,
            };
            (!self.change(*id, change, now)).then_some(*id)
        };
        held.iter().filter_map(renew).collect()
    }

    /// Makes the change if the state machine allows it, and returns whether it did.
    pub(super) fn change(&mut self, id: Uuid, change: Change, now: OffsetDateTime) -> bool {
        let Some(row) = self.find(id) else { return false };
        let Ok(state) = row.state.clone().step(change, now) else {
            return false;
        };
        row.state = state;
        row.updated_at = now;
        true
    }
}
