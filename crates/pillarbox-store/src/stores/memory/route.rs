//! Writes the destinations of claimed rows, and inserts siblings.
//!
//! **If we die here** the whole family is written, or only the row itself.

use time::OffsetDateTime;
use uuid::Uuid;

use super::{Row, Table};
use crate::state::Status;
use crate::store::{Member, Routed, Routing};

impl Table {
    pub(super) fn route(&mut self, worker: Uuid, routings: &[Routing], now: OffsetDateTime) -> Routed {
        let mut routed = Routed::default();
        for routing in routings {
            let held =
                |row: &&Row| row.state.is_held(worker, routing.claim) && row.event.destination.is_none();
            let place = self.place(routing.id);
            let Some(row) = place
                .and_then(|place| self.rows.get(&place))
                .filter(held)
                .cloned()
            else {
                routed.lost.push(routing.id);
                continue;
            };
            for (number, member) in routing.members.iter().enumerate() {
                let waits = self.rows.values().any(|other| {
                    let ours = other
                        .state
                        .lease
                        .is_some_and(|lease| lease.claim == routing.claim);
                    let there = other.event.destination.as_deref() == Some(&member.destination);
                    there && !ours && row.waits_for(other, Some(&member.destination))
                });
                if waits {
                    routed.waiting.push(member.id);
                }
                // A row with one destination that need not wait is left as it is. Its settlement writes the destination.
                if waits || routing.members.len() > 1 {
                    self.put((row.seq, number), row.member(member, waits, now));
                }
            }
        }
        routed
    }
}

impl Row {
    fn member(&self, member: &Member, waits: bool, now: OffsetDateTime) -> Self {
        let mut row = self.clone();
        row.id = member.id;
        row.event.destination = Some(member.destination.clone());
        row.state.max_attempts = member.max_attempts;
        row.updated_at = now;
        if waits {
            row.state.status = Status::Pending;
            row.state.attempts = row.state.attempts.saturating_sub(1);
            row.state.lease = None;
        }
        row
    }
}
