//! Finds backlogs that may have due rows, and parked rows.

use std::collections::BTreeMap;
use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::{Row, Table};
use crate::state::Status;
use crate::store::{Backlog, Due, Found, Parked, Scope, Stub, UNROUTED};
use pillarbox::Payload;

impl Table {
    pub(super) fn find_due(
        &self,
        scope: &Scope,
        served: Option<&[String]>,
        after: Option<&Backlog>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Found {
        let mut found: BTreeMap<Backlog, Due> = BTreeMap::new();
        // A row with a lane and an expired lease needs an owner of its lane, who must know of it.
        let orphan = |row: &Row| row.lane.is_some() && row.state.is_expired(now);
        let due = |row: &&Row| (row.is_due(now) || orphan(row)) && scope.contains(&row.event.namespace);
        for row in self.rows.values().filter(due) {
            let backlog = row.backlog();
            if !is_served(row, served) || after.is_some_and(|after| backlog <= *after) {
                continue;
            }
            let due = found.entry(backlog.clone()).or_insert(Due {
                backlog,
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
        Found {
            more: found.len() > limit,
            due: found.into_values().take(limit).collect(),
            paused: self.paused.keys().cloned().collect(),
            due_in: self.due_in(scope, served, now),
        }
    }

    /// When the first of the rows is due that wait.
    fn due_in(&self, scope: &Scope, served: Option<&[String]>, now: OffsetDateTime) -> Option<Duration> {
        let waits = |row: &&Row| {
            row.state.status == Status::Pending
                && row.state.due > now
                && is_served(row, served)
                && scope.contains(&row.event.namespace)
        };
        let first = self.rows.values().filter(waits).map(|row| row.state.due).min()?;
        (first - now).try_into().ok()
    }

    pub(super) fn parked(&self, what: Parked, scope: &Scope, after: Option<i64>, limit: usize) -> Vec<Stub> {
        self.rows
            .values()
            .filter(|row| row.is_parked(what) && scope.contains(&row.event.namespace))
            .filter(|row| after.is_none_or(|after| row.seq > after))
            .take(limit)
            .map(Row::stub)
            .collect()
    }

    pub(super) fn unpark(&mut self, what: Parked, ids: &[Uuid], now: OffsetDateTime) -> Vec<Uuid> {
        let mut gone = Vec::new();
        for row in self.rows.values_mut() {
            if !ids.contains(&row.id) || !row.is_parked(what) {
                continue;
            }
            match what {
                Parked::Unrouted => {
                    row.event.destination = None;
                    row.state.due = now;
                }
                Parked::Blocking => row.lane = None,
            }
            row.updated_at = now;
            gone.push(row.id);
        }
        gone
    }
}

/// Is the row neither unrouted nor for a destination that the searching worker does not have?
fn is_served(row: &Row, served: Option<&[String]>) -> bool {
    match &row.event.destination {
        Some(name) => name != UNROUTED && served.is_none_or(|served| served.contains(name)),
        None => true,
    }
}

impl Row {
    pub(super) fn backlog(&self) -> Backlog {
        Backlog {
            destination: self.event.destination.clone(),
            namespace: self.event.namespace.clone(),
        }
    }

    fn is_parked(&self, what: Parked) -> bool {
        match what {
            Parked::Unrouted => {
                self.state.status == Status::Pending && self.event.destination.as_deref() == Some(UNROUTED)
            }
            Parked::Blocking => self.state.status == Status::Dead && self.lane.is_some(),
        }
    }

    fn stub(&self) -> Stub {
        let mut event = self.event.clone();
        event.payload = Payload::empty();
        Stub {
            id: self.id,
            seq: self.seq,
            event,
        }
    }
}
