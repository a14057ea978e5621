//! Deletes what was kept long enough.

use std::collections::BTreeSet;

use time::OffsetDateTime;
use uuid::Uuid;

use super::{Row, Table};
use crate::retention::{Place, PruneRequest, Pruned, Retention, What};
use crate::state::Status;

impl Table {
    /// Sagas are not kept in memory.
    pub(super) fn prune(&mut self, request: &PruneRequest, now: OffsetDateTime) -> Pruned {
        match request.what {
            What::Delivered => self.prune_rows(request, &Status::Delivered, now),
            What::Dead => self.prune_rows(request, &Status::Dead, now),
            What::Sagas => Pruned::default(),
            What::Marks => {
                let marks = self.marks.prune_all(request.retention.inbox, request.batch, now);
                Pruned {
                    marks,
                    after: (marks >= request.batch as u64).then(Place::default),
                    ..Pruned::default()
                }
            }
        }
    }

    fn prune_rows(&mut self, request: &PruneRequest, status: &Status, now: OffsetDateTime) -> Pruned {
        let after = request.after.as_ref().map_or(i64::MIN, |place| place.number);
        let read: Vec<&Row> = self
            .rows
            .values()
            .filter(|row| {
                row.state.status == *status && row.seq > after && request.scope.contains(&row.event.namespace)
            })
            .take(request.batch)
            .collect();
        let is_whole = read.len() < request.batch;
        let last = read.last().map(|row| row.seq);
        let events: BTreeSet<Uuid> = read.into_iter().map(|row| row.event.id).collect();
        let stays = |row: &Row| events.contains(&row.event.id) && !row.is_over(&request.retention, now);
        let staying: BTreeSet<Uuid> = self
            .rows
            .values()
            .filter(|row| stays(row))
            .map(|row| row.event.id)
            .collect();
        let mut pruned = Pruned::default();
        if request.dry_run {
            let over = self.rows.values().filter(|row| {
                row.state.status == *status
                    && events.contains(&row.event.id)
                    && !staying.contains(&row.event.id)
            });
            let count = over.count() as u64;
            match status {
                Status::Dead => pruned.dead = count,
                _ => pruned.delivered = count,
            }
        }
        self.rows.retain(|_, row| {
            let is_gone =
                !request.dry_run && events.contains(&row.event.id) && !staying.contains(&row.event.id);
            if is_gone {
                pruned.delivered += u64::from(row.state.status == Status::Delivered);
                pruned.dead += u64::from(row.state.status == Status::Dead);
            }
            !is_gone
        });
        pruned.after = last.filter(|_| !is_whole).map(|number| Place {
            number,
            ..Place::default()
        });
        pruned
    }
}

impl Row {
    /// Has it ended, long enough ago?
    fn is_over(&self, retention: &Retention, now: OffsetDateTime) -> bool {
        let keep = retention.of(&self.event.namespace);
        let (since, age) = match self.state.status {
            Status::Delivered => (self.delivered_at, keep.delivered()),
            // A row in its lane blocks its key.
            Status::Dead if self.lane.is_none() => (Some(self.updated_at), keep.dead),
            Status::Dead | Status::Pending | Status::Processing | Status::Unknown(_) => (None, None),
        };
        since.zip(age).is_some_and(|(since, age)| since + age < now)
    }
}
