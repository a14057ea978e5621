//! Ends rows whose lease expired on the last attempt.
//!
//! **If we die here** the next sweep finds them again.

use std::collections::HashSet;
use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::Table;
use crate::state::Change;
use crate::store::{ClaimRequest, DeadRow, SweepRequest, Swept, Take};

impl Table {
    pub(super) fn sweep(&mut self, request: &SweepRequest, now: OffsetDateTime) -> Swept {
        let ours: Vec<Uuid> = self
            .rows
            .values()
            .filter(|row| request.scope.contains(&row.event.namespace))
            .map(|row| row.id)
            .collect();
        let sweep = Change::Sweep {
            limit: request.max_attempts,
            grace: request.grace,
        };
        let dead: Vec<Uuid> = ours
            .into_iter()
            .filter(|id| self.change(*id, sweep.clone(), now))
            .collect();
        let could_take = |take: Take| {
            let claim = ClaimRequest {
                worker: request.worker,
                claim: Uuid::nil(),
                lease: Duration::ZERO,
                take,
                excluded: request.excluded.clone(),
                first_lane: 0,
                max_bytes: usize::MAX,
                scope: request.scope.clone(),
                max_attempts: request.max_attempts,
            };
            self.is_claimable(&claim, now)
        };
        let ended: HashSet<Uuid> = dead.iter().copied().collect();
        let rows = self.rows.values().filter(|row| ended.contains(&row.id));
        let rows = rows.map(|row| DeadRow {
            event: row.event.id,
            namespace: row.event.namespace.clone(),
            destination: row.event.destination.clone(),
            ordering_key: row.event.ordering_key.clone().filter(|_| row.lane.is_some()),
            attempts: row.state.attempts,
            reason: row.state.last_error.clone().unwrap_or_default(),
        });
        Swept {
            rows: rows.collect(),
            suspects: could_take(Take::Suspects(1)),
            lone_suspect: could_take(Take::LoneSuspect),
            dead,
        }
    }
}
