//! What has become of events with several destinations, for the log.

use uuid::Uuid;

use super::{Row, Table};
use crate::state::Status;
use crate::store::Family;

impl Table {
    pub(super) fn families(&self, events: &[Uuid]) -> Vec<Family> {
        let families = events.iter().map(|event| {
            let rows = self.rows.values().filter(|row| row.event.id == *event);
            family(*event, rows.collect())
        });
        families
            .filter(|family| family.delivered + family.dead + family.unfinished > 0)
            .collect()
    }
}

fn family(event: Uuid, mut rows: Vec<&Row>) -> Family {
    rows.sort_by_key(|row| (&row.event.destination, row.id));
    let count = |status| rows.iter().filter(|row| row.state.status == status).count() as u64;
    let (delivered, dead) = (count(Status::Delivered), count(Status::Dead));
    let errors = rows.iter().filter(|row| row.state.status == Status::Dead);
    let errors = errors.map(|row| {
        let destination = row.event.destination.as_deref().unwrap_or_default();
        format!(
            "{destination}: {}",
            row.state.last_error.as_deref().unwrap_or_default()
        )
    });
    Family {
        event,
        delivered,
        dead,
        unfinished: rows.len() as u64 - delivered - dead,
        errors: errors.take(Family::ERRORS).collect(),
    }
}
