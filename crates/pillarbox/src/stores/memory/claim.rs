//! Takes due rows for one worker, and rows whose lease ran out.
//!
//! **If we die here** the lease ends and the next claim takes the rows. The attempt stays counted.

use time::OffsetDateTime;

use super::{Row, Table};
use crate::event::Delivery;
use crate::state::{Change, Lease, Status};
use crate::store::{ClaimRequest, Scope, Take};

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
        let mut room = request.max_bytes;
        let mut claimed = Vec::new();
        for seq in self.candidates(request, now) {
            let Some(row) = self.rows.get_mut(&seq) else {
                continue;
            };
            let recovered = row.state.is_expired(now);
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
            claimed.push(row.delivery(&lease, recovered));
        }
        claimed.sort_by_key(|delivery| delivery.seq);
        claimed
    }

    /// In the order in which they are taken: rows whose lease ran out, rows tried before by the time
    /// they are due (at most half of what is asked for, so that they cannot starve fresh ones), fresh rows.
    fn candidates(&self, request: &ClaimRequest, now: OffsetDateTime) -> Vec<i64> {
        let ours = || {
            self.rows.values().filter(|row| {
                request.scope.contains(&row.event.namespace) && !row.state.is_exhausted(request.max_attempts)
            })
        };
        let mut expired: Vec<&Row> = ours().filter(|row| row.state.is_expired(now)).collect();
        expired.sort_by_key(|row| (row.state.lease.map(|lease| lease.until), row.seq));
        let seqs = |rows: Vec<&Row>, most: usize| rows.into_iter().take(most).map(|row| row.seq).collect();
        match request.take {
            Take::Alone => {
                expired.retain(|row| row.state.attempts >= 2);
                seqs(expired, 1)
            }
            Take::Due { limit, recovered } => {
                expired.retain(|row| row.state.attempts < 2);
                let due = |row: &&Row| row.state.status == Status::Pending && row.state.due <= now;
                let (fresh, mut waited): (Vec<&Row>, Vec<&Row>) = ours()
                    .filter(due)
                    .partition(|row| row.state.due <= row.created_at);
                waited.sort_by_key(|row| (row.state.due, row.seq));
                let mut taken: Vec<i64> = seqs(expired, recovered);
                let waited: Vec<i64> = seqs(waited, limit.div_ceil(2));
                let rest = limit.saturating_sub(waited.len());
                taken.extend(waited);
                taken.extend(seqs(fresh, rest) as Vec<i64>);
                taken
            }
        }
    }

    pub(super) fn is_due(&self, scope: &Scope, now: OffsetDateTime) -> bool {
        self.rows.values().any(|row| {
            let due = row.state.status == Status::Pending && row.state.due <= now;
            scope.contains(&row.event.namespace) && (due || row.state.is_expired(now))
        })
    }
}

impl Row {
    fn delivery(&self, lease: &Lease, recovered: bool) -> Delivery {
        Delivery {
            id: self.event.id,
            seq: self.seq,
            event: self.event.clone(),
            attempts: self.state.attempts,
            max_attempts: self.state.max_attempts,
            created_at: self.created_at,
            claim: lease.claim,
            recovered,
        }
    }
}
