//! Makes rows dead that have no attempts left and whose worker did not come back.
//!
//! **If we die here** the next sweep finds them again.

use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::Table;
use crate::state::Change;
use crate::store::{Scope, Swept};

impl Table {
    pub(super) fn sweep(
        &mut self,
        scope: &Scope,
        max_attempts: u32,
        grace: Duration,
        now: OffsetDateTime,
    ) -> Swept {
        let ours: Vec<Uuid> = self
            .rows
            .values()
            .filter(|row| scope.contains(&row.event.namespace))
            .map(|row| row.event.id)
            .collect();
        let sweep = Change::Sweep {
            limit: max_attempts,
            grace,
        };
        let dead = ours
            .into_iter()
            .filter(|id| self.change(*id, sweep.clone(), now))
            .collect();
        let alone = self.rows.values().any(|row| {
            scope.contains(&row.event.namespace)
                && row.state.is_expired(now)
                && row.state.attempts >= 2
                && !row.state.is_exhausted(max_attempts)
        });
        Swept { dead, alone }
    }
}
