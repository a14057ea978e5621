//! What operators do with the outbox.

use std::collections::BTreeMap;

use async_trait::async_trait;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Memory, Row, Table};
use crate::actor::{Actor, OperateError, Permission};
use crate::archive::Restored;
use crate::audit::{Action, AuditFilter, AuditRecord, Changed, Line};
use crate::operate::{
    BlockedKey, Content, DestinationRecord, Filter, MOST_BEHIND, MOST_NAMES, Operate, Record, SKIPPED, Stats,
    WorkerRecord,
};
use crate::retention::{DeleteOld, Pruned};
use crate::state::{Change, Status};
use crate::store::{Scope, StoreError, UNROUTED};
use crate::stores::sharing::unserved;
use pillarbox::Envelope;
use pillarbox::Payload;

impl Table {
    /// Counts the rows that are seen.
    pub(super) fn stats(&self, is_seen: impl Fn(&Row) -> bool, now: OffsetDateTime) -> Stats {
        let mut stats = Stats {
            exact: true,
            ..Stats::default()
        };
        for row in self.rows.values().filter(|row| is_seen(row)) {
            match row.state.status {
                Status::Pending => {
                    stats.pending += 1;
                    stats.unrouted += u64::from(row.event.destination.as_deref() == Some(UNROUTED));
                }
                Status::Processing => stats.processing += 1,
                Status::Delivered => stats.delivered += 1,
                Status::Dead => stats.dead += 1,
                Status::Unknown(_) => stats.unknown += 1,
            }
            if row.state.status == Status::Pending && row.state.due <= now {
                let waited = (now - row.state.due).as_seconds_f64();
                stats.oldest_pending_seconds = Some(
                    stats
                        .oldest_pending_seconds
                        .map_or(waited, |oldest| oldest.max(waited)),
                );
            }
        }
        stats
    }
}

#[async_trait]
impl Operate for Memory {
    async fn stats(&self, actor: &Actor, scope: &Scope) -> Result<Stats, OperateError> {
        actor.may(Permission::Read)?;
        let is_seen = |row: &Row| row.is_reached(actor) && scope.contains(&row.event.namespace);
        Ok(self.table().stats(is_seen, self.clock.wall()))
    }

    async fn list(&self, actor: &Actor, filter: &Filter) -> Result<Vec<Record>, OperateError> {
        actor.may(Permission::Read)?;
        let limit = if filter.limit == 0 { 50 } else { filter.limit };
        let wanted = |row: &&Row| {
            row.is_reached(actor)
                && filter.scope.contains(&row.event.namespace)
                && filter
                    .topic
                    .as_ref()
                    .is_none_or(|topic| *topic == row.event.topic)
                && filter
                    .destination
                    .as_ref()
                    .is_none_or(|name| row.event.destination.as_ref() == Some(name))
                && filter.event.is_none_or(|event| row.event.id == event)
                && filter.before.is_none_or(|before| row.seq < before)
                && match &filter.status {
                    None => true,
                    Some(Status::Unknown(_)) => matches!(row.state.status, Status::Unknown(_)),
                    Some(status) => *status == row.state.status,
                }
        };
        let table = self.table();
        let listed = table.rows.values().rev().filter(wanted).take(limit);
        let listed: Vec<Record> = listed.map(|row| row.record(false)).collect();
        Ok(listed.seen_by(actor))
    }

    async fn show(&self, actor: &Actor, id: Uuid) -> Result<Option<Record>, OperateError> {
        actor.may(Permission::Read)?;
        let mut table = self.table();
        let found = table.find(id).filter(|row| row.is_reached(actor));
        Ok(found.map(|row| row.record(true)).seen_by(actor))
    }

