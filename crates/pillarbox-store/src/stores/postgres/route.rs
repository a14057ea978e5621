//! Writes the destinations of claimed rows, and inserts siblings: one statement.
//!
//! **If we die here** the whole family is written, or only the row itself.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::Row;
use uuid::Uuid;

use super::{Inner, attempts, store_error};
use crate::store::{Member, Routed, Routing, StoreError};
use pillarbox::failpoint;

/// Rows and siblings as arrays, for the statement.
#[derive(Debug, Default)]
pub(super) struct Columns {
    rows: Members,
    claims: Vec<Uuid>,
    has_siblings: Vec<bool>,
    siblings: Members,
    sibling_ids: Vec<Uuid>,
}

#[derive(Debug, Default)]
struct Members {
    rows: Vec<Uuid>,
    destinations: Vec<String>,
    max_attempts: Vec<Option<i32>>,
}

impl Members {
    fn push(&mut self, row: Uuid, member: &Member) {
        self.rows.push(row);
        self.destinations.push(member.destination.clone());
        self.max_attempts.push(member.max_attempts.map(attempts));
    }
}

impl Columns {
    pub(super) fn of(routings: &[Routing]) -> Self {
        let mut columns = Self::default();
        for routing in routings {
            let Some((first, siblings)) = routing.members.split_first() else {
                continue;
            };
            columns.rows.push(routing.id, first);
            columns.claims.push(routing.claim);
            columns.has_siblings.push(!siblings.is_empty());
            for sibling in siblings {
                columns.siblings.push(routing.id, sibling);
                columns.sibling_ids.push(sibling.id);
            }
        }
        columns
    }

    fn members(&self) -> Vec<InClaim> {
        let claims: HashMap<Uuid, Uuid> = self
            .rows
            .rows
            .iter()
            .copied()
            .zip(self.claims.iter().copied())
            .collect();
        let first = self.rows.rows.iter().map(|row| (*row, *row));
        let siblings = self
            .sibling_ids
            .iter()
            .copied()
            .zip(self.siblings.rows.iter().copied());
        let members = first.chain(siblings);
        members
            .filter_map(|(id, row)| Some((id, row, *claims.get(&row)?)))
            .collect()
    }
}

/// A member: its own id, the row that was claimed, and the claim.
type InClaim = (Uuid, Uuid, Uuid);

/// Counts the members that the claims have now.
fn count(inner: &Inner, members: &[InClaim], routed: &Routed) {
    let held = || members.iter().filter(|(_, row, _)| !routed.lost.contains(row));
    let waits = |id: &Uuid| routed.waiting.contains(id);
    let born = held().filter(|(id, row, _)| id != row && !waits(id));
    inner.leases.added(born.map(|(_, _, claim)| *claim));
    let released = held().filter(|(id, row, _)| id == row && waits(id));
    inner.leases.settled(released.map(|(_, _, claim)| *claim));
}

pub(super) async fn route(inner: Arc<Inner>, worker: Uuid, columns: Columns) -> Result<Routed, StoreError> {
    let members = columns.members();
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.route.safe())
        .bind(worker)
        .bind(columns.rows.rows)
        .bind(columns.claims)
        .bind(columns.rows.destinations)
        .bind(columns.rows.max_attempts)
        .bind(columns.has_siblings)
        .bind(columns.siblings.rows)
        .bind(columns.sibling_ids)
        .bind(columns.siblings.destinations)
        .bind(columns.siblings.max_attempts)
        .persistent(false);
    let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    failpoint::hit("in_route");
    transaction.commit().await.map_err(store_error)?;
    let mut routed = Routed::default();
    for row in &rows {
        let id: Uuid = row.try_get(0).map_err(store_error)?;
        if row.try_get(1).map_err(store_error)? {
            routed.lost.push(id);
        } else {
            routed.waiting.push(id);
        }
    }
    count(&inner, &members, &routed);
    if !routed.waiting.is_empty() {
        inner.keys.tried();
    }
    Ok(routed)
}
