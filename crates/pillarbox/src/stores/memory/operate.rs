//! What people ask of the outbox.

use async_trait::async_trait;
use uuid::Uuid;

use super::{Memory, Row};
use crate::operate::{Filter, Operate, Record, Stats};
use crate::payload::Payload;
use crate::state::{Change, Status};
use crate::store::{Scope, StoreError};

#[async_trait]
impl Operate for Memory {
    async fn stats(&self, scope: &Scope) -> Result<Stats, StoreError> {
        let now = self.clock.wall();
        let mut stats = Stats {
            exact: true,
            ..Stats::default()
        };
        for row in self
            .table()
            .rows
            .values()
            .filter(|row| scope.contains(&row.event.namespace))
        {
            match row.state.status {
                Status::Pending => stats.pending += 1,
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
        Ok(stats)
    }

    async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError> {
        let limit = if filter.limit == 0 { 50 } else { filter.limit };
        let wanted = |row: &&Row| {
            filter.scope.contains(&row.event.namespace)
                && filter
                    .topic
                    .as_ref()
                    .is_none_or(|topic| *topic == row.event.topic)
                && filter.before.is_none_or(|before| row.seq < before)
                && match &filter.status {
                    None => true,
                    Some(Status::Unknown(_)) => matches!(row.state.status, Status::Unknown(_)),
                    Some(status) => *status == row.state.status,
                }
        };
        Ok(self
            .table()
            .rows
            .values()
            .rev()
            .filter(wanted)
            .take(limit)
            .map(|row| row.record(false))
            .collect())
    }

    async fn show(&self, id: Uuid) -> Result<Option<Record>, StoreError> {
        Ok(self.table().find(id).map(|row| row.record(true)))
    }

    async fn retry(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let now = self.clock.wall();
        let mut table = self.table();
        Ok(ids
            .iter()
            .copied()
            .filter(|id| table.change(*id, Change::Revive, now))
            .collect())
    }

    async fn delete(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let now = self.clock.wall();
        let mut table = self.table();
        let mut deleted = Vec::new();
        table.rows.retain(|_, row| {
            let held = row.state.status == Status::Processing && !row.state.is_expired(now);
            let goes = ids.contains(&row.event.id) && !held;
            if goes {
                deleted.push(row.event.id);
            }
            !goes
        });
        Ok(deleted)
    }
}

impl Row {
    fn record(&self, with_payload: bool) -> Record {
        let (event, state) = (&self.event, &self.state);
        let (payload, body_bytes) = match &event.payload {
            Payload::Json(text) => (serde_json::from_slice(text).unwrap_or_default(), None),
            Payload::Bytes(body) => (serde_json::Value::Null, i64::try_from(body.len()).ok()),
        };
        Record {
            id: event.id,
            event_id: event.id,
            seq: self.seq,
            namespace: event.namespace.clone(),
            topic: event.topic.clone(),
            event_type: event.event_type.clone(),
            event_version: event.event_version,
            aggregate_type: event.aggregate_type.clone(),
            aggregate_id: event.aggregate_id.clone(),
            tenant_id: event.tenant_id,
            dedupe_key: event.dedupe_key.clone(),
            ordering_key: event.ordering_key.clone(),
            severity: event.severity.clone(),
            destination: event.destination.clone(),
            status: state.status.as_str().to_owned(),
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
            content_type: event.content_type.clone(),
            content_encoding: event.content_encoding.clone(),
            headers: serde_json::json!(event.headers),
            payload: with_payload.then_some(payload),
            body_bytes,
        }
    }
}