    async fn retry(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError> {
        actor.may(Permission::Write)?;
        let now = self.clock.wall();
        let mut table = self.table();
        let mut retried = Vec::new();
        for id in ids {
            let before = table.find(*id).filter(|row| row.is_reached(actor));
            let before = before.map(|row| row.state.status.as_str().to_owned());
            if let Some(before) = before.filter(|_| table.change(*id, Change::ManualRetry, now)) {
                retried.push((*id, before));
            }
        }
        table.manual_retries += retried.len() as u64;
        Ok(table.changed(actor, Action::RetryEvents, retried, Some(&Status::Pending), now))
    }

    async fn delete(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError> {
        actor.may(Permission::Delete)?;
        let now = self.clock.wall();
        let mut table = self.table();
        let mut deleted = Vec::new();
        table.rows.retain(|_, row| {
            let held = row.state.status == Status::Processing && !row.state.is_expired(now);
            let is_deleted = ids.contains(&row.id) && row.is_reached(actor) && !held;
            if is_deleted {
                deleted.push((row.id, row.state.status.as_str().to_owned()));
            }
            !is_deleted
        });
        Ok(table.changed(actor, Action::DeleteEvents, deleted, None, now))
    }

    async fn delete_old(&self, actor: &Actor, request: &DeleteOld) -> Result<Pruned, OperateError> {
        actor.may_in_system(Permission::Delete)?;
        let (now, mut table) = (self.clock.wall(), self.table());
        if let Some(line) = request.line(actor) {
            table.write(line, now);
        }
        Ok(table.prune(&request.as_prune(), now))
    }

    async fn restore(&self, actor: &Actor, rows: &[String], _: bool) -> Result<Restored, OperateError> {
        actor.may_in_system(Permission::Write)?;
        match rows {
            [] => Ok(Restored::default()),
            _ => Err(StoreError::Other(
                "rows are not archived from memory, so none can be restored".to_owned(),
            )
            .into()),
        }
    }

    async fn blocked(
        &self,
        actor: &Actor,
        scope: &Scope,
        limit: usize,
    ) -> Result<Vec<BlockedKey>, OperateError> {
        actor.may(Permission::Read)?;
        let now = self.clock.wall();
        let table = self.table();
        let failed = |row: &&Row| {
            let stuck = match row.state.status {
                Status::Dead => true,
                Status::Pending => row.state.attempts > 0,
                Status::Processing | Status::Delivered | Status::Unknown(_) => false,
            };
            let destination = row.event.destination.as_deref();
            let first = |row: &Row| !table.rows.values().any(|other| row.waits_for(other, destination));
            stuck
                && row.lane.is_some()
                && row.is_reached(actor)
                && scope.contains(&row.event.namespace)
                && first(row)
        };
        let heads = table.rows.values().filter(failed);
        let mut keys: Vec<BlockedKey> = heads.map(|head| table.blocked_key(actor, head, now)).collect();
        let live = table.live_workers(now);
        let waits = |row: &&Row| {
            let destination = row.event.destination.as_deref();
            let earlier = |other: &Row| other.backlog() == row.backlog() && row.waits_for(other, destination);
            let never_tried = row.state.status == Status::Pending && row.state.attempts == 0;
            never_tried
                && row.lane.is_some()
                && row.is_reached(actor)
                && scope.contains(&row.event.namespace)
                && !unserved(vec![row.backlog()], &live).is_empty()
                && !table.rows.values().any(earlier)
        };
        let unserved = table.rows.values().filter(waits);
        keys.extend(unserved.map(|head| table.blocked_key(actor, head, now).unserved()));
        keys.truncate(limit);
        Ok(keys.seen_by(actor))
    }

    async fn skip(&self, actor: &Actor, ids: &[Uuid]) -> Result<Vec<Uuid>, OperateError> {
        actor.may(Permission::Write)?;
        let now = self.clock.wall();
        let mut table = self.table();
        let mut skipped = Vec::new();
        for row in table.rows.values_mut() {
            let stuck = matches!(row.state.status, Status::Pending | Status::Dead);
            if !ids.contains(&row.id) || !row.is_reached(actor) || !stuck || row.lane.is_none() {
                continue;
            }
            skipped.push((row.id, row.state.status.as_str().to_owned()));
            row.lane = None;
            if row.state.status == Status::Pending {
                row.state.status = Status::Dead;
                row.state.last_error.get_or_insert_with(|| SKIPPED.to_owned());
            }
            row.state.lease = None;
            row.updated_at = now;
        }
        Ok(table.changed(actor, Action::SkipEvents, skipped, Some(&Status::Dead), now))
    }

    async fn destinations(
        &self,
        actor: &Actor,
        scope: &Scope,
        known: &[String],
    ) -> Result<Vec<DestinationRecord>, OperateError> {
        actor.may(Permission::Read)?;
        let table = self.table();
        let mut records: BTreeMap<String, DestinationRecord> = BTreeMap::new();
        let mut record = |name: &str, change: &dyn Fn(&mut DestinationRecord)| {
            change(
                records
                    .entry(name.to_owned())
                    .or_insert_with(|| DestinationRecord {
                        name: name.to_owned(),
                        paused: table.paused.get(name).cloned(),
                        pending: 0,
                        dead: 0,
                    }),
            );
        };
        if actor.tenant().is_none() && scope.names().is_none_or(|names| !names.is_empty()) {
            for name in table.paused.keys() {
                record(name, &|_| {});
            }
        }
        for row in table.rows.values() {
            let Some(name) = row
                .event
                .destination
                .as_deref()
                .filter(|_| row.is_reached(actor) && scope.contains(&row.event.namespace))
            else {
                continue;
            };
            match row.state.status {
                Status::Pending => record(name, &|record| record.pending += 1),
                Status::Dead => record(name, &|record| record.dead += 1),
                Status::Processing | Status::Delivered | Status::Unknown(_) => {}
            }
        }
        let first: Vec<String> = records.keys().take(MOST_NAMES).cloned().collect();
        let is_listed = |record: &DestinationRecord| {
            let name = &record.name;
            first.contains(name) || known.contains(name) || record.paused.is_some()
        };
        let records = records.into_values().filter(is_listed);
        Ok(records.map(|record| record.seen_by(actor)).collect())
    }

    async fn pause(&self, actor: &Actor, destination: &str, reason: &str) -> Result<(), OperateError> {
        actor.may_in_system(Permission::Write)?;
        let (now, mut table) = (self.clock.wall(), self.table());
        if table.pause(destination, reason, false, now) {
            table.write(Line::paused(actor, destination, reason), now);
        }
        Ok(())
    }

    async fn resume(&self, actor: &Actor, destination: &str) -> Result<bool, OperateError> {
        actor.may_in_system(Permission::Write)?;
        let mut table = self.table();
        let paused = table.paused.remove(destination);
        if let Some(paused) = &paused {
            let line = Line::resumed(actor, destination, paused.disabled);
            table.write(line, self.clock.wall());
        }
        Ok(paused.is_some())
    }

    async fn workers(&self, actor: &Actor) -> Result<Vec<WorkerRecord>, OperateError> {
        actor.may_in_system(Permission::Read)?;
        Ok(self.table().worker_records(self.clock.wall()).seen_by(actor))
    }

    async fn audit(&self, actor: &Actor, filter: &AuditFilter) -> Result<Vec<AuditRecord>, OperateError> {
        actor.may(Permission::Audit)?;
        Ok(self.table().audit_lines(actor, filter))
    }
}

impl Table {
    /// Writes the line of a change of these rows, and returns their ids.
    fn changed(
        &mut self,
        actor: &Actor,
        action: Action,
        rows: Vec<Changed>,
        status: Option<&Status>,
        now: OffsetDateTime,
    ) -> Vec<Uuid> {
        if !rows.is_empty() {
            self.write(Line::of_rows(actor, action, &rows, status), now);
        }
        rows.into_iter().map(|(id, _)| id).collect()
    }

    fn blocked_key(&self, actor: &Actor, head: &Row, now: OffsetDateTime) -> BlockedKey {
        let behind = self
            .rows
            .values()
            .filter(|row| row.is_reached(actor) && row.waits_for(head, row.event.destination.as_deref()))
            .count();
        let pending = head.state.status == Status::Pending;
        BlockedKey {
            namespace: head.event.namespace.clone(),
            destination: head.event.destination.clone(),
            ordering_key: head.event.ordering_key.clone().unwrap_or_default(),
            head: head.id,
            seq: head.seq,
            status: head.state.status.as_str().to_owned(),
            attempts: i32::try_from(head.state.attempts).unwrap_or(i32::MAX),
            reason: head.state.last_error.clone(),
            age_seconds: (now - head.created_at).as_seconds_f64(),
            next_attempt_at: pending.then_some(head.state.due),
            behind: (behind as u64).min(MOST_BEHIND),
        }
    }
}

impl Row {
    fn is_reached(&self, actor: &Actor) -> bool {
        actor.reaches(self.event.tenant_id)
    }

    fn record(&self, with_payload: bool) -> Record {
        let (event, state) = (&self.event, &self.state);
        let (payload, body_bytes) = match &event.payload {
            Payload::Json(text) => (serde_json::from_slice(text).unwrap_or_default(), None),
            Payload::Bytes(body) => (serde_json::Value::Null, i64::try_from(body.len()).ok()),
        };
        let mut record = Record {
            id: self.id,
            seq: self.seq,
            event: Envelope::clone(event),
            destination: event.destination.clone(),
            status: state.status.as_str().to_owned(),
            unordered: event.ordering_key.is_some() && self.lane.is_none(),
            attempts: i32::try_from(state.attempts).unwrap_or(i32::MAX),
            max_attempts: state
                .max_attempts
                .map(|max| i32::try_from(max).unwrap_or(i32::MAX)),
            next_attempt_at: state.due,
            locked_by: state.lease.map(|lease| lease.worker),
            locked_until: state.lease.map(|lease| lease.until),
            last_error: state.last_error.clone(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            delivered_at: self.delivered_at,
            payload: with_payload.then_some(payload),
            body_bytes,
        };
        // Siblings leave it to the first row.
        if self.id != event.id {
            record.event.dedupe_key = None;
        }
        record
    }
}
