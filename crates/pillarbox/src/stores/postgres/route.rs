//! Writes down where claimed rows go, and makes siblings: one statement.
//!
//! **If we die here** all of a family is there, or none but the row itself.

use std::sync::Arc;

use sqlx::Row;
use uuid::Uuid;

use super::{Inner, attempts, store_error};
use crate::failpoint;
use crate::store::{Routed, Routing, StoreError};

/// Members as arrays: what the statement takes.
#[derive(Debug, Default)]
pub(super) struct Columns {
    ids: Vec<Uuid>,
    claims: Vec<Uuid>,
    places: Vec<i32>,
    sizes: Vec<i32>,
    members: Vec<Uuid>,
    destinations: Vec<String>,
    max_attempts: Vec<Option<i32>>,
}

impl Columns {
    pub(super) fn of(routings: &[Routing]) -> Self {
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let mut columns = Self::default();
        for routing in routings {
            for (place, member) in routing.members.iter().enumerate() {
                columns.ids.push(routing.id);
                columns.claims.push(routing.claim);
                columns.places.push(number(place + 1));
                columns.sizes.push(number(routing.members.len()));
                columns.members.push(member.id);
                columns.destinations.push(member.destination.clone());
                columns.max_attempts.push(member.max_attempts.map(attempts));
            }
        }
        columns
    }
}

pub(super) async fn route(inner: Arc<Inner>, worker: Uuid, columns: Columns) -> Result<Routed, StoreError> {
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(inner.sql.route.safe())
        .bind(worker)
        .bind(columns.ids)
        .bind(columns.claims)
        .bind(columns.places)
        .bind(columns.sizes)
        .bind(columns.members)
        .bind(columns.destinations)
        .bind(columns.max_attempts)
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
    Ok(routed)
}
