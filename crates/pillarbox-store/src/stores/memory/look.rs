//! Finds sources in which something may be due, and rows that wait for something other than time.

use std::collections::BTreeMap;

use time::OffsetDateTime;
use uuid::Uuid;

use super::{Row, Table};
use crate::state::Status;
use crate::store::{Aside, Due, Look, Scope, Source, Stub, UNROUTED};
use pillarbox::payload::Payload;

impl Table {
    pub(super) fn look(
        &self,
        scope: &Scope,
        after: Option<&Source>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Look {
        let mut found: BTreeMap<Source, Due> = BTreeMap::new();
        // A row with a lane and without a worker needs an owner, who has to know of it.
        let orphan = |row: &Row| row.lane.is_some() && row.state.is_expired(now);
        let due = |row: &&Row| (row.is_due(now) || orphan(row)) && scope.contains(&row.event.namespace);
        for row in self.rows.values().filter(due) {
            let source = row.source();
            let held = source.destination.as_deref() == Some(UNROUTED);
            if held || after.is_some_and(|after| source <= *after) {
                continue;
            }
            let due = found.entry(source.clone()).or_insert(Due {
                source,
                lowest: None,
                waited: false,
                keyed: false,
            });
            match (row.lane, row.is_fresh()) {
                (Some(_), _) => due.keyed = true,
                (None, true) => due.lowest = due.lowest.or(Some(row.seq)),
                (None, false) => due.waited = true,
            }
        }
        Look {
            more: found.len() > limit,
            due: found.into_values().take(limit).collect(),
            paused: self.paused.keys().cloned().collect(),
        }
    }

    pub(super) fn aside(&self, what: Aside, scope: &Scope, after: Option<i64>, limit: usize) -> Vec<Stub> {
        self.rows
            .values()
            .filter(|row| row.is_aside(what) && scope.contains(&row.event.namespace))
            .filter(|row| after.is_none_or(|after| row.seq > after))
            .take(limit)
            .map(Row::stub)
            .collect()
    }

    pub(super) fn let_go(&mut self, what: Aside, ids: &[Uuid], now: OffsetDateTime) -> Vec<Uuid> {
        let mut gone = Vec::new();
        for row in self.rows.values_mut() {
            if !ids.contains(&row.id) || !row.is_aside(what) {
                continue;
            }
            match what {
                Aside::Unrouted => {
                    row.event.destination = None;
                    row.state.due = now;
                }
                Aside::Blocking => row.lane = None,
            }
            row.updated_at = now;
            gone.push(row.id);
        }
        gone
    }
}

impl Row {
    pub(super) fn source(&self) -> Source {
        Source {
            destination: self.event.destination.clone(),
            namespace: self.event.namespace.clone(),
        }
    }

    fn is_aside(&self, what: Aside) -> bool {
        match what {
            Aside::Unrouted => {
                self.state.status == Status::Pending && self.event.destination.as_deref() == Some(UNROUTED)
            }
            Aside::Blocking => self.state.status == Status::Dead && self.lane.is_some(),
        }
    }

    fn stub(&self) -> Stub {
        let mut event = self.event.clone();
        event.payload = Payload::empty();
        event.headers.clear();
        Stub {
            id: self.id,
            seq: self.seq,
            event,
        }
    }
}
