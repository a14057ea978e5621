//! Writes the destinations of claimed rows, and inserts siblings.
//!
//! **If we die here** the whole family is written, or only the row itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Value, json};
use sqlx::{Row, SqliteConnection, SqlitePool};
use uuid::Uuid;

use super::column_limit;
use crate::store::{Member, Routed, Routing};
use pillarbox::internal::envelope::with_columns;

static SIBLINGS: LazyLock<String> = LazyLock::new(|| with_columns(include_str!("sql/route_siblings.sql")));

/// One member, with its row.
struct Place<'a> {
    routing: &'a Routing,
    member: &'a Member,
    number: usize,
}

impl Place<'_> {
    /// A row with one destination that need not wait is left as it is. Its settlement writes the destination.
    fn is_written(&self, waits: bool) -> bool {
        waits || self.routing.members.len() > 1
    }

    fn as_json(&self, waits: bool) -> Value {
        json!({
            "row": self.routing.id,
            "id": self.member.id,
            "destination": self.member.destination,
            "max_attempts": self.member.max_attempts.map(column_limit),
            "waits": waits,
        })
    }
}

pub(super) async fn route(
    writer: SqlitePool,
    worker: Uuid,
    routings: Vec<Routing>,
) -> Result<Routed, sqlx::Error> {
    let places: Vec<Place<'_>> = routings.iter().flat_map(places).collect();
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    let held = held(&mut tx, worker, &places).await?;
    let (mut first, mut siblings) = (Vec::new(), Vec::new());
    let mut routed = Routed::default();
    for (number, place) in places.iter().enumerate() {
        let Some(waits) = held.get(&number) else { continue };
        if *waits {
            routed.waiting.push(place.member.id);
        }
        match place.number {
            _ if !place.is_written(*waits) => {}
            0 => first.push(place.as_json(*waits)),
            _ => siblings.push(place.as_json(*waits)),
        }
    }
    // Siblings first: they are copies of the row as it was claimed.
    write(&mut tx, &SIBLINGS, siblings).await?;
    write(&mut tx, include_str!("sql/route_first.sql"), first).await?;
    tx.commit().await?;
    let ours: BTreeSet<Uuid> = held.keys().map(|number| places[*number].routing.id).collect();
    routed.lost = routings
        .iter()
        .map(|routing| routing.id)
        .filter(|id| !ours.contains(id))
        .collect();
    Ok(routed)
}

fn places(routing: &Routing) -> impl Iterator<Item = Place<'_>> {
    let place = move |(number, member)| Place {
        routing,
        member,
        number,
    };
    routing.members.iter().enumerate().map(place)
}

/// The members whose row is held, and whether each must wait.
async fn held(
    tx: &mut SqliteConnection,
    worker: Uuid,
    places: &[Place<'_>],
) -> Result<BTreeMap<usize, bool>, sqlx::Error> {
    let given: Vec<Value> = places
        .iter()
        .map(|place| {
            json!({
                "row": place.routing.id,
                "claim": place.routing.claim,
                "destination": place.member.destination,
            })
        })
        .collect();
    let rows = sqlx::query(include_str!("sql/route_members.sql"))
        .bind(worker.to_string())
        .bind(Value::Array(given).to_string())
        .fetch_all(tx)
        .await?;
    rows.iter()
        .map(|row| {
            let place = usize::try_from(row.try_get::<i64, _>("place")?).unwrap_or(usize::MAX);
            Ok((place, row.try_get("waits")?))
        })
        .collect()
}

async fn write(tx: &mut SqliteConnection, sql: &'static str, members: Vec<Value>) -> Result<(), sqlx::Error> {
    if !members.is_empty() {
        sqlx::query(sql)
            .bind(Value::Array(members).to_string())
            .execute(tx)
            .await?;
    }
    Ok(())
}
